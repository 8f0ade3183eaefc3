package lab

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Clock is real time plus an offset that Advance grows. A timer that was due
// within the advanced span fires at once, so "drydock clock advance 6m" makes
// everything that waits behave as if six minutes had passed.
//
// The clock never goes back. Tickers deliver at most one tick for one Advance,
// as time.Ticker does for a slow reader.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration       // guarded by mu
	timers map[*timer]struct{} // guarded by mu: those that have not fired
}

var _ clock.WithTickerAndDelayedExecution = (*Clock)(nil)

// NewClock returns a clock that shows real time.
func NewClock() *Clock { return NewClockAt(0) }

// NewClockAt returns a clock that was advanced so far already.
func NewClockAt(offset time.Duration) *Clock {
	return &Clock{offset: max(0, offset), timers: map[*timer]struct{}{}}
}

// Advance moves the clock forward by d and fires what became due.
func (c *Clock) Advance(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	c.offset += d
	now := time.Now().Add(c.offset)
	for t := range c.timers {
		t.real.Reset(max(0, t.due.Sub(now)))
	}
	c.mu.Unlock()
}

// Offset tells how far the clock was advanced in all.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// Now returns real time plus what was advanced.
func (c *Clock) Now() time.Time { return time.Now().Add(c.Offset()) }

// Since is Now minus t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Sleep blocks for d of this clock's time.
func (c *Clock) Sleep(d time.Duration) { <-c.After(d) }

// After delivers the time once d has passed.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// NewTimer returns a timer of this clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	ch := make(chan time.Time, 1)
	return c.start(d, ch, func() {
		select {
		case ch <- c.Now():
		default:
		}
	})
}

// AfterFunc runs f in its own goroutine once d has passed.
func (c *Clock) AfterFunc(d time.Duration, f func()) clock.Timer { return c.start(d, nil, f) }

// Tick is NewTicker without a way to stop it.
func (c *Clock) Tick(d time.Duration) <-chan time.Time { return c.NewTicker(d).C() }

// NewTicker returns a ticker of this clock.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker {
	if d <= 0 {
		panic("lab: non-positive ticker interval")
	}
	k := &ticker{ch: make(chan time.Time, 1)}
	k.mu.Lock() // the first tick waits until k.t is set
	defer k.mu.Unlock()
	k.t = c.start(d, nil, func() {
		select {
		case k.ch <- c.Now():
		default:
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.stopped {
			k.t.Reset(d)
		}
	})
	return k
}

func (c *Clock) start(d time.Duration, ch chan time.Time, fire func()) *timer {
	t := &timer{clock: c, ch: ch, fire: fire}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.due = time.Now().Add(c.offset + d)
	c.timers[t] = struct{}{}
	t.real = time.AfterFunc(d, t.expire)
	return t
}

// expire is called when the real timer fires. A Reset or Stop that came between counts.
func (t *timer) expire() {
	c := t.clock
	c.mu.Lock()
	_, armed := c.timers[t]
	due := armed && !t.due.After(time.Now().Add(c.offset))
	if due {
		delete(c.timers, t)
	}
	c.mu.Unlock()
	if due {
		t.fire()
	}
}

type timer struct {
	clock *Clock
	fire  func()
	ch    chan time.Time
	real  *time.Timer // guarded by clock.mu
	due   time.Time   // guarded by clock.mu
}

func (t *timer) C() <-chan time.Time { return t.ch }

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, armed := t.clock.timers[t]
	delete(t.clock.timers, t)
	t.real.Stop()
	t.drain()
	return armed
}

func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, armed := t.clock.timers[t]
	t.drain()
	t.due = time.Now().Add(t.clock.offset + d)
	t.clock.timers[t] = struct{}{}
	t.real.Reset(d)
	return armed
}

// drain gives Stop and Reset the meaning they have had in Go since 1.23: no stale value is left to be read.
func (t *timer) drain() {
	select {
	case <-t.ch:
	default:
	}
}

type ticker struct {
	ch      chan time.Time
	mu      sync.Mutex
	t       *timer // guarded by mu
	stopped bool   // guarded by mu
}

func (k *ticker) C() <-chan time.Time { return k.ch }

func (k *ticker) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.t.Stop()
}
