// Package quota is the arithmetic of ResourceQuotas: what an object takes of them, and what of an object's
// namespace is taken. Admission and the controller that keeps the status both go by it.
package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/storage/volume"
)

var (
	pods   = corev1.Resource("pods")
	claims = corev1.Resource("persistentvolumeclaims")
)

// counted are the resources whose objects a quota can count by a name of their own.
var counted = map[schema.GroupResource]corev1.ResourceName{
	pods: corev1.ResourcePods, claims: corev1.ResourcePersistentVolumeClaims, corev1.Resource("services"): corev1.ResourceServices,
	corev1.Resource("secrets"): corev1.ResourceSecrets, corev1.Resource("configmaps"): corev1.ResourceConfigMaps, corev1.Resource("resourcequotas"): corev1.ResourceQuotas,
	corev1.Resource("replicationcontrollers"): corev1.ResourceReplicationControllers,
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
		requests, limits := PodSums(x)
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

// Used sums up what the objects of a quota's namespace, which list returns, take of its hard limits.
func Used(q *corev1.ResourceQuota, list func(schema.GroupResource) []runtime.Object, resources []schema.GroupResource) corev1.ResourceList {
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		used[name] = apiresource.MustParse("0")
	}
	for _, gr := range resources {
		if !Concerns(q, gr) {
			continue
		}
		for _, o := range list(gr) {
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

// Concerns tells whether objects of a resource can take anything of a quota.
func Concerns(q *corev1.ResourceQuota, gr schema.GroupResource) bool {
	for name := range q.Spec.Hard {
		s := string(name)
		switch {
		case s == "count/"+gr.String(), name == counted[gr]:
			return true
		case gr == claims && (name == corev1.ResourceRequestsStorage || strings.Contains(s, classQuota)):
			return true
		case gr == pods && (strings.HasPrefix(s, "requests.") || strings.HasPrefix(s, "limits.") || name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage):
			return true
		}
	}
	return false
}

// PodSums are the requests and limits of a pod as a whole.
func PodSums(p *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests, limits = corev1.ResourceList{}, corev1.ResourceList{}
	for _, c := range p.Spec.Containers {
		addTo(requests, c.Resources.Requests)
		addTo(limits, c.Resources.Limits)
	}
	for _, c := range p.Spec.InitContainers { // one after the other: the largest counts
		for to, from := range map[*corev1.ResourceList]corev1.ResourceList{&requests: c.Resources.Requests, &limits: c.Resources.Limits} {
			for name, q := range from {
				if have := (*to)[name]; have.Cmp(q) < 0 {
					(*to)[name] = q.DeepCopy()
				}
			}
		}
	}
	return requests, limits
}

func addTo(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name]
		have.Add(q)
		sum[name] = have
	}
}

// Each goes through a list in a fixed order.
func Each(l corev1.ResourceList, f func(corev1.ResourceName, apiresource.Quantity)) {
	names := make([]corev1.ResourceName, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f(name, l[name])
	}
}
