// Package lab is the tap on every arrow of a cluster: time, faults, kill points
// and the record of what happened.
//
// Promises. A Lab whose rules are empty changes nothing but the recording: calls
// keep their order, their errors and their deadlines. Every rule counts how often
// it fired. Nothing here knows what a volume, a pod or a driver is beyond their
// names.
//
// Ownership. One Lab belongs to one cluster; two clusters in one process share
// nothing. A [Component] owns the goroutines it starts and waits for them.
package lab

import (
	"k8s.io/utils/clock"
)

// Lab holds the tap of one cluster. All fields are set by New and never change.
type Lab struct {
	Clock    clock.WithTickerAndDelayedExecution
	Faults   *Faults
	Timeline *Timeline
}

// Options of New. The zero value is ready: real time that can be advanced.
type Options struct {
	// Clock replaces the lab's own clock, for tests that own time.
	Clock clock.WithTickerAndDelayedExecution
	// Spans bounds the record; zero means DefaultSpans.
	Spans int
}

// New returns a Lab without rules.
func New(o Options) *Lab {
	c := o.Clock
	if c == nil {
		c = NewClock()
	}
	return &Lab{Clock: c, Faults: newFaults(c), Timeline: newTimeline(c, o.Spans)}
}
