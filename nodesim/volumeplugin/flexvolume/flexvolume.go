// Package flexvolume serves volumes of FlexVolume drivers: programs on the node that
// are run with a command and its arguments, and print an answer in JSON.
//
// A driver vendor/name is the program
//
//	usr/libexec/kubernetes/kubelet-plugins/volume/exec/<vendor>~<name>/<name>
//
// below the node's directory. It is found when a pod first asks for it. The commands
// are init, getvolumename, attach, waitforattach, isattached, mountdevice,
// unmountdevice, detach, mount, unmount, expandvolume and expandfs; what a driver does not support is done as
// the kubelet does it, or left out.
//
// A driver with attachment is attached from its node, as a kubelet does that attaches
// by itself: no controller of the cluster can run programs.
package flexvolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// Dir is where a node's drivers lie, below its directory.
const Dir = volumeplugin.FlexDir

const callTimeout = 2 * time.Minute

// Plugin is one driver.
type Plugin struct {
	host    *volumeplugin.Host
	name    string // vendor/name
	program string
	caps    capabilities

	mu      sync.Mutex
	missing map[string]bool // guarded by mu: commands that the driver does not support
}

var _ volumeplugin.DeviceMounter = (*Plugin)(nil)

// Probe finds the drivers below a node's directory, and initializes those that known
// does not name. One that fails is passed over until the next probe.
func Probe(ctx context.Context, h *volumeplugin.Host, node string, known func(name string) bool) []volumeplugin.Plugin {
	var out []volumeplugin.Plugin
	root := filepath.Join(node, filepath.FromSlash(Dir))
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // a node without drivers
	}
	for _, e := range entries {
		name := strings.ReplaceAll(e.Name(), "~", "/")
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || known(name) {
			continue
		}
		p := &Plugin{host: h, name: name, program: filepath.Join(root, e.Name(), filepath.Base(name)), missing: map[string]bool{}}
		if err := p.init(ctx); err != nil {
			h.Log.Warn().Err(err).Str("driver", name).Msg("a FlexVolume driver does not start")
			continue
		}
		out = append(out, p)
	}
	return out
}

func (p *Plugin) init(ctx context.Context) error {
	a, err := p.call(ctx, "", "init")
	if err == nil && a.Capabilities != nil {
		p.caps = *a.Capabilities
	}
	return err
}

func (p *Plugin) lacks(command string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing[command]
}

func (p *Plugin) miss(command string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing[command] = true
}

// Name is vendor/name.
func (p *Plugin) Name() string { return p.name }

// Supports sources that name the driver.
func (p *Plugin) Supports(s *volumeplugin.Spec) bool {
	src, ok := sourceOf(s, "")
	return ok && src.driver == p.name
}

// RequiresRemount is false.
func (p *Plugin) RequiresRemount(*volumeplugin.Spec) bool { return false }

// SupportsMountOptions is false.
func (p *Plugin) SupportsMountOptions() bool { return false }

// Reconstruct knows the driver by the directory, and by its note that a device belongs
// to it; what else the source said is lost.
func (p *Plugin) Reconstruct(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	device, err := p.DeviceMountPath(p.skeleton(inner))
	if err == nil {
		_, err = os.Lstat(note(device))
	}
	if err != nil {
		return &volumeplugin.Spec{Volume: &v1.Volume{Name: inner, VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{Driver: p.name}}}}, nil
	}
	return p.skeleton(inner), nil
}

// NewMounter prepares the mount for a pod.
func (p *Plugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	return &mounter{p: p, spec: s, pod: pod}, nil
}

// NewUnmounter prepares its end.
func (p *Plugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	return unmounter{p: p, volume: inner, dir: p.host.Layout.PodVolume(uid, p.name, inner)}, nil
}

type mounter struct {
	p    *Plugin
	spec *volumeplugin.Spec
	pod  *v1.Pod
}

func (m *mounter) Path() string {
	return m.p.host.Layout.PodVolume(m.pod.UID, m.p.name, m.spec.Name())
}

// SetUp runs mount. A driver that leaves it to the kubelet gets its device's mount bound.
func (m *mounter) SetUp(ctx context.Context, a volumeplugin.SetUpArgs) error {
	p, dir, name := m.p, m.Path(), m.spec.Name()
	if not, err := p.host.Mounter.IsLikelyNotMountPoint(dir); err == nil && !not {
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of volume %s: %w", name, err)
	}
	options, err := p.options(ctx, m.spec, m.pod, a.FSGroup)
	if err == nil {
		_, err = p.call(ctx, name, "mount", dir, options)
	}
	if errors.Is(err, errNotSupported) {
		err = m.bind(ctx, dir)
	}
	if err != nil {
		os.Remove(dir)
		return err
	}
	p.host.Point(pointMounted, name)
	src, _ := sourceOf(m.spec, "")
	if a.FSGroup == nil || src.readOnly || !is(p.caps.FSGroup) {
		return nil
	}
	return volumeplugin.Ownership{Root: dir, Group: *a.FSGroup, Policy: a.FSGroupChangePolicy, Volume: name, Plugin: p.name, Warn: a.Warn}.Apply(ctx, p.host)
}

func (m *mounter) bind(ctx context.Context, dir string) error {
	if !m.p.DeviceMountable(m.spec) {
		return errNotSupported
	}
	device, err := m.p.DeviceMountPath(m.spec)
	if err != nil {
		return err
	}
	return m.p.host.Kernel(ctx, "mount", m.spec.Name(), func() error { return m.p.host.Mounter.Mount(device, dir, "", []string{"bind"}) })
}

type unmounter struct {
	p      *Plugin
	volume string
	dir    string
}

// TearDown runs unmount, or unmounts, and removes the empty directory.
func (u unmounter) TearDown(ctx context.Context) error {
	if _, err := os.Lstat(u.dir); os.IsNotExist(err) {
		return nil
	}
	_, err := u.p.call(ctx, u.volume, "unmount", u.dir)
	if errors.Is(err, errNotSupported) {
		err = u.p.host.Kernel(ctx, "unmount", u.volume, func() error { return u.p.host.Mounter.Unmount(u.dir) })
	}
	if err != nil {
		return err
	}
	u.p.host.Point(pointUnmounted, u.volume)
	if err := os.Remove(u.dir); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the directory of volume %s: %w", u.volume, err)
	}
	return nil
}
