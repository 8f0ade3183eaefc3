package scheduler

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// attachmentsByNode is an index of VolumeAttachments.
const attachmentsByNode = "node"

// room is what a node has for a pod's volumes.
type room struct {
	names   map[string]string // of the pod's volumes, with their drivers
	free    int               // slots that would be left, the fewest of any driver
	missing int               // drivers that have not registered on the node
}

// countVolumes tells whether a node has room for the pod's volumes. A volume counts once however many pods on the node use it; one that
// is attached counts though its pod is gone.
func (s *Scheduler) countVolumes(pod *corev1.Pod, node string, pods []*corev1.Pod) (r room, fits bool) {
	r = room{names: map[string]string{}, free: math.MaxInt}
	s.volumeNames(pod, r.names)
	if len(r.names) == 0 {
		return r, true
	}
	limits := s.limits(node)
	absent := map[string]bool{}
	for _, driver := range r.names {
		if _, ok := limits[driver]; !ok {
			absent[driver] = true
		}
	}
	r.missing = len(absent)
	if len(limits) == 0 {
		return r, true
	}
	there := map[string]string{}
	for _, p := range pods {
		s.volumeNames(p, there)
	}
	vas, err := s.vas.ByIndex(attachmentsByNode, node)
	if err != nil {
		vas = nil
	}
	for _, o := range vas {
		va := o.(*storagev1.VolumeAttachment)
		if va.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if v, err := s.volumes.Get(*va.Spec.Source.PersistentVolumeName); err == nil && v.Spec.CSI != nil {
			there[string(control.UniqueName(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle))] = v.Spec.CSI.Driver
		}
	}
	used, more := map[string]int{}, map[string]int{}
	for _, driver := range there {
		used[driver]++
	}
	for name, driver := range r.names {
		if _, ok := there[name]; !ok {
			more[driver]++
		}
	}
	for driver, n := range more {
		if limit, ok := limits[driver]; ok {
			left := limit - used[driver] - n
			if left < 0 {
				return r, false
			}
			r.free = min(r.free, left)
		}
	}
	return r, true
}

// limits returns how many volumes of each driver registered on a node it takes.
func (s *Scheduler) limits(node string) map[string]int {
	c, err := s.csiNodes.Get(node)
	if err != nil {
		return nil
	}
	m := map[string]int{}
	for _, d := range c.Spec.Drivers {
		m[d.Name] = math.MaxInt
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			m[d.Name] = int(*d.Allocatable.Count)
		}
	}
	return m
}

// volumeNames adds the names of a pod's CSI volumes. A claim that has no volume yet
// stands for the one that its class will make.
func (s *Scheduler) volumeNames(pod *corev1.Pod, into map[string]string) {
	for i := range pod.Spec.Volumes {
		name, _ := control.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := s.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			continue
		}
		pv := claim.Spec.VolumeName
		if pv == "" {
			pv = s.assumed.volumeOf(claim.UID)
		}
		if pv != "" {
			if v, err := s.volumes.Get(pv); err == nil {
				if v.Spec.CSI != nil {
					into[string(control.UniqueName(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle))] = v.Spec.CSI.Driver
				}
				continue
			}
		}
		class, err := s.classes.Get(volume.GetPersistentVolumeClaimClass(claim))
		if err == nil && class.Provisioner != volume.NotSupportedProvisioner {
			into["claim "+string(claim.UID)] = class.Provisioner
		}
	}
}
