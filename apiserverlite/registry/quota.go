package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/storage/volume"
)

// counted are the resources whose objects a quota can count by a name of their own.
var counted = map[schema.GroupResource]corev1.ResourceName{
	podResource: corev1.ResourcePods, claimResource: corev1.ResourcePersistentVolumeClaims, corev1.Resource("services"): corev1.ResourceServices,
	corev1.Resource("secrets"): corev1.ResourceSecrets, corev1.Resource("configmaps"): corev1.ResourceConfigMaps, corev1.Resource("resourcequotas"): corev1.ResourceQuotas,
}

const classQuota = ".storageclass.storage.k8s.io/"

// Usage is what an object takes of quotas, by the names that quotas have. Pods that have ended take nothing
// but their number, and that only as "count/pods".
func Usage(gr schema.GroupResource, o runtime.Object) corev1.ResourceList {
	one := apiresource.MustParse("1")
	out := corev1.ResourceList{corev1.ResourceName("count/" + gr.String()): one}
	if name, ok := counted[gr]; ok {
		out[name] = one
	}
	switch x := o.(type) {
	case *corev1.PersistentVolumeClaim:
		q := x.Spec.Resources.Requests[corev1.ResourceStorage]
		if have, ok := x.Status.AllocatedResources[corev1.ResourceStorage]; ok && have.Cmp(q) > 0 {
			q = have
		}
		out[corev1.ResourceRequestsStorage] = q
		if class := volume.GetPersistentVolumeClaimClass(x); class != "" {
			out[corev1.ResourceName(class+classQuota+string(corev1.ResourceRequestsStorage))] = q
			out[corev1.ResourceName(class+classQuota+string(corev1.ResourcePersistentVolumeClaims))] = one
		}
	case *corev1.Pod:
		if x.Status.Phase == corev1.PodFailed || x.Status.Phase == corev1.PodSucceeded {
			delete(out, corev1.ResourcePods)
			return out
		}
		requests, limits := podSums(x)
		for name, q := range requests {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
				out[name] = q
			}
			out["requests."+name] = q
		}
		for name, q := range limits {
			out["limits."+name] = q
		}
	}
	return out
}

// Governs tells whether a quota looks at an object at all.
func Governs(q *corev1.ResourceQuota, o runtime.Object) bool {
	in := func(scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values []string) bool {
		switch x := o.(type) {
		case *corev1.Pod:
			return podInScope(x, scope, op, values)
		case *corev1.PersistentVolumeClaim:
			if scope != corev1.ResourceQuotaScopeVolumeAttributesClass {
				return false
			}
			class := ""
			if x.Spec.VolumeAttributesClassName != nil {
				class = *x.Spec.VolumeAttributesClassName
			}
			return matches(class, op, values)
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
	requests, limits := podSums(p)
	switch scope {
	case corev1.ResourceQuotaScopeTerminating:
		return p.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return p.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return len(requests) == 0 && len(limits) == 0
	case corev1.ResourceQuotaScopeNotBestEffort:
		return len(requests) > 0 || len(limits) > 0
	case corev1.ResourceQuotaScopePriorityClass:
		return matches(p.Spec.PriorityClassName, op, values)
	}
	return false
}

func matches(value string, op corev1.ScopeSelectorOperator, values []string) bool {
	switch op {
	case corev1.ScopeSelectorOpExists:
		return value != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return value == ""
	case corev1.ScopeSelectorOpIn:
		return slices.Contains(values, value)
	}
	return value != "" && !slices.Contains(values, value)
}

// Used sums up what the objects of a namespace take of a quota's hard limits.
func Used(q *corev1.ResourceQuota, r Reader, resources []schema.GroupResource) corev1.ResourceList {
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		used[name] = apiresource.MustParse("0")
	}
	for _, gr := range resources {
		if !concerns(q, gr) {
			continue
		}
		for _, o := range r.List(gr, q.Namespace) {
			if !Governs(q, o) {
				continue
			}
			for name, n := range Usage(gr, o) {
				if have, ok := used[name]; ok {
					have.Add(n)
					used[name] = have
				}
			}
		}
	}
	return used
}

// concerns tells whether objects of a resource can take anything of a quota.
func concerns(q *corev1.ResourceQuota, gr schema.GroupResource) bool {
	for name := range q.Spec.Hard {
		s := string(name)
		switch {
		case s == "count/"+gr.String(), name == counted[gr]:
			return true
		case gr == claimResource && (name == corev1.ResourceRequestsStorage || strings.Contains(s, classQuota)):
			return true
		case gr == podResource && (strings.HasPrefix(s, "requests.") || strings.HasPrefix(s, "limits.") || name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage):
			return true
		}
	}
	return false
}

// withinQuota refuses what would go beyond a quota of the namespace. It reckons with what is stored at the
// moment, so that two writes of the same moment can together go beyond by one object.
func withinQuota(_ context.Context, a Attributes) error {
	gr := a.Resource.Storage
	var over []string
	for _, o := range a.Reader.List(corev1.Resource("resourcequotas"), a.Namespace) {
		q, ok := o.(*corev1.ResourceQuota)
		if !ok || !concerns(q, gr) || !Governs(q, a.Obj) {
			continue
		}
		delta := corev1.ResourceList{}
		now := Usage(gr, a.Obj)
		for name := range q.Spec.Hard {
			if n, ok := now[name]; ok {
				delta[name] = n.DeepCopy()
			}
		}
		if a.Old != nil && Governs(q, a.Old) {
			for name, n := range Usage(gr, a.Old) {
				if have, ok := delta[name]; ok {
					have.Sub(n)
					delta[name] = have
				}
			}
		}
		if missing := unspecified(q, gr, a.Obj, now); len(missing) > 0 && a.Old == nil {
			return forbid(a, fmt.Errorf("failed quota: %s: must specify %s", q.Name, strings.Join(missing, ",")))
		}
		used := Used(q, a.Reader, []schema.GroupResource{gr})
		var requested, had, limited []string
		each(delta, func(name corev1.ResourceName, n apiresource.Quantity) {
			if n.Sign() <= 0 {
				return
			}
			hard, sum := q.Spec.Hard[name], used[name]
			total := sum.DeepCopy()
			if total.Add(n); total.Cmp(hard) > 0 {
				requested = append(requested, fmt.Sprintf("%s=%s", name, n.String()))
				had = append(had, fmt.Sprintf("%s=%s", name, sum.String()))
				limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
			}
		})
		if len(requested) > 0 {
			over = append(over, fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, strings.Join(requested, ","), strings.Join(had, ","), strings.Join(limited, ",")))
		}
	}
	if len(over) > 0 {
		slices.Sort(over)
		return forbid(a, fmt.Errorf("%s", over[0]))
	}
	return nil
}

// unspecified lists the compute resources that a quota limits and a container of a pod does not name.
func unspecified(q *corev1.ResourceQuota, gr schema.GroupResource, o runtime.Object, now corev1.ResourceList) []string {
	if _, ok := o.(*corev1.Pod); !ok || gr != podResource {
		return nil
	}
	var out []string
	each(q.Spec.Hard, func(name corev1.ResourceName, _ apiresource.Quantity) {
		s := string(name)
		compute := name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(s, "requests.cpu") || strings.HasPrefix(s, "requests.memory") || strings.HasPrefix(s, "limits.")
		if _, named := now[name]; compute && !named {
			out = append(out, s)
		}
	})
	return out
}
