// Package labobjects acts on the objects of the laboratory: Faults become rules of the
// tap, NodeFaults are done to nodes, the Clock moves the cluster's time.
//
// Promises. What an object says is so while it exists, and its status says how far it is.
// [Begin] brings about what the stored objects say before it returns, so that nothing of
// the cluster runs before its faults are in force. An object that is deleted is kept by its
// finalizer until what it broke is whole. Nothing is asked twice of the cluster that is so
// already: every pass compares what is wanted with what was brought about.
//
// The package speaks to the API through a client, as anybody. It is no part of the boxes
// and cannot be hit by a fault: the API serves this group above the rules.
package labobjects

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// House is the cluster as the objects act on it.
type House interface {
	// Nodes lists the nodes' names.
	Nodes() []string
	// Become brings a node to a state and returns when it is so. It may be called before the node runs.
	Become(ctx context.Context, node string, want State) error
	// RestartKubelet and Reboot return when it is done.
	RestartKubelet(ctx context.Context, node string) error
	Reboot(ctx context.Context, node string) error
	// Start brings up a component that a rule has killed, unless its node is to be without it.
	Start(component string) error
	// Advance moves the clock forward, for good. Offset is how far it was moved in all.
	Advance(d time.Duration) error
	Offset() time.Duration
}

// Config of a Controller.
type Config struct {
	Client  *v1alpha1.Client
	Kube    kubernetes.Interface // for events
	Dynamic dynamic.Interface    // for the definitions
	Lab     *lab.Lab
	House   House
	Points  []lab.Point // the kill points that there are
	Log     zerolog.Logger
}

// lull is how long reports of what rules do are gathered into one status.
const lull = 50 * time.Millisecond

// retry is after how long something that failed is tried again.
const retry = time.Second

// Controller acts on the objects. One goroutine, in Begin or in Run, owns all of it but done.
type Controller struct {
	Config
	faults map[types.UID]*fault
	nodes  map[string]*node
	clock  clockState
	events events
	again  bool // something failed: look again soon
	wake   chan struct{}
	doing  sync.WaitGroup // work on nodes and components

	mu   sync.Mutex
	done []outcome // guarded by mu: what work on nodes has come to
}

// Begin installs the definitions and brings about what stored objects say.
func Begin(ctx context.Context, cfg Config) (*Controller, error) {
	c := &Controller{Config: cfg, faults: map[types.UID]*fault{}, nodes: map[string]*node{}, wake: make(chan struct{}, 1)}
	c.events = events{client: cfg.Kube, clock: cfg.Lab.Clock, last: map[string]*seenEvent{}}
	first, err := v1alpha1.Install(ctx, cfg.Dynamic)
	if err != nil {
		return nil, err
	}
	if first {
		c.clockPass(ctx, nil)
		return c, nil
	}
	var s stored
	faults, err := c.Client.Faults.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the faults: %w", err)
	}
	for i := range faults.Items {
		s.faults = append(s.faults, &faults.Items[i])
	}
	nodes, err := c.Client.NodeFaults.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the node faults: %w", err)
	}
	for i := range nodes.Items {
		s.nodes = append(s.nodes, &nodes.Items[i])
	}
	if len(s.faults)+len(s.nodes) == 0 {
		return c, nil
	}
	for _, f := range s.faults {
		c.fault(ctx, f)
	}
	c.nodePass(ctx, s.nodes, passOptions{lasting: true})
	c.doing.Wait()
	return c, nil
}

// stored is what there is at one moment, none of it to be changed.
type stored struct {
	faults []*v1alpha1.Fault
	nodes  []*v1alpha1.NodeFault
	clocks []*v1alpha1.Clock
}

// Run acts on the objects until ctx ends, and returns when nothing of it runs any more.
func (c *Controller) Run(ctx context.Context) {
	defer c.doing.Wait()
	defer c.forget()
	look := c.watch(ctx)
	changed, stop := c.Lab.Faults.Subscribe()
	defer stop()
	reports := changed
	pause, later := time.NewTimer(0), time.NewTimer(0)
	defer pause.Stop()
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-later.C:
		case <-pause.C:
			reports = changed
			continue
		case <-reports:
			reports = nil
			pause.Reset(lull)
		}
		s, ok := look()
		if !ok {
			continue // not all of it is known yet
		}
		c.again = false
		c.pass(ctx, s)
		if c.again && ctx.Err() == nil {
			later.Reset(retry)
		}
	}
}

func (c *Controller) pass(ctx context.Context, s stored) {
	kept := map[types.UID]bool{}
	for _, f := range s.faults {
		kept[f.UID] = true
		c.fault(ctx, f)
	}
	for uid, f := range c.faults {
		if !kept[uid] {
			c.heal(f)
			delete(c.faults, uid)
		}
	}
	c.nodePass(ctx, s.nodes, passOptions{lasting: true, once: true})
	c.clockPass(ctx, s.clocks)
}

// nudge lets the controller look again.
func (c *Controller) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// failed notes an error of the API's that the next look may not meet.
func (c *Controller) failed(err error, what, name string) {
	c.again = true
	c.Log.Debug().Err(err).Str("object", name).Msg(what)
}

// Names lists the faults and node faults that are in force, as "fault/NAME".
func Names(ctx context.Context, client *v1alpha1.Client) ([]string, error) {
	var out []string
	faults, err := client.Faults.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, f := range faults.Items {
		if f.Status.Phase != v1alpha1.Refused {
			out = append(out, "fault/"+f.Name)
		}
	}
	nodes, err := client.NodeFaults.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, f := range nodes.Items {
		if f.Status.Phase != v1alpha1.Refused && f.Status.Phase != v1alpha1.Completed {
			out = append(out, "nodefault/"+f.Name)
		}
	}
	return out, nil
}
