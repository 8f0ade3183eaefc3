package volumemanager

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Groups are what the volumes that are mounted for a pod add to the groups that its
// containers run in: the gid that a PV names in its annotation, unless the pod names it
// itself. They are sorted. What is no number counts for nothing.
func (m *Manager) Groups(pod *v1.Pod) []int64 {
	var own, out []int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		own = sc.SupplementalGroups
	}
	for _, text := range m.actual.groups(pod.UID) {
		gid, err := strconv.ParseInt(text, 10, 64)
		if err == nil && !slices.Contains(own, gid) {
			out = append(out, gid)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
