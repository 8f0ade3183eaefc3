package registry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	nodeutil "k8s.io/kubernetes/pkg/api/node"
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
		warnCreate:     func(_ context.Context, q *core.ResourceQuota) []string { return quotaWarnings(q) },
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

// quotaWarnings are about requests that the limits leave no room for.
func quotaWarnings(q *core.ResourceQuota) (out []string) {
	for _, r := range []core.ResourceName{core.ResourceCPU, core.ResourceMemory, core.ResourceStorage, core.ResourceEphemeralStorage} {
		name := "requests." + r
		request, found := q.Spec.Hard[name]
		if !found && (r == core.ResourceCPU || r == core.ResourceMemory) {
			name = r
			request, found = q.Spec.Hard[name]
		}
		limit, limited := q.Spec.Hard["limits."+r]
		if found && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than limits.%s (%s)", name, request.String(), r, limit.String()))
		}
	}
	return out
}

// nodeKinds: runtime classes are kept; a simulated node has one runtime.
func nodeKinds(Options) []*Resource {
	return []*Resource{resource(kind[node.RuntimeClass, node.RuntimeClassList]{
		gvk: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), plural: "runtimeclasses", cluster: true,
		object: alloc[nodev1.RuntimeClass](), list: alloc[nodev1.RuntimeClassList](),
		rules: rules[node.RuntimeClass]{
			createOnUpdate: true,
			validate:       nodevalidation.ValidateRuntimeClass,
			warnCreate:     func(_ context.Context, c *node.RuntimeClass) []string { return nodeutil.GetWarningsForRuntimeClass(c) },
			validateUpdate: func(c, old *node.RuntimeClass) field.ErrorList {
				return append(nodevalidation.ValidateRuntimeClass(c), nodevalidation.ValidateRuntimeClassUpdate(c, old)...)
			},
			warnUpdate: func(_ context.Context, c, _ *node.RuntimeClass) []string {
				return nodeutil.GetWarningsForRuntimeClass(c)
			},
			declarative: declarative{aliases: nodevalidation.NodeNormalizationRules},
		},
	})}
}
