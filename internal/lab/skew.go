package lab

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Skewed is a machine's clock that is wrong by an amount that can be changed at any time.
// Timers run as on a clock that is right: setting a machine's clock moves none.
type Skewed struct {
	clock.WithTickerAndDelayedExecution
	by atomic.Int64
}

// Skew returns a clock that shows what c shows until it is set to be wrong.
func Skew(c clock.WithTickerAndDelayedExecution) *Skewed {
	return &Skewed{WithTickerAndDelayedExecution: c}
}

// Set makes the clock wrong by d, which may be negative; zero makes it right.
func (s *Skewed) Set(d time.Duration) { s.by.Store(int64(d)) }

// By tells how wrong the clock is.
func (s *Skewed) By() time.Duration { return time.Duration(s.by.Load()) }

// Now is what the wrong clock shows.
func (s *Skewed) Now() time.Time { return s.WithTickerAndDelayedExecution.Now().Add(s.By()) }

// Since is Now minus t.
func (s *Skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
