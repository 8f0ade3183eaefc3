package registry

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/node"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

func limitRanges() *Resource {
	return resource(kind[core.LimitRange, core.LimitRangeList]{
		gvk: corev1.SchemeGroupVersion.WithKind("LimitRange"), plural: "limitranges", shortNames: []string{"limits"},
		object: alloc[corev1.LimitRange](), list: alloc[corev1.LimitRangeList](),
		rules: rules[core.LimitRange]{
			createOnUpdate: true, unconditional: true,
			prepareCreate: func(l *core.LimitRange) { // the only kind that needs no name
				if l.Name == "" {
					l.Name = string(uuid.NewUUID())
				}
			},
			validate:       validation.ValidateLimitRange,
			validateUpdate: func(l, _ *core.LimitRange) field.ErrorList { return validation.ValidateLimitRange(l) },
		},
	})
}

func resourceQuotas() *Resource {
	main := rules[core.ResourceQuota]{
		unconditional:  true,
		prepareCreate:  func(q *core.ResourceQuota) { q.Status = core.ResourceQuotaStatus{} },
		validate:       validation.ValidateResourceQuota,
		prepareUpdate:  func(q, old *core.ResourceQuota) { q.Status = old.Status },
		validateUpdate: validation.ValidateResourceQuotaUpdate,
		ignored:        []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(q, old *core.ResourceQuota) { q.Spec = old.Spec }
	status.validateUpdate = validation.ValidateResourceQuotaStatusUpdate
	status.ignored = []*fieldpath.Set{path("spec")}
	return resource(kind[core.ResourceQuota, core.ResourceQuotaList]{
		gvk: corev1.SchemeGroupVersion.WithKind("ResourceQuota"), plural: "resourcequotas", shortNames: []string{"quota"},
		object: alloc[corev1.ResourceQuota](), list: alloc[corev1.ResourceQuotaList](),
		rules: main, parts: map[string]rules[core.ResourceQuota]{"status": status},
	})
}

// nodeKinds: runtime classes are kept; a simulated node has one runtime.
func nodeKinds(Options) []*Resource {
	return []*Resource{resource(kind[node.RuntimeClass, node.RuntimeClassList]{
		gvk: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), plural: "runtimeclasses", cluster: true,
		object: alloc[nodev1.RuntimeClass](), list: alloc[nodev1.RuntimeClassList](),
		rules: rules[node.RuntimeClass]{validate: nodevalidation.ValidateRuntimeClass, validateUpdate: nodevalidation.ValidateRuntimeClassUpdate},
	})}
}
