// Package content is what configMap, secret, downwardAPI and projected volumes have
// in common: a directory whose files are written from API objects, and refreshed as a
// whole at each sync of the pod.
package content

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/emptydir"
)

// Kind is one kind of such volumes.
type Kind struct {
	// PluginName is the qualified name.
	PluginName string
	// Memory says that the files are kept in memory where the node has it.
	Memory bool
	// Is tells whether a source is of this kind.
	Is func(*v1.Volume) bool
	// Empty makes a source of this kind, for a volume found on disk.
	Empty func() v1.VolumeSource
	// Files reads what the volume is to hold. Paths are slash-separated and relative.
	Files func(ctx context.Context, v *v1.Volume, pod *v1.Pod) (map[string]File, error)
}

// Plugin is the plugin of one kind.
type Plugin struct {
	host *volumeplugin.Host
	kind Kind
}

// New returns the plugin of a kind.
func New(h *volumeplugin.Host, k Kind) *Plugin { return &Plugin{host: h, kind: k} }

// Name is the qualified name.
func (p *Plugin) Name() string { return p.kind.PluginName }

// Supports sources of the kind.
func (p *Plugin) Supports(s *volumeplugin.Spec) bool { return s.Volume != nil && p.kind.Is(s.Volume) }

// RequiresRemount is true: the objects may have changed.
func (p *Plugin) RequiresRemount(*volumeplugin.Spec) bool { return true }

// SupportsMountOptions is false.
func (p *Plugin) SupportsMountOptions() bool { return false }

// Reconstruct needs no more than the name.
func (p *Plugin) Reconstruct(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	return &volumeplugin.Spec{Volume: &v1.Volume{Name: inner, VolumeSource: p.kind.Empty()}}, nil
}

// NewMounter prepares the writing of a pod's files.
func (p *Plugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	return &mounter{p: p, volume: s.Volume, pod: pod, dir: p.dir(pod.UID, s.Name())}, nil
}

// NewUnmounter prepares their removal.
func (p *Plugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	return p.dir(uid, inner), nil
}

func (p *Plugin) dir(uid types.UID, inner string) *emptydir.Dir {
	return emptydir.Wrap(p.host, p.kind.PluginName, uid, inner, p.kind.Memory)
}

type mounter struct {
	p      *Plugin
	volume *v1.Volume
	pod    *v1.Pod
	dir    *emptydir.Dir
}

func (m *mounter) Path() string { return m.dir.Path() }

// SetUp reads the objects first, so that a missing one leaves nothing behind; then it makes the directory and writes.
func (m *mounter) SetUp(ctx context.Context, a volumeplugin.SetUpArgs) error {
	files, err := m.p.kind.Files(ctx, m.volume, m.pod)
	if err != nil {
		return err
	}
	group := a.FSGroup
	a.FSGroup = nil // the files get it, once they are there
	if err := m.dir.SetUp(ctx, a); err != nil {
		return err
	}
	changed, err := write(m.dir.Path(), m.p.host.Lab.Clock.Now().UTC().Format("2006_01_02_15_04_05"), files,
		func(point lab.Point) { m.p.host.Point(point, m.volume.Name) })
	if err != nil {
		return err
	}
	if group != nil && (changed || !a.Remount) {
		own := volumeplugin.Ownership{Root: m.dir.Path(), Group: *group, Volume: m.volume.Name, Plugin: m.p.kind.PluginName, Warn: a.Warn}
		return own.Apply(ctx, m.p.host)
	}
	return nil
}
