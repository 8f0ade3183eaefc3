package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

func (m *Manager) blockPlugin(name string) (volumeplugin.BlockMapper, error) {
	p, err := m.plugins.ByName(name)
	if err != nil {
		return nil, err
	}
	b, ok := p.(volumeplugin.BlockMapper)
	if !ok {
		return nil, fmt.Errorf("plugin %s has no block volumes", name)
	}
	return b, nil
}

// startMap begins to map a block volume. Affinity and preparation are checked first, so without a pause after a failure.
func (m *Manager) startMap(ctx context.Context, w wanted, devicePath string) error {
	name := w.Spec.Name()
	p, err := m.blockPlugin(w.Plugin)
	if err != nil {
		return stepError("MapVolume.FindMapperPluginBySpec failed", name, err)
	}
	if m.pending.blocked(podKey(w), opMap) {
		return errPaused
	}
	if err := m.checkAffinity(w); err != nil {
		err = stepError("MapVolume.NodeAffinity check failed", name, err)
		m.warn(w.Pod, "FailedMount")(err)
		return err
	}
	mapper, err := p.NewMapper(w.Spec, w.Pod)
	if err != nil {
		err = stepError("MapVolume.NewBlockVolumeMapper initialization failed", name, err)
		m.warn(w.Pod, "FailedMapVolume")(err)
		return err
	}
	return m.start(ctx, operationSpec{
		key: podKey(w), pod: w.Pod.UID, name: opMap, plugin: w.Plugin, spec: w.Spec, volume: name, failed: m.warn(w.Pod, "FailedMapVolume"),
		work: m.ifWanted(w, func(ctx context.Context) error { return m.mapVolume(ctx, w, mapper, devicePath) }),
	})
}

func (m *Manager) mapVolume(ctx context.Context, w wanted, mapper volumeplugin.Mapper, devicePath string) error {
	name := w.Spec.Name()
	if err := m.checkSingleUse(w); err != nil {
		return stepError("MapVolume.SetUpDevice failed", name, err)
	}
	var err error
	if a, _ := m.plugins.Attachable(w.Spec); a != nil {
		if devicePath, err = a.WaitForAttach(ctx, w.Spec); err != nil {
			return stepError("MapVolume.WaitForAttach failed", name, err)
		}
	}
	m.desired.markTried(w)
	global := mapper.GlobalMapPath()
	var staging string
	if v, _ := m.actual.get(w.Volume); v.Device != DeviceGloballyMounted {
		_, _, found := m.actual.pair(w.Volume, w.Pod.UID)
		if staging, err = mapper.SetUpDevice(ctx, found); err != nil {
			m.markDeviceError(w, devicePath, global, err)
			return stepError("MapVolume.SetUpDevice failed", name, err)
		}
		m.host.Point(pointDeviceMounted, name)
	}
	if err := m.actual.markDevice(w.Volume, DeviceGloballyMounted, devicePath, global, ""); err != nil {
		return stepError("MapVolume.MarkDeviceAsMounted failed", name, err)
	}
	is := mark{uid: w.Pod.UID, spec: w.Spec, gid: w.GID}
	published, err := mapper.MapPodDevice(ctx)
	if err != nil {
		m.markMountError(w, is, err)
		return stepError("MapVolume.MapPodDevice failed", name, err)
	}
	if err := m.expose(ctx, w, mapper, published, &is); err != nil {
		// It is published: it must be taken down when the pod goes, and not be used.
		m.markMountError(w, is, volumeplugin.AsUncertain(err))
		return stepError("MapVolume.MapBlockVolume failed", name, err)
	}
	for _, where := range []string{fmt.Sprintf("globalMapPath %q", global), fmt.Sprintf("volumeMapPath %q", filepath.Dir(is.path))} {
		m.recorder.Event(w.Pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q %s", name, where))
	}
	device, _ := m.actual.get(w.Volume)
	if err := m.expandDuringMount(ctx, w, volumeplugin.ExpandArgs{Path: device.DevicePath, StagePath: staging}); err != nil {
		m.logMark(m.actual.markMount(w.Volume, Uncertain, is))
		return stepError("MapVolume.MarkVolumeAsMounted failed while expanding volume", name, err)
	}
	if err := m.actual.markMount(w.Volume, Mounted, is); err != nil {
		return stepError("MapVolume.MarkVolumeAsMounted failed", name, err)
	}
	return nil
}

// expose binds the published device into the global map directory, links it into the
// pod, and keeps it open.
func (m *Manager) expose(ctx context.Context, w wanted, mapper volumeplugin.Mapper, published string, is *mark) error {
	device, err := filepath.EvalSymlinks(published)
	if err != nil {
		return err
	}
	if err := m.actual.markDevice(w.Volume, DeviceGloballyMounted, device, mapper.GlobalMapPath(), ""); err != nil {
		return err
	}
	bind := filepath.Join(mapper.GlobalMapPath(), string(w.Pod.UID))
	if err := m.bindDevice(ctx, w.Spec.Name(), published, bind); err != nil {
		return err
	}
	m.host.Point(pointGlobalBind, w.Spec.Name())
	dir, name := mapper.PodDeviceMapPath()
	link := filepath.Join(dir, name)
	is.path = link
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(device, link); err != nil {
		return err
	}
	m.host.Point(pointPodLink, w.Spec.Name())
	return m.locks.take(key{w.Volume, w.Pod.UID}, bind)
}

func (m *Manager) bindDevice(ctx context.Context, volume, source, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if bound, err := m.host.Mounter.IsMountPoint(target); err == nil && bound {
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDWR, 0o750)
	if err != nil {
		return err
	}
	f.Close()
	return m.host.Kernel(ctx, "mount", volume, func() error { return m.host.Mounter.Mount(source, target, "", []string{"bind"}) })
}

func (m *Manager) startUnmap(ctx context.Context, v mountedVolume) error {
	p, err := m.blockPlugin(v.Plugin)
	if err != nil {
		return stepError("UnmapVolume.FindMapperPluginByName failed", string(v.Volume), err)
	}
	u, err := p.NewUnmapper(v.Inner, v.UID)
	if err != nil {
		return stepError("UnmapVolume.NewUnmapper failed", string(v.Volume), err)
	}
	return m.start(ctx, operationSpec{
		key: key{v.Volume, v.UID}, pod: v.UID, name: opUnmap, plugin: v.Plugin, spec: v.Spec, volume: v.Inner,
		work: func(ctx context.Context) error { return m.unmap(ctx, v, u) },
	})
}

func (m *Manager) unmap(ctx context.Context, v mountedVolume, u volumeplugin.Unmapper) error {
	if err := m.actual.markMount(v.Volume, Uncertain, mark{uid: v.UID, spec: v.Spec, path: v.Path, gid: v.GID, label: v.Label}); err != nil {
		return stepError("UnmapVolume.MarkDeviceAsUncertain failed", string(v.Volume), err)
	}
	if err := m.locks.release(key{v.Volume, v.UID}); err != nil {
		return stepError("UnmapVolume.UnmapBlockVolume failed", string(v.Volume), err)
	}
	dir, name := u.PodDeviceMapPath()
	if err := removeLink(filepath.Join(dir, name)); err != nil {
		return stepError("UnmapVolume.UnmapBlockVolume failed", string(v.Volume), err)
	}
	m.host.Point(pointPodUnlinked, v.Inner)
	if err := m.unbindDevice(ctx, v.Inner, filepath.Join(u.GlobalMapPath(), string(v.UID))); err != nil {
		return stepError("UnmapVolume.UnmapBlockVolume failed", string(v.Volume), err)
	}
	m.host.Point(pointGlobalUnbound, v.Inner)
	if err := u.UnmapPodDevice(ctx); err != nil {
		return stepError("UnmapVolume.UnmapPodDevice failed", string(v.Volume), err)
	}
	m.host.Point(pointUnmapped, v.Inner)
	m.clearStuck(v)
	if err := m.actual.markUnmounted(v.Volume, v.UID); err != nil {
		m.log.Debug().Err(err).Str("volume", string(v.Volume)).Msg("record an unmap")
	}
	return nil
}

// removeLink removes a symbolic link, and nothing else.
func removeLink(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func (m *Manager) unbindDevice(ctx context.Context, volume, path string) error {
	bound, err := m.host.Mounter.IsMountPoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if bound {
		if err := m.host.Kernel(ctx, "unmount", volume, func() error { return m.host.Mounter.Unmount(path) }); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (m *Manager) startUnmapDevice(ctx context.Context, v have) error {
	p, err := m.blockPlugin(v.Plugin)
	if err != nil {
		return stepError("UnmapDevice.FindMapperPluginByName failed", v.Spec.Name(), err)
	}
	u, err := p.NewUnmapper(v.Spec.Name(), "")
	if err != nil {
		return stepError("UnmapDevice.NewUnmapper failed", v.Spec.Name(), err)
	}
	return m.start(ctx, operationSpec{
		key: key{v.Volume, ""}, name: opUnmapDevice, plugin: v.Plugin, spec: v.Spec, volume: v.Spec.Name(),
		work: func(ctx context.Context) error { return m.unmapDevice(ctx, v, u) },
	})
}

func (m *Manager) unmapDevice(ctx context.Context, v have, u volumeplugin.Unmapper) error {
	name, global := v.Spec.Name(), u.GlobalMapPath()
	refs, err := os.ReadDir(global)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stepError("UnmapDevice.GetDeviceBindMountRefs check failed", name, err)
	}
	if len(refs) > 0 {
		return stepError("UnmapDevice failed", name, fmt.Errorf("the device %q is still referenced from other Pods %v", global, refs))
	}
	if err := m.actual.markDevice(v.Volume, DeviceUncertain, v.DevicePath, global, ""); err != nil {
		return stepError("UnmapDevice.MarkDeviceAsUncertain failed", name, err)
	}
	if err := u.TearDownDevice(ctx, global, v.DevicePath); err != nil {
		return stepError("UnmapDevice.TearDownDevice failed", name, err)
	}
	if err := m.deviceClosed(v.DevicePath); err != nil {
		return stepError("UnmapDevice failed", name, err)
	}
	m.host.Point(pointDeviceUnmapped, name)
	if err := m.actual.markDeviceUnmounted(v.Volume); err != nil {
		return stepError("MarkDeviceAsUnmounted failed", name, err)
	}
	return nil
}
