package volumemanager

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// labelOf is the SELinux label with which a volume is to be mounted for a pod: the one
// of all containers that mount it, if node, volume, driver and pod allow that; else it
// is empty. Containers that disagree are an error.
func (m *Manager) labelOf(pod *v1.Pod, s *volumeplugin.Spec, outer string) (string, error) {
	if !m.host.SELinux.Allows(s) || s.Block() {
		return "", nil
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return "", nil
	}
	p, err := m.plugins.BySpec(s)
	if err != nil {
		return "", err
	}
	sm, ok := p.(volumeplugin.SELinuxMounter)
	if !ok {
		return "", nil
	}
	if may, err := sm.SELinuxMount(s); err != nil || !may {
		return "", err
	}
	labels := labelsOf(pod, outer)
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	}
	return "", fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", s.Name(), labels[0], labels[1])
}

// labelsOf are the different labels of the containers that mount a volume, sorted.
func labelsOf(pod *v1.Pod, outer string) []string {
	var common *v1.SELinuxOptions
	if sc := pod.Spec.SecurityContext; sc != nil {
		common = sc.SELinuxOptions
	}
	var out []string
	visit := func(mounts []v1.VolumeMount, sc *v1.SecurityContext) {
		if !slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == outer }) {
			return
		}
		options := common
		if sc != nil && sc.SELinuxOptions != nil {
			options = sc.SELinuxOptions
		}
		if l := volumeplugin.FileLabel(options); l != "" {
			out = append(out, l)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		visit(c.VolumeMounts, c.SecurityContext)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		visit(c.VolumeMounts, c.SecurityContext)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
