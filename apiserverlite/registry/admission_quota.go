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

	"drydock.dev/drydock/apiserverlite/quota"
)

// withinQuota refuses what would go beyond a quota of the namespace. It reckons with what is stored at the
// moment; the server lets no other write that a quota limits come between that and the commit.
func withinQuota(_ context.Context, a Attributes) error {
	gr := a.Resource.Storage
	var over []string
	for _, o := range a.Reader.List(corev1.Resource("resourcequotas"), a.Namespace) {
		q, ok := o.(*corev1.ResourceQuota)
		if !ok || !quota.Concerns(q, gr) || !quota.Governs(q, a.Obj) {
			continue
		}
		delta := corev1.ResourceList{}
		now := quota.Usage(gr, a.Obj)
		for name := range q.Spec.Hard {
			if n, ok := now[name]; ok {
				delta[name] = n.DeepCopy()
			}
		}
		if a.Old != nil && quota.Governs(q, a.Old) {
			for name, n := range quota.Usage(gr, a.Old) {
				if have, ok := delta[name]; ok {
					have.Sub(n)
					delta[name] = have
				}
			}
		}
		if missing := unspecified(q, gr, a.Obj, now); len(missing) > 0 && a.Old == nil {
			return forbid(a, fmt.Errorf("failed quota: %s: must specify %s", q.Name, strings.Join(missing, ",")))
		}
		used := quota.Used(q, func(gr schema.GroupResource) []runtime.Object { return a.Reader.List(gr, a.Namespace) }, []schema.GroupResource{gr})
		var requested, had, limited []string
		quota.Each(delta, func(name corev1.ResourceName, n apiresource.Quantity) {
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
	quota.Each(q.Spec.Hard, func(name corev1.ResourceName, _ apiresource.Quantity) {
		s := string(name)
		compute := name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(s, "requests.cpu") || strings.HasPrefix(s, "requests.memory") || strings.HasPrefix(s, "limits.")
		if _, named := now[name]; compute && !named {
			out = append(out, s)
		}
	})
	return out
}
