package volumemanager

import v1 "k8s.io/api/core/v1"

// Patient is a CSI volume of a pod whose driver can be asked how it is: one that is up,
// or that something was done for to bring it up. An inline volume is never asked about.
type Patient struct {
	Pod       *v1.Pod
	Volume    string // the pod's name for it; the first one if it has several
	Inner     string
	Driver    string
	Handle    string
	Staged    string // where the volume is or may be mounted for itself; empty if nowhere
	Published string // where it is or may be mounted for the pod; empty for block volumes
	Block     bool
	Mounted   bool
}

// Patients lists them, by volume and pod.
func (m *Manager) Patients() []Patient {
	var out []Patient
	for _, w := range m.desired.list(m.known()) {
		if w.Spec.PV == nil || w.Spec.PV.Spec.CSI == nil || len(w.Outer) == 0 {
			continue
		}
		state, _, _ := m.actual.pair(w.Volume, w.Pod.UID)
		if state == NotMounted && !w.Tried {
			continue
		}
		p := Patient{Pod: w.Pod, Volume: w.Outer[0], Inner: w.Spec.Name(), Driver: w.Spec.PV.Spec.CSI.Driver, Handle: w.Spec.PV.Spec.CSI.VolumeHandle,
			Block: w.Spec.Block(), Mounted: state == Mounted}
		if v, ok := m.actual.get(w.Volume); ok {
			p.Staged = v.MountPath
		}
		if !p.Block {
			p.Published, _ = m.actual.pathFor(w.Volume, w.Pod.UID)
		}
		out = append(out, p)
	}
	return out
}
