package volumemanager

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// metAgain tells whether a pod deals with a volume that could not be reconstructed: its
// SetUp repairs it. Until it has, the pod may go, and the volume is then no pod's again;
// the kubelet would have forgotten it by then, and the pod would be stuck.
func (m *Manager) metAgain(d onDisk) bool {
	name, wanted := m.desired.wantsInner(d.uid, d.inner)
	switch {
	case wanted:
		d.volume = name
		m.mu.Lock()
		for i := range m.failed {
			if m.failed[i].path == d.path {
				m.failed[i].volume = name
			}
		}
		m.mu.Unlock()
	case d.volume == "":
		return false
	}
	if state, _, _ := m.actual.pair(d.volume, d.uid); state != NotMounted {
		m.dropFailed(d)
		return true
	}
	return wanted
}

// damaged tells whether a pod has a directory that could not be reconstructed and was not dealt with.
func (m *Manager) damaged(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.failed, func(d onDisk) bool { return d.uid == uid })
}

// TakeOver tells the manager what the life before listed in use.
func (m *Manager) TakeOver(names []UniqueName) {
	m.mu.Lock()
	m.inherited = slices.Clone(names)
	m.mu.Unlock()
	m.MarkReported(names)
}

// mayBeDamaged lists what may be behind directories that could not be reconstructed:
// the volumes of pods that want them, and what was in use before and was not met
// since. The kubelet forgets these, and the controller may then detach what is still
// mounted. Known are the volumes that are wanted or there.
func (m *Manager) mayBeDamaged(known []UniqueName) []UniqueName {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read || len(m.failed) == 0 {
		return nil
	}
	m.inherited = slices.DeleteFunc(m.inherited, func(n UniqueName) bool { return slices.Contains(known, n) })
	out := slices.Clone(m.inherited)
	for _, d := range m.failed {
		if d.volume != "" {
			out = append(out, d.volume)
		}
	}
	return out
}

// cleanUpFailed deals with what could not be reconstructed and no pod wants. A volume
// that its PV still describes is entered after all and taken down by its driver; of
// any other the known files go.
func (m *Manager) cleanUpFailed(ctx context.Context) {
	m.mu.Lock()
	failed := slices.Clone(m.failed)
	m.mu.Unlock()
	for _, d := range failed {
		if m.metAgain(d) {
			continue
		}
		p, err := m.plugins.ByName(d.plugin)
		r, ok := p.(volumeplugin.Repairer)
		if err != nil || !ok {
			m.log.Error().Str("path", d.path).Msg("no plugin can clean up this directory; remove it by hand once nothing is mounted below it")
			m.dropFailed(d)
			continue
		}
		err = m.start(ctx, operationSpec{
			key: key{UniqueName(d.inner), d.uid}, pod: d.uid, name: opUnmount, plugin: d.plugin, volume: d.inner,
			work: func(ctx context.Context) error { return m.repair(ctx, r, d) },
		})
		if !expected(err) {
			m.logMark(err)
		}
	}
}

func (m *Manager) repair(ctx context.Context, r volumeplugin.Repairer, d onDisk) error {
	spec, err := r.Repair(ctx, d.uid, d.inner, d.path, d.block)
	m.host.Operations.ForceCleaned(err)
	if err != nil {
		return stepError("UnmountVolume.Repair failed", d.inner, err)
	}
	if spec != nil {
		name, err := m.enterPod(r, spec, d)
		if err != nil {
			return stepError("UnmountVolume.Repair failed", d.inner, err)
		}
		node, err := m.host.Client.CoreV1().Nodes().Get(ctx, m.host.Node, metav1.GetOptions{})
		if err != nil {
			return stepError("UnmountVolume.Repair failed", d.inner, err)
		}
		attached := slices.ContainsFunc(node.Status.VolumesAttached, func(a attachedVolume) bool { return a.Name == name })
		m.actual.confirm(name, attached, "")
	}
	m.dropFailed(d)
	return nil
}

func (m *Manager) dropFailed(d onDisk) {
	m.mu.Lock()
	m.failed = slices.DeleteFunc(m.failed, func(x onDisk) bool { return x.path == d.path })
	m.mu.Unlock()
	m.notify()
}
