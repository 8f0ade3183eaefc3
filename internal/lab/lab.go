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
	"time"

	"k8s.io/utils/clock"
)

// Group is the API group of the laboratory's own objects. Requests for them are above the
// rules: whoever takes a fault away again must not be caught by it.
const Group = "lab.drydock.dev"

// Laboratory is the component that acts on those objects, Owner the one that looks after the
// cluster as a whole: status, check, account.
const (
	Laboratory = "lab"
	Owner      = "cluster"
)

// AboveRules tells whether a component's requests meet no rule: it has to be able to see what
// is broken, and to mend it.
func AboveRules(component string) bool { return component == Laboratory || component == Owner }

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
	// Offset is how far the lab's own clock was advanced before.
	Offset time.Duration
	// Spans bounds the record; zero means DefaultSpans.
	Spans int
}

// New returns a Lab without rules.
func New(o Options) *Lab {
	c := o.Clock
	if c == nil {
		c = NewClockAt(o.Offset)
	}
	return &Lab{Clock: c, Faults: newFaults(c), Timeline: newTimeline(c, o.Spans)}
}
