package lab

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Kind of call that a rule can match.
type Kind string

// The kinds of call.
const (
	KindCSI    Kind = "csi"    // a gRPC call through the proxy of a driver socket; Op is the method: NodeStageVolume
	KindCloud  Kind = "cloud"  // a request to the cloud API; Op is "POST /v2/volumes/{id}/actions"
	KindAPI    Kind = "api"    // a request to the Kubernetes API; Op is "create pods", "update pods/status"
	KindKernel Kind = "kernel" // a kernel or tool operation; Op is mkfs, mount, unmount, loop-attach, fsync ...
	KindPoint  Kind = "point"  // a kill point; Op is Point.String()
)

// Action is what a rule does to a call.
type Action string

// The actions.
const (
	Delay  Action = "delay"   // wait, then do the work
	Fail   Action = "fail"    // do not do the work, answer with Code
	LateOK Action = "late-ok" // do the work, answer with a timeout; CSI calls with Code, if there is one
	Lost   Action = "lost"    // do the work, drop the answer
	Hang   Action = "hang"    // do nothing and answer nothing until the caller gives up, or the rule goes
	Pause  Action = "pause"   // wait until the rule is released, then do the work
	Kill   Action = "kill"    // kill the component that reached the point, or that makes the call
	Cut    Action = "cut"     // the component has no network: no API and no cloud; what is under way breaks off
	Stale  Action = "stale"   // the component's cache lags: its watch delivers nothing until the rule is released
)

// Actions lists them.
func Actions() []Action { return []Action{Delay, Fail, LateOK, Lost, Hang, Pause, Kill, Cut, Stale} }

// Kinds lists the kinds of call.
func Kinds() []Kind { return []Kind{KindCSI, KindCloud, KindAPI, KindKernel, KindPoint} }

// Call describes one call to the rules. Empty fields are unknown.
type Call struct {
	Component string // who makes the call: kubelet, attacher, provisioner, driver, kubectl, a user agent
	Node      string
	Kind      Kind
	Op        string
	Volume    string // volume handle or PV name
	Handle    string // the handle where Volume is the PV name; a rule's Volume may be either
	Namespace string
	Name      string
}

// Rule says which calls meet which fate. Its match fields are shell patterns
// (path.Match); empty matches everything.
type Rule struct {
	Component, Node, Op, Volume, Namespace, Name string
	Kind                                         Kind

	Action Action
	// Code answers a Fail, and a LateOK of a CSI call: a gRPC code name ("Internal"), an HTTP status ("503"), an errno name ("EIO").
	Code string
	// Message is the error text; empty gives one that names the rule.
	Message string
	// Delay of the Delay action.
	Delay time.Duration
	// Skip lets that many matching calls pass first.
	Skip int
	// Times bounds how often it fires; zero is forever.
	Times int
	// Percent of the calls that it could fire at are hit; zero is all of them. Which ones
	// follows from Seed and the number of the call alone.
	Percent int
	Seed    int64

	// ID names the rule in errors and on the record; empty gives it one.
	ID string
	// Seen and Fired are what the rule had counted in an earlier process: it goes on from there.
	Seen, Fired int
}

// Error is what a rule answers in place of the work's own result. Each transport
// maps it to its own form: Fail by Code, LateOK to its timeout, Lost to silence, Hang (when
// its rule goes) to a connection that breaks.
type Error struct {
	Rule   string
	Action Action
	Code   string
	Text   string
}

func (e *Error) Error() string { return e.Text }

// AsError returns the fault in err's chain, or nil.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Faults is the set of rules in force. The first rule that matches decides.
type Faults struct {
	clock   clock.Clock
	mu      sync.Mutex
	changed *sync.Cond                 // on mu: a rule fired or went
	next    int                        // guarded by mu
	rules   []*Handle                  // guarded by mu, in the order they were added
	subs    map[chan struct{}]struct{} // guarded by mu: told of every change, each with room for one word
	lines   []*Line                    // guarded by mu
	live    map[string]*Component      // guarded by mu: the latest life of each component, by name
}

func newFaults(c clock.Clock) *Faults {
	f := &Faults{clock: c, subs: map[chan struct{}]struct{}{}, live: map[string]*Component{}}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// Add puts a rule in force. It refuses a rule it could not carry out.
func (f *Faults) Add(r Rule) (*Handle, error) {
	for _, p := range []string{r.Component, r.Node, r.Volume, r.Namespace, r.Name, r.Op} {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("add fault rule: pattern %q: %w", p, err)
		}
	}
	switch r.Action {
	case Fail, LateOK, Lost, Hang, Pause, Kill:
	case Delay:
		if r.Delay <= 0 {
			return nil, errors.New("add fault rule: a delay needs a positive duration")
		}
	case Cut, Stale:
		if r.Component == "" {
			return nil, fmt.Errorf("add fault rule: %s needs a component", r.Action)
		}
	default:
		return nil, fmt.Errorf("add fault rule: unknown action %q; known are %v", r.Action, Actions())
	}
	if r.Percent < 0 || r.Percent > 100 {
		return nil, fmt.Errorf("add fault rule: %d percent of the calls", r.Percent)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	h := &Handle{ID: r.ID, Rule: r, f: f, released: make(chan struct{}), removed: make(chan struct{}), tally: Tally{Seen: r.Seen, Fired: r.Fired}}
	if h.ID == "" {
		h.ID = fmt.Sprintf("rule-%d", f.next)
	}
	f.rules = append(f.rules, h)
	if r.Action == Cut {
		f.strain()
	}
	f.tell()
	return h, nil
}

// List returns the rules in force in their order.
func (f *Faults) List() []*Handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.rules)
}

// Clear removes every rule.
func (f *Faults) Clear() {
	for _, h := range f.List() {
		h.Remove()
	}
}

// Do runs work under the rules. Its error is work's own, the caller's context
// error, or an *Error that stands for the fault. After Lost and LateOK the work was done.
func (f *Faults) Do(ctx context.Context, c Call, work func(context.Context) error) error {
	h := f.match(c)
	if h == nil {
		return work(ctx)
	}
	switch h.Rule.Action {
	case LateOK, Lost:
		if err := work(ctx); err != nil {
			return err
		}
		return h.error(c)
	}
	if err := f.apply(ctx, h, c, nil); err != nil {
		return err
	}
	return work(ctx)
}

// at applies the rules to a point: there is no work to drop the answer of.
func (f *Faults) at(ctx context.Context, c Call, who *Component) error {
	h := f.match(c)
	if h == nil {
		return nil
	}
	return f.apply(ctx, h, c, who)
}

func (f *Faults) apply(ctx context.Context, h *Handle, c Call, who *Component) error {
	switch h.Rule.Action {
	case Delay:
		t := f.clock.NewTimer(h.Rule.Delay)
		defer t.Stop()
		select {
		case <-t.C():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case Pause:
		defer h.hold()()
		select {
		case <-h.released:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case Hang:
		defer h.hold()()
		select {
		case <-h.removed:
			if c.Kind == KindKernel || c.Kind == KindPoint {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case Kill:
		if who == nil {
			who = ComponentFrom(ctx)
		}
		if who == nil {
			who = f.caller(c)
		}
		if who == nil {
			return h.error(c)
		}
		h.killed(who.Name())
		who.Kill()
		return ErrKilled
	}
	return h.error(c)
}

// lives notes a component's latest life.
func (f *Faults) lives(c *Component) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[c.Name()] = c
}

// caller is the component of ours that makes a call, or nil.
func (f *Faults) caller(c Call) *Component {
	name := c.Component
	if c.Node != "" {
		name += "/" + c.Node
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[name]
}

func (h *Handle) error(c Call) error {
	text := h.Rule.Message
	if text == "" {
		text = fmt.Sprintf("%s: %s by fault %s", c.Op, h.Rule.Action, h.ID)
	}
	return &Error{Rule: h.ID, Action: h.Rule.Action, Code: h.Rule.Code, Text: text}
}

// match finds the first rule for c and counts it.
func (f *Faults) match(c Call) *Handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.rules {
		if h.Rule.Action != Cut && h.Rule.Action != Stale && h.Rule.concerns(c) && h.fires(c) {
			return h
		}
	}
	return nil
}

// concerns tells whether the rule is about that call.
func (r Rule) concerns(c Call) bool {
	return (r.Kind == "" || r.Kind == c.Kind) &&
		glob(r.Component, c.Component) && glob(r.Node, c.Node) && globOp(r.Op, c.Op) &&
		(glob(r.Volume, c.Volume) || c.Handle != "" && glob(r.Volume, c.Handle)) && glob(r.Namespace, c.Namespace) && glob(r.Name, c.Name)
}

func glob(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	ok, _ := path.Match(pattern, s)
	return ok || pattern == s
}

// globOp lets * cross the slashes of a URL path.
func globOp(pattern, s string) bool {
	const slash = "\x01"
	return glob(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(s, "/", slash))
}
