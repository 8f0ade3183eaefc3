package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/subpath"
)

// unmount takes a filesystem volume from a pod, after the binds of its subPaths. After
// any error of the driver nobody knows how far it came.
func (m *Manager) unmount(ctx context.Context, v mountedVolume, u volumeplugin.Unmounter) error {
	if err := subpath.Clean(ctx, m.host, v.UID, v.Inner); err != nil {
		return stepError("error cleaning subPath mounts", string(v.Volume), err)
	}
	if err := u.TearDown(ctx); err != nil {
		m.logMark(m.actual.markMount(v.Volume, Uncertain, mark{uid: v.UID, spec: v.Spec, path: v.Path, gid: v.GID, label: v.Label}))
		return stepError("UnmountVolume.TearDown failed", string(v.Volume), err)
	}
	m.host.Point(pointUnmounted, v.Inner)
	m.clearStuck(v)
	if err := m.actual.markUnmounted(v.Volume, v.UID); err != nil {
		// One that could not be reconstructed has no entry; there is nothing to forget.
		m.log.Debug().Err(err).Str("volume", string(v.Volume)).Msg("record an unmount")
	}
	return nil
}

func (m *Manager) clearStuck(v mountedVolume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stuck, string(v.Volume)+"/"+string(v.UID))
}

// unmountDevice takes a volume's own mount down, unless a pod's mount still shares it.
func (m *Manager) unmountDevice(ctx context.Context, v have, d volumeplugin.DeviceMounter) error {
	name := v.Spec.Name()
	path, err := d.DeviceMountPath(v.Spec)
	if err != nil {
		return stepError("GetDeviceMountPath failed", name, err)
	}
	refs, err := d.DeviceMountRefs(path)
	if refs = foreignRefs(path, refs); err == nil && len(refs) > 0 {
		err = fmt.Errorf("the device mount path %q is still mounted by other references %v", path, refs)
	}
	if err != nil {
		return stepError("GetDeviceMountRefs check failed", name, err)
	}
	if err := d.UnmountDevice(ctx, v.Spec, path); err != nil {
		m.logMark(m.actual.markDevice(v.Volume, DeviceUncertain, v.DevicePath, path, v.Label))
		return stepError("UnmountDevice failed", name, err)
	}
	if err := m.deviceClosed(v.DevicePath); err != nil {
		m.logMark(m.actual.markDevice(v.Volume, DeviceUncertain, v.DevicePath, path, v.Label))
		return stepError("UnmountDevice failed", name, err)
	}
	m.host.Point(pointDeviceUnmounted, name)
	if err := m.actual.markDeviceUnmounted(v.Volume); err != nil {
		return stepError("MarkDeviceAsUnmounted failed", name, err)
	}
	return nil
}

// foreignRefs picks the references that are not the device mount itself under another name of the kubelet's root.
func foreignRefs(path string, refs []string) []string {
	tail := path
	if i := strings.Index(path, filepath.Join("plugins", "kubernetes.io")); i >= 0 {
		tail = path[i:]
	}
	var out []string
	for _, r := range refs {
		if !strings.HasSuffix(r, tail) {
			out = append(out, r)
		}
	}
	return out
}

// deviceClosed makes sure that nobody holds a real device open. CSI volumes name an
// attachment instead of a device, for which there is nothing to check.
func (m *Manager) deviceClosed(path string) error {
	if path == "" || !filepath.IsAbs(path) {
		return nil
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode()&os.ModeDevice == 0 {
		return nil
	}
	open, err := exclusivelyHeld(path)
	if err != nil {
		return err
	}
	if open {
		return errors.New("the device is in use when it was no longer expected to be in use")
	}
	return nil
}
