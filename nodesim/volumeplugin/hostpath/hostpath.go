// Package hostpath is the volume that shows a pod a path of its node. A simulated node
// is a directory, and its paths lie below that: the path /data on node n1 is
// nodes/n1/data in the state directory. Nothing of the machine outside is shown.
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/host-path"

// Plugin is the hostPath plugin of a node that lies at root.
type Plugin struct{ root string }

// New returns the plugin.
func New(root string) *Plugin { return &Plugin{root: root} }

// Resolve is where a path of the node lies.
func Resolve(root, path string) string {
	return filepath.Join(root, filepath.Clean("/"+path)) // cleaned as absolute, it cannot climb out
}

// Name is the qualified name.
func (p *Plugin) Name() string { return PluginName }

// Supports hostPath sources, of pods and of PVs.
func (p *Plugin) Supports(s *volumeplugin.Spec) bool {
	return s.Volume != nil && s.Volume.HostPath != nil || s.PV != nil && s.PV.Spec.HostPath != nil
}

// RequiresRemount is false.
func (p *Plugin) RequiresRemount(*volumeplugin.Spec) bool { return false }

// SupportsMountOptions is false.
func (p *Plugin) SupportsMountOptions() bool { return false }

// Reconstruct is never asked: the volume has no directory in the pod's.
func (p *Plugin) Reconstruct(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	return nil, fmt.Errorf("hostPath volume %s has nothing to reconstruct", inner)
}

// NewMounter prepares the check of the path.
func (p *Plugin) NewMounter(s *volumeplugin.Spec, _ *v1.Pod) (volumeplugin.Mounter, error) {
	src := (*v1.HostPathVolumeSource)(nil)
	if s.PV != nil {
		src = s.PV.Spec.HostPath
	} else {
		src = s.Volume.HostPath
	}
	m := &mounter{path: Resolve(p.root, src.Path), shown: src.Path}
	if src.Type != nil {
		m.kind = *src.Type
	}
	return m, nil
}

// NewUnmounter prepares nothing.
func (p *Plugin) NewUnmounter(string, types.UID) (volumeplugin.Unmounter, error) {
	return nothing{}, nil
}

type nothing struct{}

func (nothing) TearDown(context.Context) error { return nil }

type mounter struct {
	path  string
	shown string // as the pod has it
	kind  v1.HostPathType
}

func (m *mounter) Path() string { return m.path }

// SetUp makes what the type says, or checks that it is there.
func (m *mounter) SetUp(context.Context, volumeplugin.SetUpArgs) error {
	if err := m.make(); err != nil {
		return err
	}
	if m.kind == v1.HostPathUnset {
		return nil
	}
	fi, err := os.Stat(m.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	is, what := false, ""
	switch m.kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		is, what = err == nil && fi.IsDir(), "a directory"
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		is, what = err == nil && fi.Mode().IsRegular(), "a file"
	case v1.HostPathSocket:
		is, what = err == nil && fi.Mode()&fs.ModeSocket != 0, "a socket file"
	case v1.HostPathCharDev:
		is, what = err == nil && fi.Mode()&fs.ModeCharDevice != 0, "a character device"
	case v1.HostPathBlockDev:
		is, what = err == nil && fi.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice, "a block device"
	default:
		return fmt.Errorf("%s is an invalid volume type", m.kind)
	}
	if !is {
		return fmt.Errorf("hostPath type check failed: %s is not %s", m.shown, what)
	}
	return nil
}

func (m *mounter) make() error {
	if _, err := os.Lstat(m.path); err == nil {
		return nil
	}
	switch m.kind {
	case v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(m.path, 0o755)
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(m.path, os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}
