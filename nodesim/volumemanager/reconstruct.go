package volumemanager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// onDisk is a volume found in a pod's directory.
type onDisk struct {
	uid    types.UID
	inner  string
	plugin string
	path   string
	block  bool
	volume UniqueName // of what could not be reconstructed, once a pod that wants it has told; else empty
}

// reconstruct makes an actual state from the directories that an earlier life left.
// It runs before the first pass and needs no API. Whether anything is mounted is not
// looked at: every entry counts, as uncertain. So what is still wanted is staged and
// published again, and what is not is taken down once the gate is open.
//
// Beyond the kubelet, devices are found as well that no pod's directory tells of any
// more: a crash between the last unpublish and unstage leaks nothing.
func (m *Manager) reconstruct(_ context.Context) {
	var failed []onDisk
	names := map[UniqueName]bool{}
	for _, d := range m.scan() {
		name, err := m.reconstructOne(d)
		m.host.Operations.Reconstructed(err)
		if err != nil {
			m.log.Warn().Err(err).Str("pod", string(d.uid)).Str("volume", d.inner).Msg("volume on disk is damaged or unknown; its directory will be cleaned up if no pod wants it")
			failed = append(failed, d)
			continue
		}
		names[name] = true
	}
	for _, f := range m.findDevices() {
		p, err := m.plugins.BySpec(f.Spec)
		if err != nil {
			continue
		}
		name, err := m.plugins.UniqueNameOf(f.Spec, "")
		if err != nil {
			continue
		}
		m.enterFound(name, p, f.Spec)
		names[name] = true
		for _, uid := range f.Pods {
			if state, _, _ := m.actual.pair(name, uid); state == NotMounted {
				m.logMark(m.actual.markMount(name, Uncertain, mark{uid: uid, spec: f.Spec, label: f.Spec.Label, found: true}))
			}
		}
	}
	m.mu.Lock()
	m.read, m.failed = true, failed
	for name := range names {
		m.owed = append(m.owed, name)
	}
	slices.Sort(m.owed)
	m.mu.Unlock()
	m.host.Point(pointReconstructed, "")
}

// scan lists every entry below pods/*/volumes/<plugin> and pods/*/volumeDevices/<plugin>.
func (m *Manager) scan() []onDisk {
	var out []onDisk
	l := m.host.Layout
	for _, pod := range m.readDir(l.Pods()) {
		if !pod.IsDir() {
			continue
		}
		uid := types.UID(pod.Name())
		for parent, block := range map[string]bool{l.PodVolumes(uid): false, l.PodDevices(uid): true} {
			for _, plugin := range m.readDir(parent) {
				for _, v := range m.readDir(filepath.Join(parent, plugin.Name())) {
					out = append(out, onDisk{uid: uid, inner: v.Name(), plugin: volumeplugin.Unescape(plugin.Name()), block: block,
						path: filepath.Join(parent, plugin.Name(), v.Name())})
				}
			}
		}
	}
	return out
}

func (m *Manager) readDir(path string) []os.DirEntry {
	entries, err := os.ReadDir(path)
	if err != nil && !os.IsNotExist(err) {
		m.log.Error().Err(err).Msg("read volumes from disk")
	}
	return entries
}

func (m *Manager) reconstructOne(d onDisk) (UniqueName, error) {
	p, err := m.plugins.ByName(d.plugin)
	if err != nil {
		return "", err
	}
	var spec *volumeplugin.Spec
	if d.block {
		b, ok := p.(volumeplugin.BlockMapper)
		if !ok {
			return "", fmt.Errorf("plugin %s has no block volumes", d.plugin)
		}
		spec, err = b.ReconstructBlock(d.uid, d.inner, d.path)
	} else {
		spec, err = p.Reconstruct(d.uid, d.inner, d.path)
	}
	if err != nil {
		return "", err
	}
	return m.enterPod(p, spec, d)
}

// enterPod enters a pod's volume that was found on disk.
func (m *Manager) enterPod(p volumeplugin.Plugin, spec *volumeplugin.Spec, d onDisk) (UniqueName, error) {
	name, err := m.plugins.UniqueNameOf(spec, string(d.uid))
	if err != nil {
		return "", err
	}
	m.enterFound(name, p, spec)
	return name, m.actual.markMount(name, Uncertain, mark{uid: d.uid, spec: spec, label: spec.Label, found: true})
}

// enterFound enters a volume that was found on disk, with an uncertain device if it has one.
func (m *Manager) enterFound(name UniqueName, p volumeplugin.Plugin, spec *volumeplugin.Spec) {
	if _, known := m.actual.get(name); known {
		return
	}
	m.actual.markAttached(name, spec, p.Name(), "", AttachUnconfirmed)
	d := m.plugins.DeviceMountable(spec)
	if d == nil {
		return
	}
	path, err := d.DeviceMountPath(spec)
	if spec.Block() {
		path, err = "", nil
	}
	if err == nil {
		err = m.actual.markFoundDevice(name, path, spec.Label)
	}
	m.logMark(err)
}

func (m *Manager) findDevices() []volumeplugin.FoundDevice {
	var out []volumeplugin.FoundDevice
	for _, p := range m.plugins.All() {
		f, ok := p.(volumeplugin.DeviceFinder)
		if !ok {
			continue
		}
		found, err := f.FindDevices()
		if err != nil {
			m.log.Error().Err(err).Msg("look for devices left on disk")
		}
		out = append(out, found...)
	}
	return out
}

// confirmOwed reads the own Node to learn what is attached of what was found on disk.
// Once nothing is owed volumesInUse may be rewritten. It returns false if it is to be tried again.
func (m *Manager) confirmOwed(ctx context.Context) bool {
	m.mu.Lock()
	owed, synced := m.owed, m.synced
	m.mu.Unlock()
	if synced {
		return true
	}
	if len(owed) > 0 {
		node, err := m.host.Client.CoreV1().Nodes().Get(ctx, m.host.Node, metav1.GetOptions{})
		if err != nil {
			m.log.Debug().Err(err).Msg("read own node, to confirm attachments")
			return false
		}
		attached := map[UniqueName]string{}
		for _, a := range node.Status.VolumesAttached {
			attached[a.Name] = a.DevicePath
		}
		for _, name := range owed {
			path, is := attached[name]
			m.actual.confirm(name, is, path)
		}
	}
	m.mu.Lock()
	m.owed, m.synced = nil, true
	m.mu.Unlock()
	m.notify()
	return true
}
