package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Handle is a rule in force.
type Handle struct {
	ID   string
	Rule Rule

	f        *Faults
	tally    Tally         // guarded by f.mu
	kills    []string      // guarded by f.mu: components killed since TakeKilled, each kill
	gone     bool          // guarded by f.mu
	released chan struct{} // closed by Release and Remove
	removed  chan struct{} // closed by Remove
}

// Tally is what a rule has done so far.
type Tally struct {
	Seen  int // calls that match, Skip's included
	Fired int
	Held  int // calls that it holds at this moment
	// First and Last are when it fired, by the lab's clock; zero before that.
	First, Last time.Time
	// Call is the one that it fired at last.
	Call Call
	// Killed are the components that it killed, each once.
	Killed []string
}

// Tally tells what the rule has done.
func (h *Handle) Tally() Tally {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	t := h.tally
	t.Killed = slices.Clone(t.Killed)
	return t
}

// TakeKilled returns the components that the rule has killed since it was asked last: the
// same one twice if it was killed twice.
func (h *Handle) TakeKilled() []string {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	out := h.kills
	h.kills = nil
	return out
}

// Fired tells how often the rule has fired.
func (h *Handle) Fired() int { return h.Tally().Fired }

// Gone tells whether the rule was removed.
func (h *Handle) Gone() bool {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	return h.gone
}

// fires counts a call that the rule is about and tells whether it is hit. The caller holds f.mu.
func (h *Handle) fires(c Call) bool {
	r := &h.Rule
	if r.Times > 0 && h.tally.Fired >= r.Times {
		return false
	}
	h.tally.Seen++
	if h.tally.Seen <= r.Skip || !r.drawn(h.tally.Seen) {
		return false
	}
	h.count(c)
	return true
}

// count notes that the rule fires at c. The caller holds f.mu.
func (h *Handle) count(c Call) {
	now := h.f.clock.Now()
	if h.tally.Last.IsZero() {
		h.tally.First = now
	}
	h.tally.Last, h.tally.Call = now, c
	h.tally.Fired++
	h.f.changed.Broadcast()
	h.f.tell()
}

// drawn tells whether the nth call is among the percent that the rule hits.
func (r *Rule) drawn(n int) bool {
	if r.Percent == 0 {
		return true
	}
	return rand.New(rand.NewPCG(uint64(r.Seed), uint64(n))).IntN(100) < r.Percent
}

// hold counts a call that waits, until the function that it returns is called.
func (h *Handle) hold() func() {
	add := func(n int) {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		h.tally.Held += n
		h.f.tell()
	}
	add(1)
	return func() { add(-1) }
}

func (h *Handle) killed(component string) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if !slices.Contains(h.tally.Killed, component) {
		h.tally.Killed = append(h.tally.Killed, component)
	}
	h.kills = append(h.kills, component)
	h.f.tell()
}

// Release lets go every call that the rule holds, now and later: a paused call
// goes on, a watch that lags catches up, a hanging call still waits for its caller.
func (h *Handle) Release() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.release()
	h.f.tell()
}

func (h *Handle) release() {
	select {
	case <-h.released:
	default:
		close(h.released)
	}
}

// Remove takes the rule out of force and releases what it holds. Calls that hang break off as if
// their connection did; what hangs in the kernel goes on.
func (h *Handle) Remove() {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.gone {
		return
	}
	h.gone = true
	close(h.removed)
	h.release()
	h.f.rules = slices.DeleteFunc(h.f.rules, func(o *Handle) bool { return o == h })
	if h.Rule.Action == Cut {
		h.f.strain()
	}
	h.f.changed.Broadcast()
	h.f.tell()
}

// WaitFired blocks until the rule has fired n times in all.
func (h *Handle) WaitFired(ctx context.Context, n int) error {
	stop := context.AfterFunc(ctx, func() {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		h.f.changed.Broadcast()
	})
	defer stop()
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	for h.tally.Fired < n {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for rule %s to fire %d times, fired %d: %w", h.ID, n, h.tally.Fired, ctx.Err())
		}
		h.f.changed.Wait()
	}
	return nil
}

// Subscribe tells of every change of the rules and of what they have done. Several changes
// may come as one word. Stop ends it.
func (f *Faults) Subscribe() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subs[c] = struct{}{}
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subs, c)
	}
}

// tell wakes the subscribers. The caller holds mu.
func (f *Faults) tell() {
	for c := range f.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
