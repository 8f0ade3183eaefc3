package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// DeviceMountable is true for every persistent CSI volume, attachable or not.
func (p *Plugin) DeviceMountable(s *volumeplugin.Spec) bool {
	return s.PV != nil && s.PV.Spec.CSI != nil
}

// VolumeName is driver and handle, so that two PVs of one volume are one volume.
func (p *Plugin) VolumeName(s *volumeplugin.Spec) (string, error) {
	src := s.PV.Spec.CSI
	return src.Driver + "^" + src.VolumeHandle, nil
}

// DeviceMountPath is where the volume is staged.
func (p *Plugin) DeviceMountPath(s *volumeplugin.Spec) (string, error) {
	if s == nil || s.PV == nil || s.PV.Spec.CSI == nil {
		return "", fmt.Errorf("%s: make device mount path: the volume has no CSI source", PluginName)
	}
	src := s.PV.Spec.CSI
	if src.Driver == "" || src.VolumeHandle == "" {
		return "", fmt.Errorf("%s: make device mount path: driver or volume handle is empty", PluginName)
	}
	return filepath.Join(p.host.Layout.Plugin(PluginName), src.Driver, StagingName(src.VolumeHandle), globalMount), nil
}

// DeviceMountRefs lists the other mounts of what is mounted at path.
func (p *Plugin) DeviceMountRefs(path string) ([]string, error) {
	return p.host.Mounter.GetMountRefs(path)
}

// MountDevice stages a volume.
//
//	directory, data file, NodeStageVolume
//
// After a final error directory and file are gone again; after an uncertain one
// they stay for the retry or for UnmountDevice.
func (p *Plugin) MountDevice(ctx context.Context, s *volumeplugin.Spec, _, path string, a volumeplugin.DeviceArgs) error {
	src := s.PV.Spec.CSI
	c, err := p.drivers.client(src.Driver)
	if err != nil {
		return volumeplugin.AsTransient(fmt.Errorf("%s: attacher.MountDevice failed to create newCsiDriverClient: %w", PluginName, err))
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	stages, err := c.has(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return err
	}
	req := &csipb.NodeStageVolumeRequest{VolumeId: src.VolumeHandle, StagingTargetPath: path, VolumeContext: src.VolumeAttributes}
	if req.PublishContext, err = p.publishContext(ctx, src.VolumeHandle, src.Driver); err != nil {
		return volumeplugin.AsTransient(err)
	}
	if src.NodeStageSecretRef != nil && stages {
		if req.Secrets, err = p.secret(ctx, src.NodeStageSecretRef); err != nil {
			return volumeplugin.AsTransient(fmt.Errorf("fetching NodeStageSecretRef %s/%s failed: %w", src.NodeStageSecretRef.Namespace, src.NodeStageSecretRef.Name, err))
		}
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return fmt.Errorf("%s: attacher.MountDevice failed to create dir %q: %w", PluginName, path, err)
	}
	p.host.Point(pointStageDir, src.VolumeHandle)
	if !stages {
		return nil // the directory stays: nothing will tell UnmountDevice of it, as in the kubelet
	}
	use := access{fsType: src.FSType, flags: s.PV.Spec.MountOptions, mode: firstMode(s.PV)}
	group, err := c.has(ctx, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	if err != nil {
		p.dropUnused(path)
		return volumeplugin.AsTransient(fmt.Errorf("%s: attacher.MountDevice failed to determine if the node service has VOLUME_MOUNT_GROUP capability: %w", PluginName, err))
	}
	if group {
		use.fsGroup = a.FSGroup
	}
	data := map[string]string{keyHandle: src.VolumeHandle, keyDriver: src.Driver}
	use.label(a.SELinuxLabel, data)
	if err := saveData(filepath.Dir(path), data); err != nil {
		p.cleanUp(path, src.VolumeHandle)
		return err
	}
	p.host.Point(pointStageData, src.VolumeHandle)
	err = c.stage(ctx, use, req)
	p.host.Point(pointStaged, src.VolumeHandle)
	if err != nil && volumeplugin.ClassOf(err) == volumeplugin.Final {
		p.cleanUp(path, src.VolumeHandle)
	}
	return err
}

// dropUnused removes the directory of a volume for which nothing has been asked yet:
// no data file says that there is anything to unstage. What is not empty stays.
func (p *Plugin) dropUnused(path string) {
	if _, err := os.Lstat(filepath.Join(filepath.Dir(path), dataFile)); errors.Is(err, fs.ErrNotExist) && os.Remove(path) == nil {
		os.Remove(filepath.Dir(path))
	}
}

// cleanUp removes what was made for a volume that did not come up. What it can't remove it leaves to the next try.
func (p *Plugin) cleanUp(path, volume string) {
	if err := removeMountDir(p.host, path, volume); err != nil {
		p.host.Log.Warn().Err(err).Str("volume", volume).Msg("clean up after a failed mount")
	}
}

// UnmountDevice unstages the volume whose data file lies beside path. Without that
// file it was done already; a damaged one is replaced by what the spec says.
func (p *Plugin) UnmountDevice(ctx context.Context, s *volumeplugin.Spec, path string) error {
	data, err := loadData(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		if s == nil || s.PV == nil || s.PV.Spec.CSI == nil {
			return err
		}
		p.host.Log.Warn().Err(err).Msg("volume data of a staged volume is damaged; going by what is known of it")
		data = map[string]string{keyDriver: s.PV.Spec.CSI.Driver, keyHandle: s.PV.Spec.CSI.VolumeHandle}
	}
	handle := data[keyHandle]
	c, err := p.drivers.client(data[keyDriver])
	if err != nil {
		return volumeplugin.AsTransient(fmt.Errorf("%s: attacher.UnmountDevice failed to create newCsiDriverClient: %w", PluginName, err))
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	stages, err := c.has(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return fmt.Errorf("%s: attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set: %w", PluginName, err)
	}
	if stages {
		p.host.Point(pointUnstage, handle)
		err = c.unstage(ctx, handle, path)
		p.host.Point(pointUnstaged, handle)
		if err != nil {
			return fmt.Errorf("%s: attacher.UnmountDevice failed: %w", PluginName, err)
		}
	}
	if err := removeMountDir(p.host, path, handle); err != nil {
		return fmt.Errorf("%s: failed to clean up global mount %s: %w", PluginName, filepath.Dir(path), err)
	}
	return nil
}
