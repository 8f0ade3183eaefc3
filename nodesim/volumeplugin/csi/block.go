package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

var (
	pointBlockData        = point("after writing a block volume's vol_data.json, before NodeStage")
	pointBlockStageDir    = point("after making a block volume's staging directory, before NodeStage")
	pointBlockStaged      = point("after NodeStage of a block volume, before the device is recorded as mounted")
	pointBlockPublished   = point("after NodePublish of a block volume, before its device is mapped")
	pointBlockUnpublished = point("after NodeUnpublish of a block volume, before it is recorded as unmapped")
	pointBlockUnstaged    = point("after NodeUnstage of a block volume, before its directories are removed")
	pointBlockRemoved     = point("after removing one directory of a block volume, before the next")
)

func blockPoints() []lab.Point {
	return []lab.Point{pointBlockData, pointBlockStageDir, pointBlockStaged, pointBlockPublished,
		pointBlockUnpublished, pointBlockUnstaged, pointBlockRemoved}
}

// block maps one volume as a device, or takes it away. The directories are named by the PV:
//
//	volumeDevices/<PV>/data/vol_data.json   what tearing down needs
//	volumeDevices/<PV>/dev/<pod>            bind of the device file
//	volumeDevices/staging/<PV>              staging path
//	volumeDevices/publish/<PV>/<pod>        publish path, made by the driver
type block struct {
	p      *Plugin
	inner  string
	uid    types.UID
	driver string
	handle string
	spec   *volumeplugin.Spec // nil on the way down
	pod    *v1.Pod            // nil on the way down
}

func (b *block) dir() string {
	return filepath.Join(b.p.host.Layout.VolumeDevices(PluginName), volumeplugin.Escape(b.inner))
}
func (b *block) data() string          { return filepath.Join(b.dir(), "data") }
func (b *block) GlobalMapPath() string { return filepath.Join(b.dir(), "dev") }
func (b *block) staging() string {
	return filepath.Join(b.p.host.Layout.VolumeDevices(PluginName), "staging", b.inner)
}
func (b *block) StagingPath() string { return b.staging() }
func (b *block) publishDir() string {
	return filepath.Join(b.p.host.Layout.VolumeDevices(PluginName), "publish", b.inner)
}
func (b *block) target() string { return filepath.Join(b.publishDir(), string(b.uid)) }

func (b *block) PodDeviceMapPath() (dir, name string) {
	return filepath.Join(b.p.host.Layout.PodDevices(b.uid), volumeplugin.Escape(PluginName)), b.inner
}

// NewMapper writes the volume's data file, also for a volume that was found on disk.
func (p *Plugin) NewMapper(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mapper, error) {
	if s.PV == nil || s.PV.Spec.CSI == nil {
		return nil, fmt.Errorf("%s: a block volume needs a persistent volume", PluginName)
	}
	src := s.PV.Spec.CSI
	b := &block{p: p, inner: s.Name(), uid: pod.UID, pod: pod, driver: src.Driver, handle: src.VolumeHandle, spec: s}
	if err := os.MkdirAll(b.data(), dirMode); err != nil {
		return nil, fmt.Errorf("%s: failed to create data dir %s: %w", PluginName, b.data(), err)
	}
	if err := saveData(b.data(), map[string]string{
		keySpecName: s.Name(), keyHandle: src.VolumeHandle, keyDriver: src.Driver, keyNode: p.host.Node,
		keyAttach: AttachmentName(src.VolumeHandle, src.Driver, p.host.Node),
	}); err != nil {
		return nil, err
	}
	p.host.Point(pointBlockData, src.VolumeHandle)
	return b, nil
}

// NewUnmapper reads the volume's data file.
func (p *Plugin) NewUnmapper(inner string, uid types.UID) (volumeplugin.Unmapper, error) {
	b := &block{p: p, inner: inner, uid: uid}
	data, err := loadData(b.data())
	if err != nil {
		return nil, fmt.Errorf("%s: unmapper failed to load volume data file: %w", PluginName, err)
	}
	b.driver, b.handle = data[keyDriver], data[keyHandle]
	return b, nil
}

// Forget removes the directories of a volume that is not in use, as far as they are empty but for the data file.
func (p *Plugin) Forget(inner string) error { return (&block{p: p, inner: inner}).removeDirs() }

// ReconstructBlock reads the volume's data file.
func (p *Plugin) ReconstructBlock(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	data, err := loadData((&block{p: p, inner: inner}).data())
	if err != nil {
		return nil, err
	}
	return specFromData(data, v1.PersistentVolumeBlock)
}

func (b *block) client() (*client, error) {
	c, err := b.p.drivers.client(b.driver)
	if err != nil {
		return nil, volumeplugin.AsTransient(fmt.Errorf("%s: blockMapper failed to get CSI client: %w", PluginName, err))
	}
	return c, nil
}

// SetUpDevice stages the volume; without staging by the driver it does nothing. After a
// final error its directories go, unless the device was found on disk: it may be staged,
// and without the data file nobody could unstage it. The kubelet removes them all the same.
func (b *block) SetUpDevice(ctx context.Context, found bool) (string, error) {
	src := b.spec.PV.Spec.CSI
	pub, err := b.p.publishContext(ctx, b.handle, b.driver)
	if err != nil {
		return "", volumeplugin.AsTransient(fmt.Errorf("%s: blockMapper.SetupDevice failed to get volume attachment: %w", PluginName, err))
	}
	c, err := b.client()
	if err != nil {
		return "", err
	}
	ctx, cancel := b.p.timeout(ctx)
	defer cancel()
	stages, err := c.has(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return "", fmt.Errorf("%s: blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: %w", PluginName, err)
	}
	if !stages {
		return "", nil
	}
	r := &csipb.NodeStageVolumeRequest{VolumeId: b.handle, PublishContext: pub, StagingTargetPath: b.staging(), VolumeContext: src.VolumeAttributes}
	if src.NodeStageSecretRef != nil {
		if r.Secrets, err = b.p.secret(ctx, src.NodeStageSecretRef); err != nil {
			return "", volumeplugin.AsTransient(err)
		}
	}
	if err := os.MkdirAll(b.staging(), dirMode); err != nil {
		return "", fmt.Errorf("%s: blockMapper.stageVolumeForBlock failed to create dir %s: %w", PluginName, b.staging(), err)
	}
	b.p.host.Point(pointBlockStageDir, b.handle)
	err = c.stage(ctx, access{block: true, mode: firstMode(b.spec.PV)}, r)
	b.p.host.Point(pointBlockStaged, b.handle)
	if err != nil {
		if volumeplugin.ClassOf(err) == volumeplugin.Final && !found {
			if e := b.removeDirs(); e != nil {
				b.p.host.Log.Warn().Err(e).Str("volume", b.handle).Msg("clean up after a failed stage")
			}
		}
		return "", err
	}
	return b.staging(), nil
}

// MapPodDevice publishes the volume. The staging path is sent even to a driver without staging.
func (b *block) MapPodDevice(ctx context.Context) (string, error) {
	src := b.spec.PV.Spec.CSI
	pub, err := b.p.publishContext(ctx, b.handle, b.driver)
	if err != nil {
		return "", volumeplugin.AsTransient(fmt.Errorf("%s: blockMapper.MapPodDevice failed to get volume attachment: %w", PluginName, err))
	}
	c, err := b.client()
	if err != nil {
		return "", err
	}
	ctx, cancel := b.p.timeout(ctx)
	defer cancel()
	r := &csipb.NodePublishVolumeRequest{VolumeId: b.handle, PublishContext: pub, StagingTargetPath: b.staging(), TargetPath: b.target(),
		Readonly: b.spec.ReadOnly, VolumeContext: maps.Clone(src.VolumeAttributes)}
	d, err := b.p.csiDriver(ctx, b.driver)
	if err != nil {
		return "", volumeplugin.AsTransient(fmt.Errorf("%s: blockMapper.publishVolumeForBlock failed to assemble volume attributes: %w", PluginName, err))
	}
	if d != nil && d.Spec.PodInfoOnMount != nil && *d.Spec.PodInfoOnMount {
		r.VolumeContext = merged(r.VolumeContext, podInfo(b.pod, modePersist))
	}
	if src.NodePublishSecretRef != nil {
		if r.Secrets, err = b.p.secret(ctx, src.NodePublishSecretRef); err != nil {
			return "", volumeplugin.AsTransient(err)
		}
	}
	if err := os.MkdirAll(b.publishDir(), dirMode); err != nil {
		return "", fmt.Errorf("%s: blockMapper.publishVolumeForBlock failed to create dir %s: %w", PluginName, b.publishDir(), err)
	}
	err = c.publish(ctx, access{block: true, mode: firstMode(b.spec.PV)}, r)
	b.p.host.Point(pointBlockPublished, b.handle)
	if err != nil {
		return "", err
	}
	return b.target(), nil
}

// UnmapPodDevice unpublishes the volume.
func (b *block) UnmapPodDevice(ctx context.Context) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	ctx, cancel := b.p.timeout(ctx)
	defer cancel()
	err = c.unpublish(ctx, b.handle, b.target())
	b.p.host.Point(pointBlockUnpublished, b.handle)
	if err != nil {
		return fmt.Errorf("%s: blockMapper.unpublishVolumeForBlock failed: %w", PluginName, err)
	}
	return nil
}

// TearDownDevice unstages the volume, unless its staging directory is gone, and removes its directories.
func (b *block) TearDownDevice(ctx context.Context, _, _ string) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	ctx, cancel := b.p.timeout(ctx)
	defer cancel()
	if _, err := os.Lstat(b.staging()); err == nil {
		stages, err := c.has(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
		if err != nil {
			return fmt.Errorf("%s: blockMapper.unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: %w", PluginName, err)
		}
		if stages {
			err := c.unstage(ctx, b.handle, b.staging())
			b.p.host.Point(pointBlockUnstaged, b.handle)
			if err != nil {
				return fmt.Errorf("%s: blockMapper.unstageVolumeForBlock failed: %w", PluginName, err)
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.removeDirs(); err != nil {
		b.p.host.Log.Warn().Err(err).Str("volume", b.handle).Msg("remove the directories of a block volume")
	}
	return nil
}

// removeDirs removes the directories of a volume that no pod uses, one by one: what is not empty stays.
// The data file goes last, since it says what the rest is.
func (b *block) removeDirs() error {
	for _, path := range []string{
		b.publishDir(), b.staging(), b.GlobalMapPath(), filepath.Join(b.data(), dataFile), b.data(), b.dir(),
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: clean up after volume %s: %w", PluginName, b.handle, err)
		}
		b.p.host.Point(pointBlockRemoved, b.handle)
	}
	return nil
}
