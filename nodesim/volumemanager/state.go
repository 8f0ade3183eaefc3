package volumemanager

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// VolumeState is one volume as the manager sees it, for people and checks.
type VolumeState struct {
	Name       UniqueName    `json:"name"`
	Volume     string        `json:"volume"` // inner name
	Plugin     string        `json:"plugin"`
	Attachable Attachability `json:"attachable,omitempty"` // empty if not in the actual state
	Device     DeviceState   `json:"device,omitempty"`
	DevicePath string        `json:"devicePath,omitempty"`
	MountPath  string        `json:"mountPath,omitempty"`
	Size       int64         `json:"size,omitempty"` // bytes, as the node knows it; zero if it does not
	InUse      bool          `json:"reportedInUse,omitempty"`
	Pods       []PodMount    `json:"pods,omitempty"`
	Operations []string      `json:"operations,omitempty"`
}

// PodMount is a volume in one pod.
type PodMount struct {
	UID     types.UID  `json:"uid"`
	Wanted  bool       `json:"wanted"`
	State   MountState `json:"state"`
	Path    string     `json:"path,omitempty"`
	Remount bool       `json:"remount,omitempty"`
	Found   bool       `json:"foundOnDisk,omitempty"`
	Locked  bool       `json:"locked,omitempty"` // the device is kept open
}

// State lists all volumes that are wanted or there, by name.
func (m *Manager) State() []VolumeState {
	by := map[UniqueName]*VolumeState{}
	entry := func(name UniqueName) *VolumeState {
		if by[name] == nil {
			by[name] = &VolumeState{Name: name}
		}
		return by[name]
	}
	for _, v := range m.actual.list(m.known()) {
		s := entry(v.Volume)
		s.Volume, s.Plugin, s.Attachable, s.Device, s.DevicePath, s.MountPath = v.Spec.Name(), v.Plugin, v.Attach, v.Device, v.DevicePath, v.MountPath
		s.Size = v.Size.Value()
	}
	for _, p := range m.actual.mounts(m.known()) {
		_, found, _ := m.actual.pair(p.Volume, p.UID)
		s := entry(p.Volume)
		s.Pods = append(s.Pods, PodMount{UID: p.UID, State: p.State, Path: p.Path, Found: found, Locked: m.locks.holds(key{p.Volume, p.UID})})
	}
	for _, w := range m.desired.list(m.known()) {
		s := entry(w.Volume)
		s.Volume, s.Plugin, s.InUse = w.Spec.Name(), w.Plugin, w.ReportedInUse
		i := slices.IndexFunc(s.Pods, func(p PodMount) bool { return p.UID == w.Pod.UID })
		if i < 0 {
			s.Pods = append(s.Pods, PodMount{UID: w.Pod.UID, State: NotMounted})
			i = len(s.Pods) - 1
		}
		s.Pods[i].Wanted = true
	}
	var out []VolumeState
	for name, s := range by {
		s.Operations = m.pending.describe(name)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b VolumeState) int { return compare(a.Name, b.Name) })
	return out
}

func compare(a, b UniqueName) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
