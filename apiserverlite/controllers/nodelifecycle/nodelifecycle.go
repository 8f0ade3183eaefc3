// Package nodelifecycle notices that a kubelet has gone silent: 40 seconds after the
// last sign of life its node's conditions become Unknown. It keeps the taints that say
// what the conditions say, so that nothing new is scheduled to such a node:
//
//	Ready=False        node.kubernetes.io/not-ready       NoSchedule, NoExecute
//	Ready=Unknown      node.kubernetes.io/unreachable     NoSchedule, NoExecute
//	spec.unschedulable node.kubernetes.io/unschedulable   NoSchedule
//
// A sign of life is a renewed lease or a node status with a new heartbeat; its age is
// counted from when it was seen here, so that clocks need not agree.
package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "nodelifecycle"

const (
	gracePeriod = 40 * time.Second
	// secondChance is the real time that a kubelet gets when the lab's clock was advanced
	// past the grace period, however far: its own timers have fired only now.
	secondChance = time.Second
)

var pointUnknown = lab.Point{Component: "controllers", Name: "after a node's conditions are Unknown, before its taints"}

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointUnknown} }

// Controller watches over nodes. Make it with New.
type Controller struct {
	env    control.Env
	events record.EventRecorder
	nodes  corelisters.NodeLister
	queue  control.Queue[string]

	mu   sync.Mutex
	life map[string]*life // guarded by mu
}

// life is the last sign of life of a node.
type life struct {
	sign string    // the lease's renewal or the status' heartbeat; changes are signs of life
	seen time.Time // by the lab's clock
	real time.Time // by the machine's
	// chance is when, by the machine's clock, the silence was found to be an advance of the lab's.
	chance time.Time
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	nodes := env.Informers.Core().V1().Nodes()
	c := &Controller{
		env: env, events: env.Recorder("node-controller"), nodes: nodes.Lister(),
		queue: control.NewQueue[string](env), life: map[string]*life{},
	}
	control.Register(nodes.Informer(), control.On[*corev1.Node]{
		Add:    c.nodeSeen,
		Update: func(_, n *corev1.Node) { c.nodeSeen(n) },
		Delete: func(n *corev1.Node) {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.life, n.Name)
			delete(c.life, leaseKey+n.Name)
		},
	})
	control.Register(env.Informers.Coordination().V1().Leases().Informer(), control.On[*coordinationv1.Lease]{
		Add:    c.leaseSeen,
		Update: func(_, l *coordinationv1.Lease) { c.leaseSeen(l) },
	})
	return c
}

// Run watches until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, 1, c.queue, c.sync) }

// leaseKey begins the keys of leases in life.
const leaseKey = "lease/"

func (c *Controller) nodeSeen(n *corev1.Node) {
	sign := "node"
	if r := condition(n, corev1.NodeReady); r != nil && r.Status != corev1.ConditionUnknown {
		sign = r.LastHeartbeatTime.String()
	}
	c.sign(n.Name, sign)
	c.queue.Add(n.Name)
}

func (c *Controller) leaseSeen(l *coordinationv1.Lease) {
	if l.Namespace != corev1.NamespaceNodeLease || l.Spec.RenewTime == nil {
		return
	}
	if c.sign(leaseKey+l.Name, l.Spec.RenewTime.String()) {
		c.queue.AddAfter(l.Name, gracePeriod)
	}
}

// sign records a sign of life and tells whether it is news.
func (c *Controller) sign(key, sign string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.life[key]; have != nil && have.sign == sign {
		return false
	}
	c.life[key] = &life{sign: sign, seen: c.env.Clock().Now(), real: time.Now()}
	return true
}

// silent is for how long the node has given no sign, and whether only the lab's clock
// says so and the node is to have its second chance.
func (c *Controller) silent(node string) (since time.Duration, jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last *life
	for _, key := range []string{node, leaseKey + node} {
		if l := c.life[key]; l != nil && (last == nil || l.seen.After(last.seen)) {
			last = l
		}
	}
	if last == nil {
		return 0, false
	}
	since = c.env.Clock().Since(last.seen)
	if since < gracePeriod || since-time.Since(last.real) <= gracePeriod/2 {
		return since, false
	}
	if last.chance.IsZero() {
		last.chance = time.Now()
	}
	return since, time.Since(last.chance) < secondChance
}

func (c *Controller) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	since, jumped := c.silent(name)
	switch {
	case jumped:
		c.queue.AddAfter(name, secondChance)
	case since >= gracePeriod:
		if node, err = c.giveUp(ctx, node); err != nil {
			return err
		}
	default:
		c.queue.AddAfter(name, gracePeriod-since)
	}
	return c.taint(ctx, node)
}

// giveUp sets what the kubelet no longer speaks about to Unknown.
func (c *Controller) giveUp(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	now := metav1.NewTime(c.env.Clock().Now())
	clone := node.DeepCopy()
	changed := false
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		have := condition(clone, t)
		switch {
		case have == nil:
			changed = true
			clone.Status.Conditions = append(clone.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: now,
			})
		case have.Status != corev1.ConditionUnknown:
			changed = true
			have.Status, have.Reason, have.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			have.LastTransitionTime = now
		}
	}
	if !changed {
		return node, nil
	}
	stored, err := c.env.Client.CoreV1().Nodes().UpdateStatus(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("mark node %s as unknown: %w", node.Name, err)
	}
	if control.IsReady(node) {
		c.events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
	}
	c.env.Point(pointUnknown, "")
	return stored, nil
}

// managed are the taints that are set and taken off here.
var managed = []corev1.Taint{
	{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
}

// taint makes the node's taints say what its conditions say.
func (c *Controller) taint(ctx context.Context, node *corev1.Node) error {
	ready := condition(node, corev1.NodeReady)
	wanted := func(t corev1.Taint) bool {
		switch t.Key {
		case corev1.TaintNodeUnschedulable:
			return node.Spec.Unschedulable
		case corev1.TaintNodeUnreachable:
			return ready != nil && ready.Status == corev1.ConditionUnknown
		default:
			return ready != nil && ready.Status == corev1.ConditionFalse
		}
	}
	same := func(a corev1.Taint) func(corev1.Taint) bool {
		return func(b corev1.Taint) bool { return a.Key == b.Key && a.Effect == b.Effect }
	}
	taints := []corev1.Taint{}
	for _, t := range node.Spec.Taints {
		if !slices.ContainsFunc(managed, same(t)) || wanted(t) {
			taints = append(taints, t)
		}
	}
	changed := len(taints) != len(node.Spec.Taints)
	now := metav1.NewTime(c.env.Clock().Now())
	for _, t := range managed {
		if wanted(t) && !slices.ContainsFunc(taints, same(t)) {
			t.TimeAdded = &now
			taints = append(taints, t)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	if _, err := c.env.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("taint node %s: %w", node.Name, err)
	}
	return nil
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
