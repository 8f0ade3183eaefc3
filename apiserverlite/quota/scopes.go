package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Governs tells whether a quota looks at an object at all.
func Governs(q *corev1.ResourceQuota, o runtime.Object) bool {
	in := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values []string) bool {
		switch x := o.(type) {
		case *corev1.Pod:
			return podInScope(x, scope, op, values)
		case *corev1.PersistentVolumeClaim:
			return scope == corev1.ResourceQuotaScopeVolumeAttributesClass && matches(attributesClasses(x), op, values)
		}
		return false
	}
	for _, s := range q.Spec.Scopes {
		if !in(s, corev1.ScopeSelectorOpExists, nil) {
			return false
		}
	}
	if q.Spec.ScopeSelector != nil {
		for _, e := range q.Spec.ScopeSelector.MatchExpressions {
			if !in(e.ScopeName, e.Operator, e.Values) {
				return false
			}
		}
	}
	return true
}

func podInScope(p *corev1.Pod, scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values []string) bool {
	switch scope {
	case corev1.ResourceQuotaScopeTerminating:
		return p.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return p.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(p)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(p)
	case corev1.ResourceQuotaScopePriorityClass:
		return matches(named(p.Spec.PriorityClassName), op, values)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksElsewhere(p.Spec.Affinity)
	}
	return false
}

// bestEffort is the pod's quality of service: it asks for no processor and no memory. Upstream's own function for it is the
// registry's to use, and the controllers reckon here as well.
func bestEffort(p *corev1.Pod) bool {
	requests, limits := PodSums(p)
	for _, list := range []corev1.ResourceList{requests, limits} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q := list[name]; q.Sign() > 0 {
				return false
			}
		}
	}
	return true
}

// looksElsewhere tells whether a pod is placed by the pods of other namespaces.
func looksElsewhere(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	weigh := func(list []corev1.WeightedPodAffinityTerm) {
		for _, t := range list {
			terms = append(terms, t.PodAffinityTerm)
		}
	}
	if x := a.PodAffinity; x != nil {
		terms = append(terms, x.RequiredDuringSchedulingIgnoredDuringExecution...)
		weigh(x.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if x := a.PodAntiAffinity; x != nil {
		terms = append(terms, x.RequiredDuringSchedulingIgnoredDuringExecution...)
		weigh(x.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

// attributesClasses are those that a claim has, wants or is on the way to.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var out []string
	for _, class := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if class != nil {
			out = append(out, named(*class)...)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		out = append(out, named(m.TargetVolumeAttributesClassName)...)
	}
	return out
}

// named is a name that may be missing.
func named(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// matches is a label selector's requirement: what has no name is not in any list.
func matches(names []string, op corev1.ScopeSelectorOperator, values []string) bool {
	isOne := func(name string) bool { return slices.Contains(values, name) }
	switch op {
	case corev1.ScopeSelectorOpExists:
		return len(names) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(names) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(names, isOne)
	}
	return len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return !isOne(n) })
}
