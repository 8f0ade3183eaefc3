package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// podStatus takes nothing but the status, and keeps those parts of the old one that a writer may not know.
func podStatus(r rules[core.Pod], o Options) rules[core.Pod] {
	r.prepareUpdate = func(p, old *core.Pod) {
		p.Spec = old.Spec
		p.DeletionTimestamp = nil
		p.OwnerReferences = old.OwnerReferences
		s := &p.Status
		if s.QOSClass == "" {
			s.QOSClass = old.Status.QOSClass
		}
		if s.ResourceClaimStatuses == nil {
			s.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
		}
		if s.ExtendedResourceClaimStatus == nil {
			s.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
		}
		if s.NodeAllocatableResourceClaimStatuses == nil {
			s.NodeAllocatableResourceClaimStatuses = old.Status.NodeAllocatableResourceClaimStatuses
		}
		keepObserved(s, &old.Status)
		health := s.VolumeHealth
		podutil.DropDisabledPodFields(p, old)
		if o.VolumeHealth {
			s.VolumeHealth = health
		}
	}
	r.validateUpdate = podUpdate(validation.ValidatePodStatusUpdate)
	r.warnUpdate = func(_ context.Context, p, _ *core.Pod) []string {
		var out []string
		for i, ip := range p.Status.PodIPs {
			out = append(out, utilvalidation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
		}
		for i, ip := range p.Status.HostIPs {
			out = append(out, utilvalidation.GetWarningsForIP(field.NewPath("status", "hostIPs").Index(i).Child("ip"), ip.IP)...)
		}
		return out
	}
	r.ignored = []*fieldpath.Set{path("spec"), path("metadata", "deletionTimestamp"), path("metadata", "ownerReferences")}
	return r
}

// keepObserved keeps observed generations that the writer left out. Conditions of one type may repeat;
// the n-th of the new ones takes from the n-th of the old ones.
func keepObserved(s, old *core.PodStatus) {
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = old.ObservedGeneration
	}
	before := map[core.PodConditionType][]int64{}
	for _, c := range old.Conditions {
		before[c.Type] = append(before[c.Type], c.ObservedGeneration)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		seen := before[c.Type]
		if len(seen) == 0 {
			continue
		}
		before[c.Type] = seen[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = seen[0]
		}
	}
}

// podEphemeralContainers takes nothing but the ephemeral containers.
func podEphemeralContainers(r rules[core.Pod]) rules[core.Pod] {
	r.prepareUpdate = func(p, old *core.Pod) {
		containers := p.Spec.EphemeralContainers
		p.Spec, p.Status = old.Spec, old.Status
		metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
		p.Spec.EphemeralContainers = containers
		finishUpdate(p, &core.Pod{ObjectMeta: old.ObjectMeta, Spec: *old.Spec.DeepCopy(), Status: old.Status})
	}
	r.validateUpdate = podUpdate(validation.ValidatePodEphemeralContainersUpdate)
	r.ignored = nil
	return r
}

// podResize takes the resources of containers and of the pod, and nothing else.
func podResize(r rules[core.Pod]) rules[core.Pod] {
	r.prepareUpdate = func(p, old *core.Pod) {
		onlyResources(p, old)
		if p.Spec.Resources == nil && old.Spec.Resources != nil {
			p.Spec.Resources = old.Spec.Resources.DeepCopy()
		}
		if p.Spec.Resources != nil {
			podutil.DefaultPodLevelResources(p)
		}
		finishUpdate(p, old)
	}
	r.validateUpdate = podUpdate(validation.ValidatePodResize)
	r.ignored = nil
	return r
}

// onlyResources undoes every other change. A change of the containers themselves is left for validation to refuse.
func onlyResources(p, old *core.Pod) {
	if len(p.Spec.Containers) != len(old.Spec.Containers) || len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return
	}
	ofPod := p.Spec.Resources
	containers, inits := resized(p.Spec.Containers, old.Spec.Containers), resized(p.Spec.InitContainers, old.Spec.InitContainers)
	p.Spec = *old.Spec.DeepCopy()
	p.Spec.Resources, p.Spec.Containers, p.Spec.InitContainers = ofPod, containers, inits
	p.Status = old.Status
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

func resized(list, old []core.Container) []core.Container {
	if len(list) == 0 {
		return list
	}
	out := make([]core.Container, len(old))
	for i := range old {
		if list[i].Name != old[i].Name {
			return list
		}
		out[i] = *old[i].DeepCopy()
		out[i].Resources, out[i].ResizePolicy = list[i].Resources, list[i].ResizePolicy
	}
	return out
}
