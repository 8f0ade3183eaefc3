package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

type mounter struct {
	p      *Plugin
	spec   *volumeplugin.Spec
	pod    *v1.Pod
	driver string
	handle string
	mode   string // lifecycle mode
}

// NewMounter prepares NodePublish for a pod.
func (p *Plugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	m := &mounter{p: p, spec: s, pod: pod, driver: driverOf(s)}
	switch {
	case s.PV != nil && s.PV.Spec.CSI != nil:
		m.handle, m.mode = s.PV.Spec.CSI.VolumeHandle, modePersist
	case s.Volume != nil && s.Volume.CSI != nil:
		m.handle, m.mode = InlineHandle(pod.UID, s.Volume.Name), modeInline
	default:
		return nil, fmt.Errorf("%s: volume source not found in volume.Spec", PluginName)
	}
	return m, nil
}

func (m *mounter) Path() string { return m.p.target(m.pod.UID, m.spec.Name()) }

// request is what SetUp gathers before it touches anything.
type request struct {
	csipb.NodePublishVolumeRequest
	access access
	group  bool // the driver applies fsGroup itself
	policy storagev1.FSGroupPolicy
}

// SetUp publishes the volume.
//
//	parent directory, data file, NodePublishVolume, ownership
//
// After a final error the mount directory and data file are gone again, unless the
// volume was there before: found on disk, or only refreshed.
func (m *mounter) SetUp(ctx context.Context, a volumeplugin.SetUpArgs) error {
	c, err := m.p.drivers.client(m.driver)
	if err != nil {
		return volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetUpAt failed to get CSI client: %w", PluginName, err))
	}
	life := ctx
	ctx, cancel := m.p.timeout(ctx)
	defer cancel()
	r, err := m.prepare(ctx, c, a)
	if err != nil {
		return err
	}
	h, target := m.p.host, m.Path()
	parent := filepath.Dir(target)
	data := map[string]string{
		keySpecName: m.spec.Name(), keyHandle: m.handle, keyDriver: m.driver, keyNode: h.Node, keyMode: m.mode,
		keyAttach: AttachmentName(m.handle, m.driver, h.Node),
	}
	r.access.label(a.SELinuxLabel, data)
	if err = saveData(parent, data); err != nil {
		m.p.cleanUp(target, m.handle)
		return err
	}
	h.Point(pointPublishData, m.handle)
	err = c.publish(ctx, r.access, &r.NodePublishVolumeRequest)
	h.Point(pointPublished, m.handle)
	if err != nil {
		if volumeplugin.ClassOf(err) == volumeplugin.Final && !a.Reconstructed && !a.Remount {
			m.p.cleanUp(target, m.handle)
		}
		return err
	}
	if !r.group && m.kubeletOwns(r, a) {
		own := volumeplugin.Ownership{Root: target, Group: *a.FSGroup, Policy: a.FSGroupChangePolicy, Volume: m.spec.Name(), Plugin: stats.PluginName(PluginName, m.driver), Warn: a.Warn}
		if err := own.Apply(life, h); err != nil {
			// It is mounted, and must be taken down when the pod goes.
			return volumeplugin.AsUncertain(fmt.Errorf("applyFSGroup failed for vol %s: %w", m.handle, err))
		}
		h.Point(pointOwned, m.handle)
	}
	return nil
}

// prepare makes the checks and lookups in the kubelet's order, and the parent directory.
func (m *mounter) prepare(ctx context.Context, c *client, a volumeplugin.SetUpArgs) (*request, error) {
	d, err := m.p.csiDriver(ctx, m.driver)
	if err == nil {
		err = m.allowed(d)
	}
	if err != nil {
		return nil, volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetupAt failed to check volume lifecycle mode: %w", PluginName, err))
	}
	r := &request{policy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	if d != nil {
		if d.Spec.FSGroupPolicy == nil || *d.Spec.FSGroupPolicy == "" {
			return nil, volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetupAt failed to check fsGroup policy: expected valid fsGroupPolicy, received nil value or empty string", PluginName))
		}
		r.policy = *d.Spec.FSGroupPolicy
	}
	r.VolumeId, r.TargetPath, r.Readonly = m.handle, m.Path(), m.spec.ReadOnly
	r.access.mode = v1.ReadWriteOnce
	secretRef, err := m.source(ctx, c, r)
	if err != nil {
		return nil, err
	}
	parent := filepath.Dir(m.Path())
	if err := os.MkdirAll(parent, dirMode); err != nil {
		return nil, fmt.Errorf("%s: mounter.SetUpAt failed to create dir %q: %w", PluginName, parent, err)
	}
	m.p.host.Point(pointPublishDir, m.handle)
	if secretRef != nil {
		if r.Secrets, err = m.p.secret(ctx, secretRef); err != nil {
			return nil, volumeplugin.AsTransient(fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", secretRef.Namespace, secretRef.Name, err))
		}
	}
	if d != nil && d.Spec.PodInfoOnMount != nil && *d.Spec.PodInfoOnMount {
		r.VolumeContext = merged(r.VolumeContext, podInfo(m.pod, m.mode))
	}
	tokens, err := m.tokens(ctx, d)
	if err != nil {
		return nil, volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetUpAt failed to get service account token attributes: %w", PluginName, err))
	}
	if d != nil && d.Spec.ServiceAccountTokenInSecrets != nil && *d.Spec.ServiceAccountTokenInSecrets {
		r.Secrets = merged(r.Secrets, tokens)
	} else {
		r.VolumeContext = merged(r.VolumeContext, tokens)
	}
	if r.group, err = c.has(ctx, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP); err != nil {
		return nil, volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: %w", PluginName, err))
	}
	if r.group {
		r.access.fsGroup = a.FSGroup
	}
	return r, nil
}

// source fills in what the two kinds of source say, and returns the publish secret.
func (m *mounter) source(ctx context.Context, c *client, r *request) (*v1.SecretReference, error) {
	if src := m.spec.Volume; src != nil {
		r.Readonly = src.CSI.ReadOnly != nil && *src.CSI.ReadOnly
		if src.CSI.FSType != nil {
			r.access.fsType = *src.CSI.FSType
		}
		r.VolumeContext = maps.Clone(src.CSI.VolumeAttributes)
		if src.CSI.NodePublishSecretRef == nil {
			return nil, nil
		}
		return &v1.SecretReference{Name: src.CSI.NodePublishSecretRef.Name, Namespace: m.pod.Namespace}, nil
	}
	src := m.spec.PV.Spec.CSI
	r.access = access{fsType: src.FSType, flags: m.spec.PV.Spec.MountOptions, mode: firstMode(m.spec.PV)}
	r.VolumeContext = maps.Clone(src.VolumeAttributes) // a copy: the pod's attributes are not the PV's
	stages, err := c.has(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return nil, fmt.Errorf("%s: mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability: %w", PluginName, err)
	}
	if stages {
		if r.StagingTargetPath, err = m.p.DeviceMountPath(m.spec); err != nil {
			return nil, err
		}
	}
	if r.PublishContext, err = m.p.publishContext(ctx, src.VolumeHandle, src.Driver); err != nil {
		return nil, volumeplugin.AsTransient(fmt.Errorf("%s: mounter.SetUpAt failed to fetch publishContext: %w", PluginName, err))
	}
	return src.NodePublishSecretRef, nil
}

// allowed checks the lifecycle mode against the CSIDriver. Without one only persistent volumes are allowed.
func (m *mounter) allowed(d *storagev1.CSIDriver) error {
	if d == nil {
		if m.mode == modePersist {
			return nil
		}
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", m.mode, m.driver)
	}
	if !slices.Contains(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleMode(m.mode)) {
		return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", m.mode, m.driver, d.Spec.VolumeLifecycleModes)
	}
	return nil
}

func podInfo(pod *v1.Pod, mode string) map[string]string {
	const prefix = "csi.storage.k8s.io/"
	return map[string]string{
		prefix + "pod.name": pod.Name, prefix + "pod.namespace": pod.Namespace, prefix + "pod.uid": string(pod.UID),
		prefix + "serviceAccount.name": pod.Spec.ServiceAccountName,
		prefix + "ephemeral":           strconv.FormatBool(mode == modeInline),
	}
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// unmounter takes down what the data file in the pod's directory describes.
type unmounter struct {
	p      *Plugin
	target string
	driver string
	handle string
}

// NewUnmounter reads the data file. Without it nothing can be taken down.
func (p *Plugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	data, err := loadData(p.volumeDir(uid, inner))
	if err != nil {
		return nil, fmt.Errorf("%s: unmounter failed to load volume data file: %w", PluginName, err)
	}
	if data[keyDriver] == "" || data[keyHandle] == "" {
		return nil, fmt.Errorf("%s: unmounter: volume data in %s names no driver or volume", PluginName, p.volumeDir(uid, inner))
	}
	return &unmounter{p: p, target: p.target(uid, inner), driver: data[keyDriver], handle: data[keyHandle]}, nil
}

// TearDown unpublishes and removes directory and data file. Whatever the error's
// code, the state is uncertain after it: unpublishing is never known not to have begun.
func (u *unmounter) TearDown(ctx context.Context) error {
	c, err := u.p.drivers.client(u.driver)
	if err != nil {
		return volumeplugin.AsTransient(fmt.Errorf("%s: Unmounter.TearDownAt failed to get CSI client: %w", PluginName, err))
	}
	ctx, cancel := u.p.timeout(ctx)
	defer cancel()
	h := u.p.host
	h.Point(pointUnpublish, u.handle)
	err = c.unpublish(ctx, u.handle, u.target)
	h.Point(pointUnpublished, u.handle)
	if err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed: %w", PluginName, err)
	}
	if err := removeMountDir(h, u.target, u.handle); err != nil {
		return errors.Join(fmt.Errorf("%s: Unmounter.TearDownAt failed to clean mount dir [%s]", PluginName, u.target), err)
	}
	return nil
}
