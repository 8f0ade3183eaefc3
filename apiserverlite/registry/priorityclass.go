package registry

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/apis/scheduling/validation"
)

func schedulingKinds(Options) []*Resource {
	return []*Resource{resource(kind[scheduling.PriorityClass, scheduling.PriorityClassList]{
		gvk: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), plural: "priorityclasses", shortNames: []string{"pc"}, cluster: true,
		object: alloc[schedulingv1.PriorityClass](), list: alloc[schedulingv1.PriorityClassList](),
		rules: rules[scheduling.PriorityClass]{
			unconditional:  true,
			prepareCreate:  func(c *scheduling.PriorityClass) { c.Generation = 1 },
			validate:       validation.ValidatePriorityClass,
			validateUpdate: validation.ValidatePriorityClassUpdate,
		},
	})}
}
