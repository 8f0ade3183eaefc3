package stats

import "io"

// SELinux is what becomes of a volume whose label the volume manager looks at. Each kind
// is a gauge that only grows.
type SELinux int

// The kinds. What is an error for a volume that is mounted with a label is a warning for
// one that would be, were its access mode among those that are.
const (
	SELinuxAdmitted SELinux = iota // mounted with its label
	SELinuxPodError                // containers of the pod disagree
	SELinuxPodWarning
	SELinuxVolumeError // another pod has the volume with another label
	SELinuxVolumeWarning
	selinuxKinds
)

var selinuxFamilies = [selinuxKinds]Gauges{
	SELinuxAdmitted:      {Name: "volume_manager_selinux_volumes_admitted_total", Help: "Volumes that are mounted with the SELinux label of their pods"},
	SELinuxPodError:      {Name: "volume_manager_selinux_pod_context_mismatch_errors_total", Help: "Times that a pod was refused a volume because its containers have different SELinux labels; each new try counts"},
	SELinuxPodWarning:    {Name: "volume_manager_selinux_pod_context_mismatch_warnings_total", Help: "Times that a pod's containers had different SELinux labels for a volume whose access mode does not make that an error yet"},
	SELinuxVolumeError:   {Name: "volume_manager_selinux_volume_context_mismatch_errors_total", Help: "Times that a pod was refused a volume that another pod uses with another SELinux label; each new try counts"},
	SELinuxVolumeWarning: {Name: "volume_manager_selinux_volume_context_mismatch_warnings_total", Help: "Times that a pod used a volume that another pod uses with another SELinux label, where the access mode does not make that an error yet"},
}

// SELinux counts a volume of a plugin, as kubernetes.io/csi/DRIVER for CSI, with this access mode.
func (o *Operations) SELinux(kind SELinux, plugin, mode string) {
	if o == nil {
		return
	}
	labels := Labels("access_mode", mode)
	if kind != SELinuxPodError && kind != SELinuxPodWarning {
		labels = Labels("access_mode", mode, "volume_plugin", plugin)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.selinux[kind] == nil {
		o.selinux[kind] = map[string]int{}
	}
	o.selinux[kind][labels]++
}

// writeSELinux writes what was counted. The caller holds mu.
func (o *Operations) writeSELinux(w io.Writer) error {
	for kind, family := range selinuxFamilies {
		family.Values = o.selinux[kind]
		if err := family.Write(w); err != nil {
			return err
		}
	}
	return nil
}
