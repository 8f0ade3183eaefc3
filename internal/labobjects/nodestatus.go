package labobjects

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// lasting settles one NodeFault that is in force while it exists. P is nil if there is no such node.
func (c *Controller) lasting(ctx context.Context, f *v1alpha1.NodeFault, p *plan) {
	if f.DeletionTimestamp != nil {
		c.mend(ctx, f, p)
		return
	}
	s := f.DeepCopy().Status
	in := metav1.Condition{Type: v1alpha1.InForce, Status: metav1.ConditionFalse}
	wrong := f.Spec.Check()
	switch {
	case wrong != nil:
		s.Phase, in.Reason, in.Message = v1alpha1.Refused, v1alpha1.ReasonInvalid, wrong.Error()
	case p == nil:
		s.Phase, in.Reason, in.Message = v1alpha1.Refused, v1alpha1.ReasonNoNode, c.noNode(f.Spec.Node)
	case p.conflicts[f.UID] != "":
		s.Phase, in.Reason, in.Message = v1alpha1.Waiting, v1alpha1.ReasonConflict, p.conflicts[f.UID]
	default:
		if !claimed(f) {
			got, err := setFinalizers(ctx, c.Client.NodeFaults, f, append(without(f), v1alpha1.Finalizer))
			if err != nil {
				if !passing(err) {
					c.failed(err, "claim a node fault", f.Name)
				}
				return
			}
			f = got
		}
		n := c.at(f.Spec.Node)
		switch {
		case n.have.covers(f.Spec):
			s.Phase, in.Status, in.Reason, in.Message = v1alpha1.Active, metav1.ConditionTrue, v1alpha1.ReasonInForce, sayNode(f.Spec)
			if s.Started == nil || !v1alpha1.Holds(s.Conditions, v1alpha1.InForce) {
				s.Started = c.now()
				c.events.say(ctx, aboutNode(f.Spec.Node), string(f.Spec.Action), "NodeFault "+f.Name+": "+in.Message)
			}
		case n.err != nil:
			s.Phase, in.Reason, in.Message = v1alpha1.Working, v1alpha1.ReasonFailed, n.err.Error()
		default:
			s.Phase, in.Reason, in.Message = v1alpha1.Working, v1alpha1.ReasonWorking, "it is being done"
		}
	}
	c.reportNode(ctx, f, s, in)
}

// mend lets a deleted NodeFault go once its node is what it is to be without it.
func (c *Controller) mend(ctx context.Context, f *v1alpha1.NodeFault, p *plan) {
	if !claimed(f) {
		return
	}
	if p != nil && f.Spec.Check() == nil {
		if n := c.at(f.Spec.Node); n.busy || n.have != p.want || n.err != nil {
			s := f.DeepCopy().Status
			s.Phase = v1alpha1.Healing
			in := metav1.Condition{Type: v1alpha1.InForce, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHealing, Message: "what it broke is being mended"}
			if n.err != nil {
				in.Message = n.err.Error()
			}
			c.reportNode(ctx, f, s, in)
			return
		}
		if v1alpha1.Holds(f.Status.Conditions, v1alpha1.InForce) || f.Status.Phase == v1alpha1.Healing {
			c.events.say(ctx, aboutNode(f.Spec.Node), "Healed", fmt.Sprintf("NodeFault %s (%s) is over", f.Name, f.Spec.Action))
		}
	}
	if _, err := setFinalizers(ctx, c.Client.NodeFaults, f, without(f)); unlessGone(err) != nil {
		c.failed(err, "let a healed node fault go", f.Name)
	}
}

// single does what is done once. That it is begun is written before: after a kill -9 it is not done again.
func (c *Controller) single(ctx context.Context, f *v1alpha1.NodeFault, p *plan) {
	if f.DeletionTimestamp != nil || v1alpha1.Holds(f.Status.Conditions, v1alpha1.CompletedCondition) {
		return
	}
	s := f.DeepCopy().Status
	in := metav1.Condition{Type: v1alpha1.CompletedCondition, Status: metav1.ConditionFalse}
	wrong := f.Spec.Check()
	switch {
	case wrong != nil:
		s.Phase, in.Reason, in.Message = v1alpha1.Refused, v1alpha1.ReasonInvalid, wrong.Error()
		c.reportNode(ctx, f, s, in)
		return
	case p == nil:
		s.Phase, in.Reason, in.Message = v1alpha1.Refused, v1alpha1.ReasonNoNode, c.noNode(f.Spec.Node)
		c.reportNode(ctx, f, s, in)
		return
	}
	n := c.at(f.Spec.Node)
	a := n.once[f.UID]
	switch {
	case a != nil && !a.over:
		return // it is being done
	case a != nil && a.err != nil:
		s.Phase, in.Reason, in.Message = v1alpha1.Refused, v1alpha1.ReasonFailed, a.err.Error()
	case a != nil:
		s.Phase, in.Status, in.Reason, in.Message = v1alpha1.Completed, metav1.ConditionTrue, v1alpha1.ReasonCompleted, sayNode(f.Spec)
		s.Completed = c.now()
		c.events.say(ctx, aboutNode(f.Spec.Node), string(f.Spec.Action), "NodeFault "+f.Name+": "+in.Message)
	case s.Phase == v1alpha1.Working:
		s.Phase, in.Status, in.Reason, s.Completed = v1alpha1.Completed, metav1.ConditionTrue, v1alpha1.ReasonCompleted, c.now()
		in.Message = "the cluster's process ended meanwhile; its start has booted the node"
	case v1alpha1.Condition(s.Conditions, v1alpha1.CompletedCondition).Reason == v1alpha1.ReasonFailed:
		return
	case p.off != "":
		s.Phase, in.Reason, in.Message = v1alpha1.Waiting, v1alpha1.ReasonConflict, "the node is powered off by NodeFault "+p.off
	case f.Spec.Action == v1alpha1.RestartKubelet && p.kubelet != "":
		s.Phase, in.Reason, in.Message = v1alpha1.Waiting, v1alpha1.ReasonConflict, "the kubelet is down by NodeFault "+p.kubelet
	case n.busy || n.have != p.want:
		s.Phase, in.Reason, in.Message = v1alpha1.Waiting, v1alpha1.ReasonWorking, "something else is being done to the node"
	default:
		s.Phase, in.Reason, in.Message, s.Started = v1alpha1.Working, v1alpha1.ReasonWorking, "it is being done", c.now()
		if !c.reportNode(ctx, f, s, in) {
			return
		}
		n.busy, n.once[f.UID] = true, &singleAction{}
		do := c.House.RestartKubelet
		if f.Spec.Action == v1alpha1.Reboot {
			do = c.House.Reboot
		}
		c.doing.Go(func() {
			c.report(outcome{node: f.Spec.Node, once: f.UID, err: do(ctx, f.Spec.Node)})
		})
		return
	}
	c.reportNode(ctx, f, s, in)
}

// reportNode writes the status, if it changes, and tells whether it is written.
func (c *Controller) reportNode(ctx context.Context, f *v1alpha1.NodeFault, s v1alpha1.NodeFaultStatus, in metav1.Condition) bool {
	in.ObservedGeneration, s.ObservedGeneration = f.Generation, f.Generation
	s.Conditions = v1alpha1.SetCondition(s.Conditions, in, *c.now())
	if equality.Semantic.DeepEqual(f.Status, s) {
		return true
	}
	next := f.DeepCopy()
	next.Status = s
	_, err := c.Client.NodeFaults.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !passing(err) {
		c.failed(err, "write the status of a node fault", f.Name)
	}
	return err == nil
}

func (c *Controller) now() *metav1.Time {
	t := metav1.NewTime(c.Lab.Clock.Now()).Rfc3339Copy()
	return &t
}

func (c *Controller) noNode(name string) string {
	return fmt.Sprintf("there is no node %q; there are %s", name, strings.Join(c.House.Nodes(), ", "))
}

func sayNode(s v1alpha1.NodeFaultSpec) string {
	switch s.Action {
	case v1alpha1.KubeletStopped:
		return "the kubelet is stopped; volumes stay mounted"
	case v1alpha1.KubeletKilled:
		return "the kubelet is killed"
	case v1alpha1.PoweredOff:
		return "the node has no power"
	case v1alpha1.Partitioned:
		return "the kubelet does not reach the API server"
	case v1alpha1.SlowAPI:
		d := v1alpha1.DefaultDelay
		if s.Delay != nil {
			d = s.Delay.Duration
		}
		return "each request of the kubelet takes " + d.String() + " longer"
	case v1alpha1.ClockSkewed:
		return "the node's clock is wrong by " + s.Skew.Duration.String()
	case v1alpha1.RestartKubelet:
		return "the kubelet was restarted"
	case v1alpha1.Reboot:
		return "the node was rebooted"
	}
	return ""
}
