package registry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// podPriority turns the name of a priority class into the number, which nobody may choose freely.
func podPriority(_ context.Context, a Attributes) error {
	p := a.Obj.(*corev1.Pod)
	if a.Operation == opUpdate {
		if old, ok := a.Old.(*corev1.Pod); ok {
			if p.Spec.Priority == nil {
				p.Spec.Priority = old.Spec.Priority
			}
			if p.Spec.PreemptionPolicy == nil {
				p.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
			}
		}
		return nil
	}
	class, err := priorityClass(a, p.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if p.Spec.Priority != nil && *p.Spec.Priority != class.Value {
		return forbid(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p.Spec.Priority, class.Value))
	}
	p.Spec.PriorityClassName = class.Name
	value := class.Value
	p.Spec.Priority = &value
	if class.PreemptionPolicy == nil {
		return nil
	}
	policy := *class.PreemptionPolicy
	if p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy != policy {
		return forbid(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *p.Spec.PreemptionPolicy, policy))
	}
	p.Spec.PreemptionPolicy = &policy
	return nil
}

// priorityClass finds the class of that name, or for no name the default one.
func priorityClass(a Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		if c := defaultPriority(a.Reader); c != nil {
			return c, nil
		}
		policy := corev1.PreemptLowerPriority
		return &schedulingv1.PriorityClass{PreemptionPolicy: &policy}, nil
	}
	o, err := a.Reader.Get(priorityClassResource, "", name)
	if apierrors.IsNotFound(err) {
		return nil, forbid(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	}
	if err != nil {
		return nil, err
	}
	c, ok := o.(*schedulingv1.PriorityClass)
	if !ok {
		return nil, fmt.Errorf("priority class %s is stored as %T", name, o)
	}
	return c, nil
}

// defaultPriority is the global default; of several, which only a race can make, the lowest.
func defaultPriority(r Reader) *schedulingv1.PriorityClass {
	var best *schedulingv1.PriorityClass
	for _, o := range r.List(priorityClassResource, "") {
		if c, ok := o.(*schedulingv1.PriorityClass); ok && c.GlobalDefault && (best == nil || c.Value < best.Value) {
			best = c
		}
	}
	return best
}

// oneDefaultPriority refuses a second global default.
func oneDefaultPriority(_ context.Context, a Attributes) error {
	c, ok := a.Obj.(*schedulingv1.PriorityClass)
	if !ok || !c.GlobalDefault {
		return nil
	}
	if d := defaultPriority(a.Reader); d != nil && (a.Operation == opCreate || d.Name != c.Name) {
		return forbid(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", d.Name))
	}
	return nil
}

// tolerateForAWhile lets a pod stay for five minutes on a node that is not ready or cannot be reached,
// unless it says something else itself.
func tolerateForAWhile(_ context.Context, a Attributes) error {
	p := a.Obj.(*corev1.Pod)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		said := false
		for _, t := range p.Spec.Tolerations {
			said = said || (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !said {
			seconds := int64(300)
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
		}
	}
	return nil
}
