package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"
)

// staticBinding is an existing volume chosen for a claim.
type staticBinding struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// The reasons that concern volumes.
var (
	noVolume   = reason{text: "node(s) didn't find available persistent volumes to bind"}
	elsewhere  = reason{text: "node(s) didn't match PersistentVolume's node affinity"}
	noSpace    = reason{text: "node(s) did not have enough free storage"}
	volumeGone = reason{text: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"}
)

// findVolumes completes a plan with the volumes that the pod's unbound claims would
// get on the node. Called with mu held.
func (s *Scheduler) findVolumes(p *plan, n *needs, node *corev1.Node) []reason {
	for _, b := range n.bound {
		if b.volume == nil {
			return []reason{volumeGone}
		}
		if volume.CheckNodeAffinity(b.volume, node.Labels) != nil {
			return []reason{elsewhere}
		}
	}
	if len(n.delayed) == 0 {
		return nil
	}
	var free []*corev1.PersistentVolumeClaim // not yet promised to a node
	for _, claim := range n.delayed {
		switch selected, ok := claim.Annotations[volume.AnnSelectedNode]; {
		case !ok:
			free = append(free, claim)
		case selected != node.Name:
			return []reason{elsewhere}
		default:
			p.provision = append(p.provision, claim)
		}
	}
	rest, err := s.matchStatic(p, free, node)
	if err != nil {
		return []reason{noVolume}
	}
	p.provision = append(p.provision, rest...)
	for _, claim := range p.provision {
		if why := s.provisionable(claim, node); why != nil {
			return []reason{*why}
		}
	}
	return nil
}

// matchStatic looks for an existing volume for each claim, the smallest claims
// first, and returns those that have none.
func (s *Scheduler) matchStatic(p *plan, claims []*corev1.PersistentVolumeClaim, node *corev1.Node) ([]*corev1.PersistentVolumeClaim, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	all, err := s.volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolume) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	claims = slices.Clone(claims)
	slices.SortStableFunc(claims, func(a, b *corev1.PersistentVolumeClaim) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
	taken := s.assumed.taken()
	var rest []*corev1.PersistentVolumeClaim
	for _, claim := range claims {
		class := volume.GetPersistentVolumeClaimClass(claim)
		ofClass := slices.DeleteFunc(slices.Clone(all), func(v *corev1.PersistentVolume) bool { return volume.GetPersistentVolumeClass(v) != class })
		v, err := volume.FindMatchingVolume(claim, ofClass, node, taken, true, true)
		if err != nil {
			return nil, err
		}
		if v == nil {
			rest = append(rest, claim)
			continue
		}
		taken[v.Name] = v
		p.static = append(p.static, staticBinding{claim, v})
	}
	return rest, nil
}

// provisionable tells why a claim's volume cannot be made for a node, or nil.
func (s *Scheduler) provisionable(claim *corev1.PersistentVolumeClaim, node *corev1.Node) *reason {
	class, err := s.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
	if err != nil || class.Provisioner == "" || class.Provisioner == volume.NotSupportedProvisioner || !inTopology(class, node) {
		return &noVolume
	}
	d, err := s.drivers.Get(class.Provisioner)
	if err != nil || d.Spec.StorageCapacity == nil || !*d.Spec.StorageCapacity {
		return nil
	}
	want, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	capacities, _ := s.capacities.List(labels.Everything())
	for _, c := range capacities {
		if c.StorageClassName == class.Name && roomFor(c, want) && reaches(c, node) {
			return nil
		}
	}
	return &noSpace
}

// inTopology tells whether a class may be provisioned for a node.
func inTopology(class *storagev1.StorageClass, node *corev1.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			v, ok := node.Labels[e.Key]
			return !ok || !slices.Contains(e.Values, v)
		})
	})
}

func roomFor(c *storagev1.CSIStorageCapacity, want resource.Quantity) bool {
	limit := c.Capacity
	if c.MaximumVolumeSize != nil {
		limit = c.MaximumVolumeSize
	}
	return limit != nil && limit.Cmp(want) >= 0
}

func reaches(c *storagev1.CSIStorageCapacity, node *corev1.Node) bool {
	if c.NodeTopology == nil {
		return false // reachable from nowhere
	}
	sel, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	return err == nil && sel.Matches(labels.Set(node.Labels))
}
