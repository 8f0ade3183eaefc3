package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hubLimits bound the hub's memory. Zero fields take the defaults.
type hubLimits struct {
	ring int // revisions that a client can go back
	logs int // log entries that are kept
	lag  int // revisions that an open stream may be behind
	tail int // log entries that a snapshot carries
}

func (l hubLimits) withDefaults() hubLimits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.ring, 50000)
	def(&l.logs, 10000)
	def(&l.lag, 10000)
	def(&l.tail, 500)
	return l
}

// hub holds the current objects and what changed lately, and wakes the streams.
//
// A revision is one change: an object was put or deleted, or a log entry was
// added. The ring keeps only which key a revision was about, because a client
// that catches up needs the latest state of each, not every state in between:
//
//	revision   floor+1 ........................ rev
//	ring       [volume/a] [log] [node/n1] [volume/a]
//	client          ^position: reads the rest, merged by key
//
// Publishing never waits for a client: it wakes a stream, which reads from its own
// position. A stream that lies further back than the limit is told so and closed.
type hub struct {
	epoch  string
	limits hubLimits

	mu      sync.Mutex
	rev     uint64                     // guarded by mu
	ring    []change                   // guarded by mu: change of revision r is at (r-1) % limits.ring
	objects map[string]json.RawMessage // guarded by mu; a message is never changed
	logs    int                        // guarded by mu: entries kept
	oldest  uint64                     // guarded by mu: no kept log entry is older than this revision
	streams map[*stream]struct{}       // guarded by mu
	left    *sync.Cond                 // on mu: a stream has left

	ctx   context.Context // tells every stream, present and future, that the server stops
	close context.CancelFunc
}

// change is what a revision was about: a key, or a log entry (nil once it was dropped).
type change struct {
	key string
	log json.RawMessage
}

// stream is one client's wake-up.
type stream struct{ wake chan struct{} }

func newHub(l hubLimits) *hub {
	var id [6]byte
	rand.Read(id[:])
	h := &hub{
		epoch: hex.EncodeToString(id[:]), limits: l.withDefaults(), oldest: 1,
		objects: map[string]json.RawMessage{}, streams: map[*stream]struct{}{},
	}
	h.left = sync.NewCond(&h.mu)
	h.ctx, h.close = context.WithCancel(context.Background())
	return h
}

// publish applies puts, deletions and log entries in one step. A put that changes
// nothing is dropped.
func (h *hub) publish(put map[string]json.RawMessage, del []string, logs []json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.rev
	for key, obj := range put {
		if bytes.Equal(h.objects[key], obj) {
			continue
		}
		h.objects[key] = obj
		h.add(change{key: key})
	}
	for _, key := range del {
		if _, ok := h.objects[key]; ok {
			delete(h.objects, key)
			h.add(change{key: key})
		}
	}
	for _, l := range logs {
		h.add(change{log: l})
		h.logs++
	}
	for ; h.logs > h.limits.logs; h.oldest++ {
		if c := h.at(h.oldest); c != nil && c.log != nil {
			c.log = nil
			h.logs--
		}
	}
	if h.rev == before {
		return
	}
	for s := range h.streams {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// add gives c the next revision. The caller holds mu.
func (h *hub) add(c change) {
	h.rev++
	if len(h.ring) < h.limits.ring {
		h.ring = append(h.ring, c)
		return
	}
	old := &h.ring[(h.rev-1)%uint64(h.limits.ring)]
	if old.log != nil {
		h.logs--
	}
	*old = c
}

// at returns the change of a revision that the ring still has. The caller holds mu.
func (h *hub) at(rev uint64) *change {
	if rev <= h.floor() || rev > h.rev {
		return nil
	}
	return &h.ring[(rev-1)%uint64(h.limits.ring)]
}

// floor is the newest revision that was forgotten. The caller holds mu.
func (h *hub) floor() uint64 { return h.rev - uint64(len(h.ring)) }

// snapshot is the state at a revision.
type snapshot struct {
	Epoch   string            `json:"epoch"`
	Rev     uint64            `json:"rev"`
	Objects []json.RawMessage `json:"objects"`
	Log     []json.RawMessage `json:"log"` // the latest entries, oldest first
}

func (h *hub) snapshot() snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := snapshot{Epoch: h.epoch, Rev: h.rev, Objects: make([]json.RawMessage, 0, len(h.objects)), Log: []json.RawMessage{}}
	for _, o := range h.objects {
		s.Objects = append(s.Objects, o)
	}
	for r := h.rev; r > h.floor() && len(s.Log) < h.limits.tail; r-- {
		if c := h.at(r); c.log != nil {
			s.Log = append(s.Log, c.log)
		}
	}
	for i, j := 0, len(s.Log)-1; i < j; i, j = i+1, j-1 {
		s.Log[i], s.Log[j] = s.Log[j], s.Log[i]
	}
	return s
}

// batch is what changed after a position, merged by key.
type batch struct {
	Rev        uint64            `json:"rev"`
	Put        []json.RawMessage `json:"put,omitempty"`
	Del        []string          `json:"del,omitempty"`
	Log        []json.RawMessage `json:"log,omitempty"`
	LogDropped int               `json:"logDropped,omitempty"`
}

// The reasons of a reset.
const (
	resetEpoch     = "epoch"     // the position is of another process
	resetCompacted = "compacted" // the position is further back than the ring
	resetSlow      = "slow"      // the stream did not keep up
)

// read returns what changed after rev, or the reason why it cannot.
func (h *hub) read(rev uint64) (batch, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := batch{Rev: h.rev}
	if rev > h.rev {
		return b, resetEpoch // a position that we never gave
	}
	if rev < h.floor() {
		return b, resetCompacted
	}
	seen := map[string]bool{}
	for r := rev + 1; r <= h.rev; r++ {
		switch c := h.at(r); {
		case c.key == "":
			if c.log == nil {
				b.LogDropped++
			} else {
				b.Log = append(b.Log, c.log)
			}
		case !seen[c.key]:
			seen[c.key] = true
			if o, ok := h.objects[c.key]; ok {
				b.Put = append(b.Put, o)
			} else {
				b.Del = append(b.Del, c.key)
			}
		}
	}
	return b, ""
}

// next is read for an open stream, which has to keep up.
func (h *hub) next(rev uint64) (batch, string) {
	h.mu.Lock()
	behind := h.rev - rev
	h.mu.Unlock()
	if behind > uint64(h.limits.lag) {
		return batch{}, resetSlow
	}
	return h.read(rev)
}

// join adds a stream. Its wake channel has something from the start, so that its
// first read covers what came between its position and now.
func (h *hub) join() *stream {
	s := &stream{wake: make(chan struct{}, 1)}
	s.wake <- struct{}{}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[s] = struct{}{}
	return s
}

// watched tells whether a stream is open.
func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams) > 0
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
	h.left.Broadcast()
}

// drain waits until no stream is left, but not longer than limit.
func (h *hub) drain(limit time.Duration) {
	late := false // guarded by mu
	timer := time.AfterFunc(limit, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		late = true
		h.left.Broadcast()
	})
	defer timer.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.streams) > 0 && !late {
		h.left.Wait()
	}
}

// position is a place in the stream: "<epoch>.<rev>".
func (h *hub) position(rev uint64) string { return h.epoch + "." + strconv.FormatUint(rev, 10) }

// parse reads a position of this process.
func (h *hub) parse(position string) (uint64, bool) {
	epoch, rev, ok := strings.Cut(position, ".")
	n, err := strconv.ParseUint(rev, 10, 64)
	return n, ok && err == nil && epoch == h.epoch
}
