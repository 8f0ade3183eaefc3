package labobjects

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// fault is what was brought about of one Fault.
type fault struct {
	name    string
	handle  *lab.Handle // nil while no rule is in force
	spec    v1alpha1.FaultSpec
	fired   int // of the last event
	starts  []clock.Timer
	written *v1alpha1.FaultStatus // the last status that was written, which the cache may not have yet
}

// fault brings about what one Fault says.
func (c *Controller) fault(ctx context.Context, f *v1alpha1.Fault) {
	own := c.faults[f.UID]
	if own == nil {
		own = &fault{name: f.Name, fired: f.Status.Fired}
		c.faults[f.UID] = own
	}
	if f.DeletionTimestamp != nil {
		c.heal(own)
		if err := c.release(ctx, f); err != nil {
			c.failed(err, "let a healed fault go", f.Name)
		}
		return
	}
	wrong := f.Spec.Check(c.Points)
	if wrong == nil {
		var err error
		if f, err = c.claim(ctx, f); err != nil {
			if !passing(err) {
				c.failed(err, "claim a fault", f.Name)
			}
			return
		}
		wrong = c.enforce(own, f)
	} else {
		own.remove()
	}
	c.restart(own, f)
	c.reportFault(ctx, own, f, wrong)
}

// enforce puts the rule in force that the spec describes.
func (c *Controller) enforce(own *fault, f *v1alpha1.Fault) error {
	was := own.spec
	was.Released = f.Spec.Released
	same := own.handle != nil && !own.handle.Gone() && equality.Semantic.DeepEqual(was, f.Spec) && (f.Spec.Released || !own.spec.Released)
	if !same {
		rule := f.Rule()
		if own.handle != nil { // it goes on counting
			t := own.handle.Tally()
			rule.Seen, rule.Fired = t.Seen, t.Fired
			own.remove()
		}
		h, err := c.Lab.Faults.Add(rule)
		if err != nil {
			return err
		}
		own.handle = h
	}
	own.spec = f.Spec
	if f.Spec.Released {
		own.handle.Release()
	}
	return nil
}

func (f *fault) remove() {
	if f.handle != nil {
		f.handle.Remove()
		f.handle = nil
	}
}

// restart starts what the rule has killed, when it is to be started again.
func (c *Controller) restart(own *fault, f *v1alpha1.Fault) {
	if own.handle == nil || f.Spec.RestartAfter == nil {
		return
	}
	for _, component := range own.handle.TakeKilled() {
		own.starts = append(own.starts, c.Lab.Clock.AfterFunc(f.Spec.RestartAfter.Duration, func() { c.start(component) }))
	}
}

func (c *Controller) start(component string) {
	if err := c.House.Start(component); err != nil {
		c.Log.Warn().Err(err).Str("component", component).Msg("start what a fault has killed")
	}
}

// heal takes the rule out of force and starts what it has killed.
func (c *Controller) heal(own *fault) {
	for _, t := range own.starts {
		t.Stop()
	}
	own.starts = nil
	if own.handle == nil {
		return
	}
	killed := own.handle.Tally().Killed
	own.remove()
	for _, component := range killed {
		c.start(component)
	}
}

// forget takes every rule out of force: the process ends.
func (c *Controller) forget() {
	for _, f := range c.faults {
		for _, t := range f.starts {
			t.Stop()
		}
		f.remove()
	}
}

// reportFault writes the status.
func (c *Controller) reportFault(ctx context.Context, own *fault, f *v1alpha1.Fault, wrong error) {
	s := f.DeepCopy().Status
	if own.written != nil {
		s = *own.written
		s.Conditions = append([]metav1.Condition(nil), s.Conditions...)
	}
	s.ObservedGeneration = f.Generation
	now := metav1.NewTime(c.Lab.Clock.Now()).Rfc3339Copy()
	in := metav1.Condition{Type: v1alpha1.InForce, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInForce, ObservedGeneration: f.Generation}
	if wrong != nil {
		s.Phase, s.Held = v1alpha1.Refused, 0
		in.Status, in.Reason, in.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalid, wrong.Error()
	} else {
		t := own.handle.Tally()
		s.Seen, s.Fired, s.Held = t.Seen, t.Fired, t.Held
		if !t.Last.IsZero() {
			if s.FirstFired == nil {
				first := metav1.NewTime(t.First).Rfc3339Copy()
				s.FirstFired = &first
			}
			last := metav1.NewTime(t.Last).Rfc3339Copy()
			s.LastFired, s.LastCall = &last, sayCall(t.Call)
		}
		if len(t.Killed) > 0 {
			s.Killed = t.Killed
		}
		s.Phase = phaseOf(f.Spec, t)
		in.Message = sayFault(f.Spec, t.Fired)
		switch s.Phase {
		case v1alpha1.Spent:
			in.Status, in.Reason = metav1.ConditionFalse, v1alpha1.ReasonSpent
		case v1alpha1.Released:
			in.Status, in.Reason = metav1.ConditionFalse, v1alpha1.ReasonReleased
		}
		if t.Fired > own.fired {
			own.fired = t.Fired
			c.events.say(ctx, aboutFault(f), "Fired", sayCall(t.Call)+": "+in.Message)
		}
	}
	s.Conditions = v1alpha1.SetCondition(s.Conditions, in, now)
	if own.written != nil && equality.Semantic.DeepEqual(*own.written, s) || own.written == nil && equality.Semantic.DeepEqual(f.Status, s) {
		return
	}
	next := f.DeepCopy()
	next.Status = s
	got, err := c.Client.Faults.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	switch {
	case err == nil:
		own.written = &got.Status
	case !passing(err):
		c.failed(err, "write the status of a fault", f.Name)
	}
}

func phaseOf(s v1alpha1.FaultSpec, t lab.Tally) v1alpha1.Phase {
	holds := s.Action == lab.Pause || s.Action == lab.Stale
	switch {
	case s.Released && holds:
		return v1alpha1.Released
	case t.Held > 0:
		return v1alpha1.Holding
	case s.Times > 0 && t.Fired >= s.Times:
		return v1alpha1.Spent
	case t.Fired > 0:
		return v1alpha1.Fired
	}
	return v1alpha1.Armed
}

// sayFault says in words what a fault does.
func sayFault(s v1alpha1.FaultSpec, fired int) string {
	var b strings.Builder
	b.WriteString(string(s.Action))
	switch {
	case s.Delay != nil:
		b.WriteString(" by " + s.Delay.Duration.String())
	case s.Code != "":
		b.WriteString(" with " + s.Code)
	}
	switch {
	case s.Times > 0:
		fmt.Fprintf(&b, ", %d of %d times", fired, s.Times)
	case fired == 1:
		b.WriteString(", once so far")
	case fired > 1:
		fmt.Fprintf(&b, ", %d times so far", fired)
	}
	return b.String()
}

// sayCall says in words which call it was.
func sayCall(c lab.Call) string {
	s := c.Op
	if c.Component != "" && c.Kind != lab.KindPoint {
		s += " by " + c.Component
	}
	if c.Node != "" {
		s += " on " + c.Node
	}
	if c.Namespace != "" || c.Name != "" {
		s += " of " + strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
	}
	if c.Volume != "" {
		s += ", volume " + c.Volume
	}
	return s
}

// passing tells whether an error means that the object is not as it was: the watch brings what it is now.
func passing(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }
