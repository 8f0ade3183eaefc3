package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// mount brings a filesystem volume to a pod: checks, attachment, device, pod.
func (m *Manager) mount(ctx context.Context, w wanted, devicePath string, remount bool) error {
	name := w.Spec.Name()
	plugin, err := m.plugins.BySpec(w.Spec)
	if err != nil {
		return stepError("MountVolume.FindPluginBySpec failed", name, err)
	}
	if err := m.checkAffinity(w); err != nil {
		return stepError("MountVolume.NodeAffinity check failed", name, err)
	}
	mounter, err := plugin.NewMounter(w.Spec, w.Pod)
	if err != nil {
		return stepError("MountVolume.NewMounter initialization failed", name, err)
	}
	if w.Spec.PV != nil && len(w.Spec.PV.Spec.MountOptions) > 0 && !plugin.SupportsMountOptions() {
		return stepError("MountVolume.MountOptionSupport check failed", name, errors.New("Mount options are not supported for this volume type"))
	}
	if err := m.checkSingleUse(w); err != nil {
		return stepError("MountVolume.SetUp failed", name, err)
	}
	if a, _ := m.plugins.Attachable(w.Spec); a != nil {
		if devicePath, err = a.WaitForAttach(ctx, w.Spec); err != nil {
			return stepError("MountVolume.WaitForAttach failed", name, err)
		}
	}
	m.desired.markTried(w)
	group, policy := groupOf(w.Pod)
	if d := m.plugins.DeviceMountable(w.Spec); d != nil {
		if err := m.mountDevice(ctx, w, d, devicePath, group); err != nil {
			return err
		}
	}
	_, found, _ := m.actual.pair(w.Volume, w.Pod.UID)
	err = mounter.SetUp(ctx, volumeplugin.SetUpArgs{
		FSGroup: group, FSGroupChangePolicy: policy, SELinuxLabel: w.Label, SizeLimit: w.SizeLimit, Reconstructed: found, Remount: remount,
		Warn: func(reason, message string) { m.recorder.Event(w.Pod, v1.EventTypeWarning, reason, message) },
	})
	is := mark{uid: w.Pod.UID, spec: w.Spec, path: mounter.Path(), gid: w.GID, label: w.Label}
	if err != nil {
		m.warnMismatch(w, err)
		m.markMountError(w, is, err)
		return stepError("MountVolume.SetUp failed", name, err)
	}
	m.host.Point(pointMounted, name)
	if err := m.expandMounted(ctx, w, mounter.Path()); err != nil {
		// It is mounted and must be taken down with the pod, and not be used.
		m.logMark(m.actual.markMount(w.Volume, Uncertain, is))
		return stepError("MountVolume.Setup failed while expanding volume", name, err)
	}
	m.host.Operations.EndToEnd(metricName(w.Plugin, w.Spec), "overall_volume_mount", m.clock.Since(w.Requested))
	if err := m.actual.markMount(w.Volume, Mounted, is); err != nil {
		return stepError("MountVolume.MarkVolumeAsMounted failed", name, err)
	}
	return nil
}

// expandMounted expands a filesystem whose claim lags behind its PV.
func (m *Manager) expandMounted(ctx context.Context, w wanted, path string) error {
	args := volumeplugin.ExpandArgs{Path: path}
	if d := m.plugins.DeviceMountable(w.Spec); d != nil {
		var err error
		if args.StagePath, err = d.DeviceMountPath(w.Spec); err != nil {
			return err
		}
	}
	return m.expandDuringMount(ctx, w, args)
}

// mountDevice makes sure that the volume's own mount is there.
func (m *Manager) mountDevice(ctx context.Context, w wanted, d volumeplugin.DeviceMounter, devicePath string, group *int64) error {
	if v, _ := m.actual.get(w.Volume); v.Device == DeviceGloballyMounted {
		return nil
	}
	name := w.Spec.Name()
	path, err := d.DeviceMountPath(w.Spec)
	if err != nil {
		return stepError("MountVolume.GetDeviceMountPath failed", name, err)
	}
	err = d.MountDevice(ctx, w.Spec, devicePath, path, volumeplugin.DeviceArgs{FSGroup: group, SELinuxLabel: w.Label})
	if err != nil {
		m.warnMismatch(w, err)
		m.markDeviceError(w, devicePath, path, err)
		return stepError("MountVolume.MountDevice failed", name, err)
	}
	m.host.Point(pointDeviceMounted, name)
	if err := m.actual.markDevice(w.Volume, DeviceGloballyMounted, devicePath, path, w.Label); err != nil {
		return stepError("MountVolume.MarkDeviceAsMounted failed", name, err)
	}
	return nil
}

// markDeviceError: a final error clears an uncertainty of this life's making, an
// uncertain one makes one of what was down. A device that is up stays up.
func (m *Manager) markDeviceError(w wanted, devicePath, mountPath string, err error) {
	v, ok := m.actual.get(w.Volume)
	if !ok {
		return
	}
	_, _, found := m.actual.pair(w.Volume, w.Pod.UID)
	switch class := volumeplugin.ClassOf(err); {
	case class == volumeplugin.Final && v.Device == DeviceUncertain && !found:
		err = m.actual.markDeviceUnmounted(w.Volume)
	case class == volumeplugin.Uncertain && v.Device == DeviceNotMounted:
		err = m.actual.markDevice(w.Volume, DeviceUncertain, devicePath, mountPath, w.Label)
	default:
		return
	}
	m.logMark(err)
}

// markMountError is the same for a pod's mount. A mounted entry is never downgraded by a failed refresh.
func (m *Manager) markMountError(w wanted, is mark, err error) {
	state, found, _ := m.actual.pair(w.Volume, w.Pod.UID)
	switch class := volumeplugin.ClassOf(err); {
	case class == volumeplugin.Final && state == Uncertain && !found:
		err = m.actual.markUnmounted(w.Volume, w.Pod.UID)
	case class == volumeplugin.Uncertain && state == NotMounted:
		err = m.actual.markMount(w.Volume, Uncertain, is)
	default:
		return
	}
	m.logMark(err)
}

func (m *Manager) logMark(err error) {
	if err != nil {
		m.log.Error().Err(err).Msg("record the outcome of an operation")
	}
}

func (m *Manager) checkAffinity(w wanted) error {
	if w.Spec.PV == nil {
		return nil
	}
	return storagehelpers.CheckNodeAffinity(w.Spec.PV, m.host.NodeLabels())
}

// checkSingleUse refuses a second pod on a volume whose only mode is ReadWriteOncePod.
func (m *Manager) checkSingleUse(w wanted) error {
	if w.Spec.PV != nil && slices.Equal(w.Spec.PV.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}) &&
		m.actual.elsewhere(w.Volume, w.Pod.UID) {
		return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return nil
}

// warnMismatch puts an event on the PV if the disk holds another filesystem than the PV says.
func (m *Manager) warnMismatch(w wanted, err error) {
	var me mount.MountError
	if w.Spec.PV != nil && errors.As(err, &me) && me.Type == mount.FilesystemMismatch {
		m.recorder.Event(w.Spec.PV, v1.EventTypeWarning, "FailedMountOnFilesystemMismatch",
			fmt.Sprintf("MountVolume failed for volume %q : %v", w.Spec.Name(), err))
	}
}

func groupOf(pod *v1.Pod) (*int64, *v1.PodFSGroupChangePolicy) {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup, sc.FSGroupChangePolicy
	}
	return nil, nil
}
