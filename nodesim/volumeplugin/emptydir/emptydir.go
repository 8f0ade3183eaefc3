// Package emptydir is the volume that begins empty and lives as long as its pod: a
// plain directory, or a tmpfs for medium Memory. Other volumes wrap it to hold what
// they write.
//
// A marker outside the volume says that it is set up; so a restart does not do it
// again, and a volume whose marker is gone is being taken down.
package emptydir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

var (
	pointMade     = lab.Point{Component: "kubelet", Name: "after making an emptyDir, before it is marked as ready"}
	pointMarked   = lab.Point{Component: "kubelet", Name: "after an emptyDir is marked as ready, before it is recorded as mounted"}
	pointUnmarked = lab.Point{Component: "kubelet", Name: "after removing an emptyDir's marker, before its content"}
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point { return []lab.Point{pointMade, pointMarked, pointUnmarked} }

// PluginName is the qualified name of this plugin.
const PluginName = "kubernetes.io/empty-dir"

const marker = "ready"

// Plugin is the emptyDir plugin.
type Plugin struct{ host *volumeplugin.Host }

// New returns the plugin.
func New(h *volumeplugin.Host) *Plugin { return &Plugin{host: h} }

// Name is the qualified name.
func (p *Plugin) Name() string { return PluginName }

// Supports emptyDir sources.
func (p *Plugin) Supports(s *volumeplugin.Spec) bool {
	return s.Volume != nil && s.Volume.EmptyDir != nil
}

// RequiresRemount is false.
func (p *Plugin) RequiresRemount(*volumeplugin.Spec) bool { return false }

// SupportsMountOptions is false.
func (p *Plugin) SupportsMountOptions() bool { return false }

// Reconstruct needs no more than the name.
func (p *Plugin) Reconstruct(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	return &volumeplugin.Spec{Volume: &v1.Volume{Name: inner, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}, nil
}

// NewMounter prepares the directory of a pod's emptyDir.
func (p *Plugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	src := s.Volume.EmptyDir
	if src.Medium != v1.StorageMediumDefault && src.Medium != v1.StorageMediumMemory {
		return nil, fmt.Errorf("emptyDir medium %q: this node has no huge pages", src.Medium)
	}
	limit := int64(0)
	if src.SizeLimit != nil {
		limit = src.SizeLimit.Value()
	}
	return &Dir{
		Host: p.host, Name: s.Name(), Memory: src.Medium == v1.StorageMediumMemory, SizeLimit: limit, memoryLimit: memoryLimit(pod),
		path: p.host.Layout.PodVolume(pod.UID, PluginName, s.Name()), marker: p.host.Layout.PodPlugin(pod.UID, PluginName, s.Name()),
	}, nil
}

// NewUnmounter prepares its removal.
func (p *Plugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	return &Dir{Host: p.host, Name: inner, path: p.host.Layout.PodVolume(uid, PluginName, inner), marker: p.host.Layout.PodPlugin(uid, PluginName, inner)}, nil
}

// memoryLimit is the sum of the pod's memory limits if each container has one, else 0.
func memoryLimit(pod *v1.Pod) int64 {
	var sum int64
	for _, c := range pod.Spec.Containers {
		q, ok := c.Resources.Limits[v1.ResourceMemory]
		if !ok {
			return 0
		}
		sum += q.Value()
	}
	return sum
}

// Dir is one such directory.
type Dir struct {
	Host        *volumeplugin.Host
	Name        string // inner name
	Memory      bool
	SizeLimit   int64 // bytes, of a tmpfs; zero is none
	memoryLimit int64
	path        string
	marker      string // directory of the marker
}

// Wrap returns the directory in which another plugin keeps a pod's volume.
func Wrap(h *volumeplugin.Host, plugin string, uid types.UID, name string, memory bool) *Dir {
	return &Dir{Host: h, Name: name, Memory: memory, path: h.Layout.PodVolume(uid, plugin, name), marker: h.Layout.PodPlugin(uid, PluginName, "wrapped_"+name)}
}

// Path is the directory.
func (d *Dir) Path() string { return d.path }

// SetUp makes the directory, unless it is there and marked.
func (d *Dir) SetUp(ctx context.Context, a volumeplugin.SetUpArgs) error {
	isMount, err := d.mounted()
	if err != nil {
		return err
	}
	tmpfs := d.Memory && !d.Host.Simulated
	if d.ready() && (!tmpfs || isMount) {
		if _, err := os.Stat(d.path); err == nil {
			return nil
		}
	}
	if err := os.MkdirAll(d.path, 0o750); err != nil {
		return fmt.Errorf("make emptyDir %s: %w", d.Name, err)
	}
	if tmpfs && !isMount {
		if err := d.mountTmpfs(ctx); err != nil {
			return err
		}
	}
	if err := os.Chmod(d.path, 0o777); err != nil { // the process's umask must not count
		return fmt.Errorf("make emptyDir %s: %w", d.Name, err)
	}
	if a.FSGroup != nil {
		own := volumeplugin.Ownership{Root: d.path, Group: *a.FSGroup, Volume: d.Name, Plugin: "kubernetes.io/empty-dir", Warn: a.Warn}
		if err := own.Apply(ctx, d.Host); err != nil {
			return fmt.Errorf("apply fsGroup to emptyDir %s: %w", d.Name, err)
		}
	}
	d.Host.Point(pointMade, d.Name)
	if err := os.MkdirAll(d.marker, 0o750); err != nil {
		return fmt.Errorf("mark emptyDir %s as ready: %w", d.Name, err)
	}
	if err := os.WriteFile(filepath.Join(d.marker, marker), nil, 0o640); err != nil {
		return fmt.Errorf("mark emptyDir %s as ready: %w", d.Name, err)
	}
	d.Host.Point(pointMarked, d.Name)
	return nil
}

// mountTmpfs mounts memory, bounded by the smallest limit there is.
func (d *Dir) mountTmpfs(ctx context.Context) error {
	size := d.Host.Memory
	for _, limit := range []int64{d.SizeLimit, d.memoryLimit} {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	var options []string
	if size > 0 {
		options = append(options, fmt.Sprintf("size=%d", size))
	}
	err := d.Host.Kernel(ctx, "mount", d.Name, func() error {
		// Secrets must not come to lie in the swap; a kernel before 6.4 cannot promise that.
		err := d.Host.Mounter.Mount("tmpfs", d.path, "tmpfs", append([]string{"noswap"}, options...))
		if errors.Is(err, syscall.EINVAL) {
			err = d.Host.Mounter.Mount("tmpfs", d.path, "tmpfs", options)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mount tmpfs for volume %s: %w", d.Name, err)
	}
	return nil
}

func (d *Dir) ready() bool {
	_, err := os.Stat(filepath.Join(d.marker, marker))
	return err == nil
}

func (d *Dir) mounted() (bool, error) {
	not, err := d.Host.Mounter.IsLikelyNotMountPoint(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a mount at %s: %w", d.path, err)
	}
	return !not, nil
}

// TearDown removes the marker first, then the directory with all that is in it.
func (d *Dir) TearDown(ctx context.Context) error {
	for _, p := range []string{filepath.Join(d.marker, marker), d.marker} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove volume %s: %w", d.Name, err)
		}
	}
	d.Host.Point(pointUnmarked, d.Name)
	isMount, err := d.mounted()
	if err != nil {
		return err
	}
	if isMount {
		err := d.Host.Kernel(ctx, "unmount", d.Name, func() error { return d.Host.Mounter.Unmount(d.path) })
		if err != nil {
			return fmt.Errorf("unmount volume %s: %w", d.Name, err)
		}
	}
	if err := d.Host.RemoveTree(d.path); err != nil {
		return fmt.Errorf("remove volume %s: %w", d.Name, err)
	}
	return nil
}
