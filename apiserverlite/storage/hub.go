package storage

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hub joins the published state, the rings and the watches: under its mutex they are at
// the same revision. Readers of the state do not need it.
type hub struct {
	maxEvents, maxBytes int

	mu      sync.Mutex
	loaded  Revision             // constant: of the last write found on disk
	start   Revision             // constant: where this run's counter began
	topics  []*topic             // guarded by mu, by the number of the resource
	early   map[*Watch]struct{}  // guarded by mu: watches of resources that were never written
	bytes   int                  // guarded by mu: cost of all rings
	waiters map[*waiter]struct{} // guarded by mu
	closed  bool                 // guarded by mu
}

// topic is one resource's ring and watches. Watches are indexed by what they ask for, so
// that a thousand watches for one name each do not see each other's events.
type topic struct {
	ring    ring
	all     map[*Watch]struct{}
	byScope map[string]map[*Watch]struct{} // by namespace + "/" or by path
}

type waiter struct {
	want Revision
	done chan struct{}
}

func newHub(cfg Config, loaded, start Revision, topics int) *hub {
	h := &hub{maxEvents: cfg.RingEvents, maxBytes: cfg.RingBytes, loaded: loaded, start: start,
		early: map[*Watch]struct{}{}, waiters: map[*waiter]struct{}{}}
	for range topics {
		h.topics = append(h.topics, newTopic(start))
	}
	return h
}

func newTopic(floor Revision) *topic {
	return &topic{ring: ring{floor: floor}, all: map[*Watch]struct{}{}, byScope: map[string]map[*Watch]struct{}{}}
}

// normalize maps the last revision of the previous run to the first of this one: nothing happened between them.
func (h *hub) normalize(r Revision) Revision {
	if r == h.loaded {
		return h.start
	}
	return r
}

func (h *hub) topic(st *state, gr schema.GroupResource) *topic {
	if i, ok := st.ids[gr]; ok {
		return h.topics[i]
	}
	return nil
}

// publish makes the events visible: state, rings and watches in one step.
func (s *Store) publish(events []*Event, last Revision) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	old := s.state.Load()
	next := &state{revision: last, ids: old.ids, trees: slices.Clone(old.trees)}
	fresh := map[int]bool{}
	for _, ev := range events {
		i := h.number(next, old, ev.Entry.Key.Resource)
		if !fresh[i] {
			next.trees[i] = next.trees[i].Clone()
			fresh[i] = true
		}
		if ev.Type == Deleted {
			next.trees[i].Delete(ev.Entry)
		} else {
			next.trees[i].ReplaceOrInsert(ev.Entry)
		}
		t := h.topics[i]
		t.ring.append(ev)
		h.bytes += ev.cost()
		if t.ring.len() > h.maxEvents {
			h.bytes -= t.ring.drop()
		}
	}
	for h.bytes > h.maxBytes {
		h.bytes -= h.oldest().drop()
	}
	// Readers first: who has seen an event and then reads, lock-free, must not see the past.
	s.state.Store(next)
	for _, ev := range events {
		h.topics[next.ids[ev.Entry.Key.Resource]].deliver(ev)
	}
	for w := range h.waiters {
		if w.want <= last {
			close(w.done)
			delete(h.waiters, w)
		}
	}
}

// number returns the index of a resource in next, adding it if it is new.
func (h *hub) number(next, old *state, gr schema.GroupResource) int {
	if i, ok := next.ids[gr]; ok {
		return i
	}
	if len(next.ids) == len(old.ids) {
		next.ids = maps.Clone(old.ids)
	}
	i := len(next.trees)
	next.ids[gr] = i
	next.trees = append(next.trees, newTree())
	t := newTopic(h.start)
	h.topics = append(h.topics, t)
	for w := range h.early {
		if w.gr == gr {
			delete(h.early, w)
			t.add(w)
		}
	}
	return i
}

// oldest is the ring with the oldest event.
func (h *hub) oldest() *ring {
	var best *ring
	for _, t := range h.topics {
		r := &t.ring
		if r.len() > 0 && (best == nil || r.events[r.head].Revision < best.events[best.head].Revision) {
			best = r
		}
	}
	return best
}

func (t *topic) deliver(ev *Event) {
	for w := range t.all {
		w.put(ev)
	}
	if len(t.byScope) == 0 {
		return
	}
	k := ev.Entry.Key
	for w := range t.byScope[ev.Entry.path] {
		w.put(ev)
	}
	if k.Namespace != "" {
		for w := range t.byScope[k.Namespace+"/"] {
			w.put(ev)
		}
	}
}

func (t *topic) add(w *Watch) {
	if w.scope == "" {
		t.all[w] = struct{}{}
		return
	}
	set := t.byScope[w.scope]
	if set == nil {
		set = map[*Watch]struct{}{}
		t.byScope[w.scope] = set
	}
	set[w] = struct{}{}
}

func (t *topic) remove(w *Watch) {
	delete(t.all, w)
	if set := t.byScope[w.scope]; set != nil {
		delete(set, w)
		if len(set) == 0 {
			delete(t.byScope, w.scope)
		}
	}
}

// WaitRevision blocks until a revision is published.
func (s *Store) WaitRevision(ctx context.Context, r Revision) error {
	h := s.hub
	h.mu.Lock()
	if s.Revision() >= h.normalize(r) {
		h.mu.Unlock()
		return nil
	}
	if h.closed {
		h.mu.Unlock()
		return ErrClosed
	}
	w := &waiter{want: r, done: make(chan struct{})}
	h.waiters[w] = struct{}{}
	h.mu.Unlock()
	select {
	case <-w.done:
		if s.Revision() < r {
			return ErrClosed
		}
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiters, w)
		return context.Cause(ctx)
	}
}

// close ends every watch and waiter.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.waiters {
		close(w.done)
		delete(h.waiters, w)
	}
	for w := range h.early {
		w.end(ErrClosed)
	}
	for _, t := range h.topics {
		for w := range t.all {
			w.end(ErrClosed)
		}
		for _, set := range t.byScope {
			for w := range set {
				w.end(ErrClosed)
			}
		}
	}
}
