package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// Operation is what can be done to a node. Each makes or deletes NodeFaults, which are the one
// truth about what is broken, and waits until it is so.
type Operation string

// The operations. Each may be repeated; what is so already stays so.
const (
	StopKubelet    Operation = "stop-kubelet"    // in order; pods' volumes stay mounted
	KillKubelet    Operation = "kill-kubelet"    // at once, as kill -9 does
	StartKubelet   Operation = "start-kubelet"   // it finds what the last one left
	RestartKubelet Operation = "restart-kubelet" // stop, then start
	PowerOff       Operation = "power-off"       // mounts and devices gone, files kept, unsynced data lost
	PowerOn        Operation = "power-on"        // a boot
	Reboot         Operation = "reboot"          // power-off, then power-on
	Partition      Operation = "partition"       // the kubelet does not reach the API server
	Slow           Operation = "slow"            // each of the kubelet's requests takes longer by a delay
	Skew           Operation = "skew"            // the node's clock is wrong
	Heal           Operation = "heal"            // ends partition, slow and skew
)

// Operations lists them.
func Operations() []Operation {
	return []Operation{StopKubelet, KillKubelet, StartKubelet, RestartKubelet, PowerOff, PowerOn, Reboot, Partition, Slow, Skew, Heal}
}

// lasting are the operations that make a NodeFault, which stays.
var lasting = map[Operation]v1alpha1.NodeAction{
	StopKubelet: v1alpha1.KubeletStopped, KillKubelet: v1alpha1.KubeletKilled, PowerOff: v1alpha1.PoweredOff,
	Partition: v1alpha1.Partitioned, Slow: v1alpha1.SlowAPI, Skew: v1alpha1.ClockSkewed,
}

var (
	errNoNode      = errors.New("no such node")
	errNoOperation = errors.New("no such operation")
	errOff         = errors.New("the node is powered off")
	errRefused     = errors.New("refused")
)

// machine finds a node.
func (c *Cluster) machine(name string) (*machine, error) {
	if m := c.machines[name]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("node %q: %w; there are %v", name, errNoNode, c.NodeNames())
}

// Operate does something to a node and returns when it is done. By is the delay of Slow, of
// which zero is a second, and the amount of Skew.
func (c *Cluster) Operate(ctx context.Context, node string, op Operation, by time.Duration) error {
	m, err := c.machine(node)
	if err != nil {
		return err
	}
	m.op.Lock()
	defer m.op.Unlock()
	if err := c.operate(ctx, m, op, by); err != nil {
		return fmt.Errorf("%s of node %s: %w", op, node, err)
	}
	c.log.Info().Str("node", node).Str("operation", string(op)).Msg("done to a node")
	return nil
}

func (c *Cluster) operate(ctx context.Context, m *machine, op Operation, by time.Duration) error {
	if action, ok := lasting[op]; ok {
		spec := v1alpha1.NodeFaultSpec{Node: m.name, Action: action}
		if op == Slow && by != 0 {
			spec.Delay = &metav1.Duration{Duration: by}
		}
		if op == Skew {
			spec.Skew = &metav1.Duration{Duration: by}
		}
		return c.inflict(ctx, spec)
	}
	switch op {
	case StartKubelet:
		if m.isOff() {
			return errOff
		}
		if err := c.relieve(ctx, m.name, v1alpha1.KubeletStopped, v1alpha1.KubeletKilled); err != nil {
			return err
		}
		return m.startKubelet() // a rule may have killed it
	case RestartKubelet:
		if m.isOff() {
			return errOff
		}
		if m.staysDown() {
			return c.operate(ctx, m, StartKubelet, 0)
		}
		return c.once(ctx, m.name, v1alpha1.RestartKubelet)
	case PowerOn:
		return c.relieve(ctx, m.name, v1alpha1.PoweredOff)
	case Reboot:
		if m.isOff() {
			return c.operate(ctx, m, PowerOn, 0)
		}
		return c.once(ctx, m.name, v1alpha1.Reboot)
	case Heal:
		return c.relieve(ctx, m.name, v1alpha1.Partitioned, v1alpha1.SlowAPI, v1alpha1.ClockSkewed)
	}
	return fmt.Errorf("%w; there are %v", errNoOperation, Operations())
}

// objectName is what an operation calls its NodeFault: n1-powered-off.
func objectName(node string, a v1alpha1.NodeAction) string {
	var b strings.Builder
	b.WriteString(node)
	low := false
	for _, r := range string(a) {
		up := r >= 'A' && r <= 'Z'
		if up && low || b.Len() == len(node) {
			b.WriteByte('-')
		}
		low = !up
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// ObjectOf is the name of the NodeFault that an operation makes, or empty if it makes none that lasts.
func ObjectOf(node string, op Operation) string {
	if a, ok := lasting[op]; ok {
		return objectName(node, a)
	}
	return ""
}

// inflict makes a NodeFault, or changes the one of that name, and waits until it is in force.
func (c *Cluster) inflict(ctx context.Context, spec v1alpha1.NodeFaultSpec) error {
	api := c.laboratory.client.NodeFaults
	f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: objectName(spec.Node, spec.Action)}, Spec: spec}
	got, err := api.Create(ctx, f, metav1.CreateOptions{})
	for apierrors.IsAlreadyExists(err) {
		if got, err = api.Get(ctx, f.Name, metav1.GetOptions{}); err != nil {
			if !apierrors.IsNotFound(err) {
				return err
			}
			got, err = api.Create(ctx, f, metav1.CreateOptions{})
			continue
		}
		if got.DeletionTimestamp != nil {
			if err := c.awaitFault(ctx, f.Name, func(now *v1alpha1.NodeFault) (bool, error) { return now == nil, nil }); err != nil {
				return err
			}
			got, err = api.Create(ctx, f, metav1.CreateOptions{})
			continue
		}
		got.Spec = spec
		got, err = api.Update(ctx, got, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			err = apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("nodefaults").GroupResource(), f.Name) // once more
		}
	}
	if err != nil {
		return err
	}
	return c.awaitFault(ctx, got.Name, func(now *v1alpha1.NodeFault) (bool, error) {
		if now == nil {
			return false, errors.New("somebody has deleted it meanwhile")
		}
		in := v1alpha1.Condition(now.Status.Conditions, v1alpha1.InForce)
		if now.Status.ObservedGeneration < got.Generation {
			return false, nil
		}
		if in.Reason == v1alpha1.ReasonConflict || now.Status.Phase == v1alpha1.Refused {
			return false, fmt.Errorf("%w: %s", errRefused, in.Message)
		}
		return in.Status == metav1.ConditionTrue, nil
	})
}

// relieve deletes the NodeFaults of a node that have one of these actions, whoever made them,
// and waits until they are healed.
func (c *Cluster) relieve(ctx context.Context, node string, actions ...v1alpha1.NodeAction) error {
	api := c.laboratory.client.NodeFaults
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var going []string
	for _, f := range list.Items {
		if f.Spec.Node != node || !slices.Contains(actions, f.Spec.Action) {
			continue
		}
		if err := api.Delete(ctx, f.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		going = append(going, f.Name)
	}
	for _, name := range going {
		if err := c.awaitFault(ctx, name, func(now *v1alpha1.NodeFault) (bool, error) { return now == nil, nil }); err != nil {
			return err
		}
	}
	return nil
}

// once lets something be done that is then over, and leaves no object behind.
func (c *Cluster) once(ctx context.Context, node string, a v1alpha1.NodeAction) error {
	api := c.laboratory.client.NodeFaults
	f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{GenerateName: objectName(node, a) + "-"}, Spec: v1alpha1.NodeFaultSpec{Node: node, Action: a}}
	got, err := api.Create(ctx, f, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = c.awaitFault(ctx, got.Name, func(now *v1alpha1.NodeFault) (bool, error) {
		if now == nil {
			return false, errors.New("somebody has deleted it meanwhile")
		}
		done := v1alpha1.Condition(now.Status.Conditions, v1alpha1.CompletedCondition)
		if done.Reason == v1alpha1.ReasonConflict || now.Status.Phase == v1alpha1.Refused {
			return false, fmt.Errorf("%w: %s", errRefused, done.Message)
		}
		return done.Status == metav1.ConditionTrue, nil
	})
	return errors.Join(err, api.Delete(context.WithoutCancel(ctx), got.Name, metav1.DeleteOptions{}))
}

// awaitFault waits until done says so of a NodeFault; nil stands for its absence.
func (c *Cluster) awaitFault(ctx context.Context, name string, done func(*v1alpha1.NodeFault) (bool, error)) error {
	api := c.laboratory.client.NodeFaults
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	for {
		list, err := api.List(ctx, only)
		if err != nil {
			return err
		}
		var now *v1alpha1.NodeFault
		if len(list.Items) > 0 {
			now = &list.Items[0]
		}
		if ok, err := done(now); ok || err != nil {
			return err
		}
		only.ResourceVersion = list.ResourceVersion
		w, err := api.Watch(ctx, only)
		if err != nil {
			return err
		}
		_, open := <-w.ResultChan()
		w.Stop()
		if !open && ctx.Err() != nil {
			return fmt.Errorf("wait for NodeFault %s: %w", name, context.Cause(ctx))
		}
		only.ResourceVersion = ""
	}
}
