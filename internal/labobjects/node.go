package labobjects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// State is what a node is to be, all of it lasting. The zero state is a node that is whole.
type State struct {
	Off     bool
	Kubelet Kubelet
	Cut     bool          // from the API server
	Delay   time.Duration // of each request to the API server
	Skew    time.Duration // by which the clock is wrong
}

// Kubelet is whether a kubelet runs.
type Kubelet string

// The states of a kubelet. The last two differ in how it ends.
const (
	Running Kubelet = ""
	Stopped Kubelet = "stopped"
	Killed  Kubelet = "killed"
)

// node is what was brought about on one node. While busy, somebody works on it.
//
//	have == want --objects change--> have != want --work--> busy --outcome--> have == want
type node struct {
	have State
	busy bool
	err  error                       // of the last work, nil if it succeeded
	once map[types.UID]*singleAction // of this process
}

// singleAction is something that is done once.
type singleAction struct {
	over bool
	err  error
}

// outcome is what work on a node has come to.
type outcome struct {
	node string
	have State
	once types.UID // empty if it was about a lasting state
	err  error
}

// passOptions say which NodeFaults are looked at: those that last, those that are done once.
type passOptions struct{ lasting, once bool }

// plan is what the objects want of a node.
type plan struct {
	want State
	// by is the object that decides each part of the state; others agree with it or are in conflict.
	off, kubelet, cut, delay, skew string
	conflicts                      map[types.UID]string
	healing                        []*v1alpha1.NodeFault
}

// nodePass brings about what the NodeFaults say.
func (c *Controller) nodePass(ctx context.Context, list []*v1alpha1.NodeFault, o passOptions) {
	c.collect()
	slices.SortFunc(list, func(a, b *v1alpha1.NodeFault) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	plans := map[string]*plan{}
	for _, name := range c.House.Nodes() {
		plans[name] = &plan{conflicts: map[types.UID]string{}}
	}
	for _, f := range list {
		if p := plans[f.Spec.Node]; p != nil && f.Spec.Check() == nil && !f.Spec.Action.Once() {
			p.add(f)
		}
	}
	if o.lasting {
		for name, p := range plans {
			c.strive(ctx, name, p.want)
		}
	}
	kept := map[types.UID]bool{}
	for _, f := range list {
		kept[f.UID] = true
		p := plans[f.Spec.Node]
		switch {
		case !f.Spec.Action.Once():
			c.lasting(ctx, f, p)
		case o.once:
			c.single(ctx, f, p)
		}
	}
	for _, n := range c.nodes {
		for uid := range n.once {
			if !kept[uid] {
				delete(n.once, uid)
			}
		}
	}
}

// rank lets one that is in force stay so against another of the same second.
func rank(f *v1alpha1.NodeFault) int {
	if v1alpha1.Holds(f.Status.Conditions, v1alpha1.InForce) {
		return 0
	}
	return 1
}

// add takes one more object into the plan. The older ones are in it already.
func (p *plan) add(f *v1alpha1.NodeFault) {
	if f.DeletionTimestamp != nil {
		p.healing = append(p.healing, f)
		return
	}
	s := f.Spec
	switch s.Action {
	case v1alpha1.PoweredOff:
		p.want.Off, p.off = true, cmp.Or(p.off, f.Name)
	case v1alpha1.Partitioned:
		p.want.Cut, p.cut = true, cmp.Or(p.cut, f.Name)
	case v1alpha1.KubeletStopped, v1alpha1.KubeletKilled:
		if p.kubelet == "" {
			p.kubelet, p.want.Kubelet = f.Name, Stopped
			if s.Action == v1alpha1.KubeletKilled {
				p.want.Kubelet = Killed
			}
		}
	case v1alpha1.SlowAPI:
		d := v1alpha1.DefaultDelay
		if s.Delay != nil {
			d = s.Delay.Duration
		}
		if p.delay == "" {
			p.delay, p.want.Delay = f.Name, d
		} else if d != p.want.Delay {
			p.conflicts[f.UID] = fmt.Sprintf("NodeFault %s, which is older, makes the API slow by %s", p.delay, p.want.Delay)
		}
	case v1alpha1.ClockSkewed:
		if p.skew == "" {
			p.skew, p.want.Skew = f.Name, s.Skew.Duration
		} else if s.Skew.Duration != p.want.Skew {
			p.conflicts[f.UID] = fmt.Sprintf("NodeFault %s, which is older, makes the clock wrong by %s", p.skew, p.want.Skew)
		}
	}
}

// at returns what is known of a node.
func (c *Controller) at(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{once: map[types.UID]*singleAction{}}
		c.nodes[name] = n
	}
	return n
}

// strive sets to work on a node that is not what it is to be.
func (c *Controller) strive(ctx context.Context, name string, want State) {
	n := c.at(name)
	if n.busy || n.have == want && n.err == nil {
		return
	}
	n.busy = true
	have := n.have
	c.doing.Go(func() {
		err := c.House.Become(ctx, name, want)
		if err == nil {
			have = want
		}
		c.report(outcome{node: name, have: have, err: err})
	})
}

// report is called by work that is over.
func (c *Controller) report(o outcome) {
	c.mu.Lock()
	c.done = append(c.done, o)
	c.mu.Unlock()
	c.nudge()
}

// collect takes in what work has come to.
func (c *Controller) collect() {
	c.mu.Lock()
	done := c.done
	c.done = nil
	c.mu.Unlock()
	for _, o := range done {
		n := c.at(o.node)
		n.busy = false
		if o.once != "" {
			if a := n.once[o.once]; a != nil {
				a.over, a.err = true, o.err
			}
			continue
		}
		n.have, n.err = o.have, o.err
		if o.err != nil {
			c.again = true
			c.Log.Warn().Err(o.err).Str("node", o.node).Msg("bring about a node fault")
		}
	}
}

// covers tells whether what was brought about has this object's part of it.
func (s State) covers(f v1alpha1.NodeFaultSpec) bool {
	switch f.Action {
	case v1alpha1.PoweredOff:
		return s.Off
	case v1alpha1.Partitioned:
		return s.Cut
	case v1alpha1.KubeletStopped, v1alpha1.KubeletKilled:
		return s.Kubelet != Running
	case v1alpha1.SlowAPI:
		return s.Delay == v1alpha1.DefaultDelay && f.Delay == nil || f.Delay != nil && s.Delay == f.Delay.Duration
	case v1alpha1.ClockSkewed:
		return f.Skew != nil && s.Skew == f.Skew.Duration
	}
	return false
}
