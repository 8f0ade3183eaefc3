package flexvolume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

func point(name string) lab.Point { return lab.Point{Component: "kubelet", Name: name} }

var (
	pointNoted           = point("after noting a FlexVolume's name, before it is attached")
	pointAttached        = point("after a FlexVolume is attached, before its device is mounted")
	pointExpanded        = point("after a FlexVolume is expanded, before its filesystem is")
	pointMounted         = point("after a FlexVolume is mounted for a pod, before ownership is applied")
	pointUnmounted       = point("after a FlexVolume is unmounted from a pod, before its directory is removed")
	pointDeviceUnmounted = point("after a FlexVolume's device is unmounted, before it is detached")
	pointDetached        = point("after a FlexVolume is detached, before its directory is removed")
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point {
	return []lab.Point{pointNoted, pointAttached, pointExpanded, pointMounted, pointUnmounted, pointDeviceUnmounted, pointDetached}
}

var _ volumeplugin.DeviceFinder = (*Plugin)(nil)

// DeviceMountable is true for persistent volumes of a driver that attaches.
func (p *Plugin) DeviceMountable(s *volumeplugin.Spec) bool {
	return s.PV != nil && s.PV.Spec.FlexVolume != nil && is(p.caps.Attach)
}

// VolumeName is the PV's name. The driver's own name for the volume depends on options
// that no directory tells of after a restart; only attach and detach go by it.
func (p *Plugin) VolumeName(s *volumeplugin.Spec) (string, error) { return s.Name(), nil }

func (p *Plugin) ownName(ctx context.Context, s *volumeplugin.Spec, options string) (string, error) {
	a, err := p.call(ctx, s.Name(), "getvolumename", options)
	if errors.Is(err, errNotSupported) || err == nil && a.VolumeName == "" {
		return s.Name(), nil
	}
	return a.VolumeName, err
}

// note is the file beside a device's directory with the driver's name for the volume, and
// in a second line the device once that is known. It is there as long as the volume may be attached.
func note(path string) string { return path + ".name" }

// noted is what a note says.
type noted struct{ name, device string }

func readNote(path string) (noted, error) {
	b, err := os.ReadFile(note(path))
	name, device, _ := strings.Cut(string(b), "\n")
	return noted{name, device}, err
}

func (n noted) write(path string) error {
	text := n.name
	if n.device != "" {
		text += "\n" + n.device
	}
	if err := os.WriteFile(note(path)+newNote, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(note(path)+newNote, note(path))
}

// newNote ends the name of a note that is being written.
const newNote = ".new"

// FindDevices lists what may be attached, also if no pod's directory tells of it.
func (p *Plugin) FindDevices() ([]volumeplugin.FoundDevice, error) {
	notes, err := filepath.Glob(filepath.Join(p.host.Layout.Plugin("kubernetes.io/flexvolume"), p.name, "mounts", "*.name"))
	var out []volumeplugin.FoundDevice
	for _, n := range notes {
		out = append(out, volumeplugin.FoundDevice{Spec: p.skeleton(strings.TrimSuffix(filepath.Base(n), ".name"))})
	}
	return out, err
}

func (p *Plugin) skeleton(inner string) *volumeplugin.Spec {
	return &volumeplugin.Spec{PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: inner}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{Driver: p.name}}}}}
}

// DeviceMountPath is plugins/kubernetes.io/flexvolume/<driver>/mounts/<PV>.
func (p *Plugin) DeviceMountPath(s *volumeplugin.Spec) (string, error) {
	return filepath.Join(p.host.Layout.Plugin("kubernetes.io/flexvolume"), p.name, "mounts", s.Name()), nil
}

// DeviceMountRefs lists the other mounts of the device.
func (p *Plugin) DeviceMountRefs(path string) ([]string, error) {
	return p.host.Mounter.GetMountRefs(path)
}

// MountDevice attaches the volume, waits for its device and mounts that. A driver that
// lacks one of the commands has nothing to do there.
func (p *Plugin) MountDevice(ctx context.Context, s *volumeplugin.Spec, _, path string, a volumeplugin.DeviceArgs) error {
	name := s.Name()
	options, err := p.options(ctx, s, nil, a.FSGroup)
	if err != nil {
		return err
	}
	own, err := p.ownName(ctx, s, options)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("make the device's directory of volume %s: %w", name, err)
	}
	if err := (noted{name: own}).write(path); err != nil {
		return fmt.Errorf("note the name of volume %s: %w", name, err)
	}
	p.host.Point(pointNoted, name)
	at, err := p.call(ctx, name, "isattached", options, p.host.Node)
	if err != nil && !errors.Is(err, errNotSupported) {
		return volumeplugin.AsUncertain(err)
	}
	device := at.Device
	if !at.Attached {
		if at, err = p.call(ctx, name, "attach", options, p.host.Node); err != nil && !errors.Is(err, errNotSupported) {
			return volumeplugin.AsUncertain(err) // perhaps it is attached
		}
		p.host.Point(pointAttached, name)
		device = at.Device
	}
	at, err = p.call(ctx, name, "waitforattach", device, options)
	if err != nil && !errors.Is(err, errNotSupported) {
		return volumeplugin.AsUncertain(err)
	}
	if err == nil && at.Device != "" {
		device = at.Device
	}
	if err := (noted{own, device}).write(path); err != nil {
		return volumeplugin.AsUncertain(fmt.Errorf("note the device of volume %s: %w", name, err))
	}
	_, err = p.call(ctx, name, "mountdevice", path, device, options)
	if errors.Is(err, errNotSupported) {
		src, _ := sourceOf(s, "")
		err = p.host.Kernel(ctx, "mount", name, func() error { return p.host.Mounter.Mount(device, path, src.fsType, nil) })
	}
	if err != nil {
		return volumeplugin.AsUncertain(err) // it is attached, and must be detached
	}
	return nil
}

// UnmountDevice unmounts the device and detaches the volume.
func (p *Plugin) UnmountDevice(ctx context.Context, s *volumeplugin.Spec, path string) error {
	name := s.Name()
	if _, err := os.Lstat(path); err == nil {
		_, err := p.call(ctx, name, "unmountdevice", path)
		if errors.Is(err, errNotSupported) {
			err = p.host.Kernel(ctx, "unmount", name, func() error { return p.host.Mounter.Unmount(path) })
		}
		if err != nil {
			return err
		}
	}
	p.host.Point(pointDeviceUnmounted, name)
	own, err := readNote(path)
	if os.IsNotExist(err) {
		return nil // it is detached
	}
	if err != nil {
		return fmt.Errorf("read the name of volume %s: %w", name, err)
	}
	if _, err := p.call(ctx, name, "detach", own.name, p.host.Node); err != nil && !errors.Is(err, errNotSupported) {
		return err
	}
	p.host.Point(pointDetached, name)
	for _, file := range []string{path, note(path) + newNote, note(path)} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove the device's directory of volume %s: %w", name, err)
		}
	}
	return nil
}
