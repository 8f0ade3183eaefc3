package lab

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// ErrKilled is the cause of a context whose component was killed.
var ErrKilled = errors.New("component killed by the lab")

// Point names a place between two externally visible effects, where a component
// can be killed. Points are declared as package variables beside the code that
// reaches them, and listed by that package's Points function.
type Point struct {
	// Component is the kind of component that reaches it: kubelet, driver, cloud, controllers.
	Component string
	// Name says where, in words: "after NodeStage, before the mount is recorded".
	Name string
}

// String is how rules and "drydock lab points" write a point.
func (p Point) String() string { return p.Component + ": " + p.Name }

// Component is one life of a part that can be killed: its memory and goroutines.
// Files, mounts and API objects outlive it. A restart makes a new Component.
//
//	running --Stop--> stopped   (asked to end; goroutines finish by themselves)
//	        --Kill--> dead      (the context is cancelled with ErrKilled; a
//	                             goroutine that reaches a Point ends there)
type Component struct {
	lab    *Lab
	kind   string
	node   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// Component starts a life of a part. Kind is "kubelet", "driver", "controllers",
// "cloud", "provisioner", "attacher"; node is empty for parts that no node owns.
func (l *Lab) Component(parent context.Context, kind, node string) *Component {
	ctx, cancel := context.WithCancelCause(parent)
	c := &Component{lab: l, kind: kind, node: node, ctx: ctx, cancel: cancel}
	c.ctx = context.WithValue(ctx, componentKey{}, c)
	l.Faults.lives(c)
	return c
}

type componentKey struct{}

// ComponentFrom returns the component that ctx belongs to, or nil.
func ComponentFrom(ctx context.Context) *Component {
	c, _ := ctx.Value(componentKey{}).(*Component)
	return c
}

// Name is the kind, with its node where there is one: "kubelet/n1".
func (c *Component) Name() string {
	if c.node == "" {
		return c.kind
	}
	return c.kind + "/" + c.node
}

// Kind is the component's kind, as in Point.Component.
func (c *Component) Kind() string { return c.kind }

// Node is the node it runs on, or empty.
func (c *Component) Node() string { return c.node }

// Lab is the lab it belongs to.
func (c *Component) Lab() *Lab { return c.lab }

// Context ends when the component is stopped or killed.
func (c *Component) Context() context.Context { return c.ctx }

// Killed tells whether this life ended by Kill.
func (c *Component) Killed() bool { return errors.Is(context.Cause(c.ctx), ErrKilled) }

// Go runs f in a goroutine that Wait waits for.
func (c *Component) Go(f func()) { c.wg.Go(f) }

// Kill ends this life at once. It does not wait: the caller may be one of its goroutines.
func (c *Component) Kill() { c.cancel(ErrKilled) }

// Stop asks the component to end and waits until its goroutines have ended.
func (c *Component) Stop() {
	c.cancel(context.Canceled)
	c.wg.Wait()
}

// Wait blocks until every goroutine started by Go has ended.
func (c *Component) Wait() { c.wg.Wait() }

// Point marks a place between two effects. It does not return if the component is
// dead or a rule kills it here: the goroutine ends by runtime.Goexit, so that no
// error path runs that a killed process could not have run. Deferred calls still
// run; they must not have effects outside memory.
//
// Delay and pause rules apply as well. Volume may be empty. A nil Component does nothing.
func (c *Component) Point(p Point, volume string) {
	if c == nil {
		return
	}
	if c.Killed() {
		runtime.Goexit()
	}
	err := c.lab.Faults.at(c.ctx, Call{Component: c.kind, Node: c.node, Kind: KindPoint, Op: p.String(), Volume: volume}, c)
	if err != nil && c.Killed() {
		runtime.Goexit()
	}
}
