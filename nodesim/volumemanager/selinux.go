package volumemanager

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// labels are what is known of a volume's SELinux label for a pod.
type labels struct {
	asked string // the one of all containers that mount it, if its driver can mount with one and the pod does not choose otherwise
	used  string // the one that it is mounted with: the same, or none if the node does not mount its kind with a label
	can   bool   // its driver can mount with one
	must  bool   // the node mounts its kind with a label, so pods and containers must agree
}

// labelsOf finds them out. On a node without SELinux there are none. Containers that
// disagree are an error where the node mounts such volumes with a label, whatever the
// driver can; elsewhere they are counted, and the volume has no label.
func (m *Manager) labelsOf(pod *v1.Pod, s *volumeplugin.Spec, outer string) (labels, error) {
	if m.host.SELinux == volumeplugin.SELinuxOff {
		return labels{}, nil
	}
	l := labels{must: m.host.SELinux.Allows(s)}
	p, err := m.plugins.BySpec(s)
	if err != nil {
		return l, err
	}
	if sm, ok := p.(volumeplugin.SELinuxMounter); ok {
		if l.can, err = sm.SELinuxMount(s); err != nil {
			return l, err
		}
	}
	all := containerLabels(pod, outer)
	if len(all) > 1 {
		l.can = false
		if !l.must {
			m.countLabel(stats.SELinuxPodWarning, s)
			return l, nil
		}
		m.countLabel(stats.SELinuxPodError, s)
		return l, fmt.Errorf("multiple SELinux labels found: %s", strings.Join(all, ","))
	}
	recursive := false
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SELinuxChangePolicy != nil {
		recursive = *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive
	}
	if len(all) == 0 || !l.can || recursive {
		return l, nil
	}
	if l.asked = all[0]; l.must {
		l.used = l.asked
	}
	return l, nil
}

// countLabel counts what became of a volume's label.
func (m *Manager) countLabel(kind stats.SELinux, s *volumeplugin.Spec) {
	p, err := m.plugins.BySpec(s)
	if err != nil {
		return
	}
	plugin := p.Name()
	if driver := s.CSIDriver(); driver != "" {
		plugin += "/" + driver
	}
	m.host.Operations.SELinux(kind, plugin, widestMode(s))
}

// widestMode is the widest of a volume's access modes in short.
func widestMode(s *volumeplugin.Spec) string {
	if s.PV == nil {
		return "inline"
	}
	for _, m := range []struct {
		mode  v1.PersistentVolumeAccessMode
		short string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"}, {v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(s.PV.Spec.AccessModes, m.mode) {
			return m.short
		}
	}
	return ""
}

// containerLabels are the different labels of the containers that mount a volume, sorted.
// Options that say nothing are a label too, which is empty.
func containerLabels(pod *v1.Pod, outer string) []string {
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
		if options != nil {
			out = append(out, volumeplugin.FileLabel(options))
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
