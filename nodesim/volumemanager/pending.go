package volumemanager

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The pause after a failed operation, counted from its end.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 2*time.Minute + 2*time.Second
	// A pause includes its last moment; it is over so much later.
	pauseMargin = time.Millisecond
	// Two operations that fail, each of which cuts the other's pause short, take turns no faster than this, which
	// is how often the kubelet's loop comes round.
	turn = 100 * time.Millisecond
)

// key says what an operation works on. An empty pod matches every pod of the volume.
type key struct {
	volume UniqueName
	pod    types.UID
}

func (k key) matches(o key) bool {
	return k.volume == o.volume && (k.pod == "" || o.pod == "" || k.pod == o.pod)
}

type startError string

func (e startError) Error() string { return string(e) }

// Reasons for which an operation does not start; none is a failure.
const (
	errRunning      = startError("an operation for this volume is running")
	errPaused       = startError("the pause after a failed operation is not over")
	errTurn         = startError("another operation has just cut the pause of this one short")
	errPrecondition = startError("the volume is not yet in the node's status")
)

// pending holds the operations that run, and those that failed for the sake of their pause.
//
//	(absent) --start--> running --ok--> (absent)
//	                    running --error--> paused --pause over, or another operation's turn--> running
//
// An operation conflicts with every entry whose key matches its own. A running match
// wins; else the exact match governs the pause, or the first one there is.
type pending struct {
	clock clock.PassiveClock
	ended func(UniqueName, types.UID) // is told of each end: the volume, and the pod for which it was
	mu    sync.Mutex
	ops   map[UniqueName][]*operation // guarded by mu, in the order they were added
	pods  map[types.UID]int           // guarded by mu: how many operations run for a pod
	over  deadlines                   // guarded by mu: when pauses are over; also of some that were cut short
}

type operation struct {
	key     key
	pod     types.UID // for which it works, also where the key has none
	name    string
	running bool
	pause   time.Duration
	ended   time.Time
	due     time.Time // when its deadline comes; zero if it has none
	cut     time.Time // when it last cut another's pause short
	last    string    // the last error
}

func newPending(c clock.PassiveClock, ended func(UniqueName, types.UID)) *pending {
	return &pending{clock: c, ended: ended, ops: map[UniqueName][]*operation{}, pods: map[types.UID]int{}}
}

func (p *pending) match(k key) *operation {
	var hit *operation
	for _, o := range p.ops[k.volume] {
		if !o.key.matches(k) {
			continue
		}
		if o.running {
			return o
		}
		if hit == nil || o.key == k {
			hit = o
		}
	}
	return hit
}

// running tells whether an operation runs that one on k would conflict with.
func (p *pending) running(k key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.match(k)
	return o != nil && o.running
}

// blocked tells whether start would refuse.
func (p *pending) blocked(k key, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.match(k)
	return o != nil && (o.running || o.name == name && p.refuse(o))
}

// busy tells whether an operation runs for a pod.
func (p *pending) busy(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid] > 0
}

// start claims a key for an operation that works for a pod, or says why not. The caller calls end.
func (p *pending) start(k key, pod types.UID, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.match(k)
	switch {
	case o == nil:
		p.ops[k.volume] = append(p.ops[k.volume], &operation{key: k, pod: pod, name: name, running: true})
		p.pods[pod]++
		return nil
	case o.running:
		return errRunning
	case o.name == name && p.refuse(o):
		return errPaused
	case p.paused(o):
		if since := p.clock.Since(o.cut); since >= 0 && since < turn {
			return errTurn
		}
		o.name, o.pause, o.cut = name, 0, p.clock.Now()
	}
	o.running, o.key, o.pod = true, k, pod
	p.pods[pod]++
	return nil
}

func (p *pending) paused(o *operation) bool {
	return o.pause > 0 && p.clock.Since(o.ended) <= o.pause
}

// refuse tells whether an operation of this name has to wait, and sees to it that the
// end of its pause is heard of: a clock that was set back may have told of it already.
func (p *pending) refuse(o *operation) bool {
	if !p.paused(o) {
		return false
	}
	if o.due.IsZero() {
		p.over.push(o)
	}
	return true
}

// end records the outcome of an operation.
func (p *pending) end(k key, err error) {
	p.mu.Lock()
	list, pod := p.ops[k.volume], types.UID("")
	for i, o := range list {
		if o.key != k || !o.running {
			continue
		}
		pod = o.pod
		if p.pods[pod]--; p.pods[pod] == 0 {
			delete(p.pods, pod)
		}
		if err == nil {
			p.ops[k.volume] = append(list[:i:i], list[i+1:]...)
			if len(p.ops[k.volume]) == 0 {
				delete(p.ops, k.volume)
			}
			break
		}
		o.running, o.ended, o.last = false, p.clock.Now(), err.Error()
		if o.pause = min(o.pause*2, maxPause); o.pause == 0 {
			o.pause = firstPause
		}
		p.over.push(o)
		break
	}
	p.mu.Unlock()
	p.ended(k.volume, pod)
}

// forgive lets an operation that failed, or did not apply, begin again at once.
func (p *pending) forgive(k key, name string) {
	p.mu.Lock()
	before := len(p.ops[k.volume])
	p.ops[k.volume] = slices.DeleteFunc(p.ops[k.volume], func(o *operation) bool { return !o.running && o.key == k && o.name == name })
	forgiven := len(p.ops[k.volume]) < before
	if len(p.ops[k.volume]) == 0 {
		delete(p.ops, k.volume)
	}
	p.mu.Unlock()
	if forgiven {
		p.ended(k.volume, "")
	}
}

// expired returns the volumes of which a pause is over, each once, and how long it takes
// until the next one is; zero if there is none.
func (p *pending) expired() (names []UniqueName, next time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for len(p.over) > 0 && !now.Before(p.over[0].at) {
		names = append(names, p.over.pop().key.volume)
	}
	if len(p.over) > 0 {
		next = p.over[0].at.Sub(now)
	}
	return names, next
}

// describe lists the operations of a volume, for people.
func (p *pending) describe(name UniqueName) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, o := range p.ops[name] {
		if o.running && o.last != "" {
			out = append(out, fmt.Sprintf("%s is running again, the last try failed: %s", o.name, o.last))
		} else if o.running {
			out = append(out, o.name+" is running")
		} else {
			out = append(out, fmt.Sprintf("%s failed, next try after %s: %s", o.name, o.ended.Add(o.pause).Format(time.TimeOnly), o.last))
		}
	}
	return out
}
