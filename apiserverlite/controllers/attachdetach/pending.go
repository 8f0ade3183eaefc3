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

// operation is one that runs, or the memory of one that failed.
type operation struct {
	name    opName
	running bool
	failed  time.Time // end of the last failed run
	backoff time.Duration
}

// pending is the set of operations, those with and those without a node, by volume. Guarded by Controller.mu.
type pending struct {
	clock clock.PassiveClock
	ops   map[Volume]map[NodeName]*operation
}

func newPending(c clock.PassiveClock) pending {
	return pending{clock: c, ops: map[Volume]map[NodeName]*operation{}}
}

// running tells whether an operation runs that excludes one under k.
func (p *pending) running(k opKey) bool {
	for n, op := range p.ops[k.Volume] {
		if op.running && (n == k.Node || n == "" || k.Node == "") {
			return true
		}
	}
	return false
}

// find returns the operation that governs k's backoff: its own, otherwise one that
// excludes it.
func (p *pending) find(k opKey) (opKey, *operation) {
	ops := p.ops[k.Volume]
	if op := ops[k.Node]; op != nil {
		return k, op
	}
	for n, op := range ops {
		if n == "" || k.Node == "" {
			return opKey{k.Volume, n}, op
		}
	}
	return opKey{}, nil
}

func (p *pending) put(k opKey, op *operation) {
	if p.ops[k.Volume] == nil {
		p.ops[k.Volume] = map[NodeName]*operation{}
	}
	p.ops[k.Volume][k.Node] = op
}

func (p *pending) drop(k opKey) {
	delete(p.ops[k.Volume], k.Node)
	if len(p.ops[k.Volume]) == 0 {
		delete(p.ops, k.Volume)
	}
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
		p.drop(was)
	}
	if op.name != name {
		op.backoff = 0
	}
	op.name, op.running = name, true
	p.put(k, op)
}

// end records the outcome of a run.
func (p *pending) end(k opKey, err error) {
	op := p.ops[k.Volume][k.Node]
	if err == nil {
		p.drop(k)
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
		p.drop(o)
	}
}
