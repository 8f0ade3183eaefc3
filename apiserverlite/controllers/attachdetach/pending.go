package attachdetach

import (
	"time"

	"k8s.io/utils/clock"
)

// opName is the kind of an operation. A failure only delays operations of its own kind.
type opName string

const (
	opAttach opName = "attach"
	opDetach opName = "detach"
)

// The backoff after a failed operation, doubling from the first to the last.
const (
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 2*time.Minute + 2*time.Second
)

// opKey says what an operation excludes: with a node another one on that volume and
// node, without one every other on the volume.
type opKey struct {
	Volume Volume
	Node   NodeName
}

// overlaps tells whether operations under two keys exclude each other.
func (k opKey) overlaps(o opKey) bool {
	return k.Volume == o.Volume && (k.Node == "" || o.Node == "" || k.Node == o.Node)
}

// operation is one that runs, or the memory of one that failed.
type operation struct {
	name    opName
	running bool
	failed  time.Time // end of the last failed run
	backoff time.Duration
}

// pending is the set of operations. Guarded by Controller.mu.
type pending struct {
	clock clock.PassiveClock
	ops   map[opKey]*operation
}

func newPending(c clock.PassiveClock) pending {
	return pending{clock: c, ops: map[opKey]*operation{}}
}

// running tells whether an operation runs that excludes one under k.
func (p *pending) running(k opKey) bool {
	for o, op := range p.ops {
		if op.running && o.overlaps(k) {
			return true
		}
	}
	return false
}

// find returns the operation that governs k's backoff: its own, otherwise one that overlaps.
func (p *pending) find(k opKey) (opKey, *operation) {
	if op := p.ops[k]; op != nil {
		return k, op
	}
	for o, op := range p.ops {
		if o.overlaps(k) {
			return o, op
		}
	}
	return opKey{}, nil
}

// wait is how long an operation of that name must not start yet because its last run failed.
func (p *pending) wait(k opKey, name opName) time.Duration {
	_, op := p.find(k)
	if op == nil || op.running || op.name != name {
		return 0
	}
	return max(0, op.backoff-p.clock.Since(op.failed))
}

// start records a run. The caller has asked running and wait.
func (p *pending) start(k opKey, name opName) {
	was, op := p.find(k)
	if op == nil {
		op = &operation{}
	} else {
		delete(p.ops, was)
	}
	if op.name != name {
		op.backoff = 0
	}
	op.name, op.running = name, true
	p.ops[k] = op
}

// end records the outcome of a run.
func (p *pending) end(k opKey, err error) {
	op := p.ops[k]
	if err == nil {
		delete(p.ops, k)
		return
	}
	op.running = false
	op.failed = p.clock.Now()
	if op.backoff == 0 {
		op.backoff = firstBackoff
	} else {
		op.backoff = min(2*op.backoff, lastBackoff)
	}
}

// forgive lets an operation of that name start at once.
func (p *pending) forgive(k opKey, name opName) {
	if o, op := p.find(k); op != nil && !op.running && op.name == name {
		delete(p.ops, o)
	}
}
