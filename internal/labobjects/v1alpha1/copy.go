package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// clone copies what a pointer points to, if anything.
func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// conditions are values all through.
func conditions(list []metav1.Condition) []metav1.Condition {
	return append([]metav1.Condition(nil), list...)
}

// DeepCopy copies everything.
func (f *Fault) DeepCopy() *Fault {
	out := *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Delay, out.Spec.RestartAfter = clone(f.Spec.Delay), clone(f.Spec.RestartAfter)
	out.Status = f.Status.copy()
	return &out
}

func (s FaultStatus) copy() FaultStatus {
	s.FirstFired, s.LastFired = clone(s.FirstFired), clone(s.LastFired)
	s.Killed, s.Conditions = append([]string(nil), s.Killed...), conditions(s.Conditions)
	return s
}

// DeepCopy copies everything.
func (f *NodeFault) DeepCopy() *NodeFault {
	out := *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Delay, out.Spec.Skew = clone(f.Spec.Delay), clone(f.Spec.Skew)
	out.Status.Started, out.Status.Completed = clone(f.Status.Started), clone(f.Status.Completed)
	out.Status.Conditions = conditions(f.Status.Conditions)
	return &out
}

// DeepCopy copies everything.
func (c *Clock) DeepCopy() *Clock {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Advanced, out.Status.Conditions = clone(c.Status.Advanced), conditions(c.Status.Conditions)
	return &out
}

// DeepCopyObject is runtime.Object's.
func (f *Fault) DeepCopyObject() runtime.Object { return f.DeepCopy() }

// DeepCopyObject is runtime.Object's.
func (f *NodeFault) DeepCopyObject() runtime.Object { return f.DeepCopy() }

// DeepCopyObject is runtime.Object's.
func (c *Clock) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject is runtime.Object's.
func (l *FaultList) DeepCopyObject() runtime.Object {
	out := &FaultList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// DeepCopyObject is runtime.Object's.
func (l *NodeFaultList) DeepCopyObject() runtime.Object {
	out := &NodeFaultList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// DeepCopyObject is runtime.Object's.
func (l *ClockList) DeepCopyObject() runtime.Object {
	out := &ClockList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
