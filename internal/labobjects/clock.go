package labobjects

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// clockState is the last status of each clock that was written.
type clockState map[types.UID]v1alpha1.ClockStatus

// clockPass moves the time to where the Clock says, and makes the Clock if there is none.
func (c *Controller) clockPass(ctx context.Context, list []*v1alpha1.Clock) {
	if c.clock == nil {
		c.clock = clockState{}
	}
	there := false
	for _, k := range list {
		there = there || k.Name == v1alpha1.ClockName
		if k.DeletionTimestamp == nil {
			c.clockObject(ctx, k)
		}
	}
	if there {
		return
	}
	k := &v1alpha1.Clock{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClockName}}
	k.Spec.Offset.Duration = c.House.Offset()
	if _, err := c.Client.Clocks.Create(ctx, k, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.failed(err, "make the clock", k.Name)
	}
}

func (c *Controller) clockObject(ctx context.Context, k *v1alpha1.Clock) {
	s, known := c.clock[k.UID]
	if !known {
		s = k.DeepCopy().Status
	}
	before := s
	s.Conditions = append([]metav1.Condition(nil), s.Conditions...)
	fresh := s.ObservedGeneration != k.Generation || !v1alpha1.Holds(s.Conditions, v1alpha1.InForce)
	s.ObservedGeneration = k.Generation
	in := metav1.Condition{Type: v1alpha1.InForce, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInForce, ObservedGeneration: k.Generation}
	switch d := k.Spec.Offset.Duration - c.House.Offset(); {
	case k.Name != v1alpha1.ClockName:
		in.Status, in.Reason, in.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalid, "there is one clock, and it is called "+v1alpha1.ClockName
	case d > 0:
		if err := c.House.Advance(d); err != nil {
			in.Status, in.Reason, in.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, err.Error()
			c.again = true
			break
		}
		c.Log.Info().Stringer("by", d).Msg("the clock was advanced")
		now := metav1.NewTime(c.Lab.Clock.Now()).Rfc3339Copy()
		s.Advanced = &now
	case d < 0 && fresh:
		in.Status, in.Reason = metav1.ConditionFalse, v1alpha1.ReasonBackwards
		in.Message = fmt.Sprintf("a clock never goes back: it is %s ahead, and spec.offset says %s", c.House.Offset(), k.Spec.Offset.Duration)
	}
	if k.Name == v1alpha1.ClockName {
		s.Offset.Duration = c.House.Offset()
	}
	if in.Message == "" {
		in.Message = fmt.Sprintf("%s ahead of real time", s.Offset.Duration)
	}
	s.Conditions = v1alpha1.SetCondition(s.Conditions, in, metav1.NewTime(c.Lab.Clock.Now()).Rfc3339Copy())
	if equality.Semantic.DeepEqual(before, s) {
		return
	}
	next := k.DeepCopy()
	next.Status = s
	if _, err := c.Client.Clocks.UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		if !passing(err) {
			c.failed(err, "write the status of the clock", k.Name)
		}
		return
	}
	c.clock[k.UID] = s
}
