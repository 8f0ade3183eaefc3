// Package csi brings up and takes down volumes of CSI drivers on a node.
//
// It speaks to a driver over the socket that the driver registered, and to the
// Kubernetes API for attachments, secrets, tokens and CSIDriver objects. What it
// needs in order to take a volume down it writes to vol_data.json before it asks the
// driver to bring the volume up; so a crash at any place leaves enough behind.
//
// The drivers' endpoints are the only state; they are lost with the kubelet and come
// back by registration. See [Plugin.Register].
package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// Plugin is the CSI plugin of one node in one kubelet's life. Close ends it.
type Plugin struct {
	host    *volumeplugin.Host
	drivers drivers
	wake    chan struct{} // of KeepCounts
	// Refresh asks a driver again how many volumes fit and tells the scheduler. Set before use; may be nil.
	Refresh func(ctx context.Context, driver string) error
}

var (
	_ volumeplugin.Attacher      = (*Plugin)(nil)
	_ volumeplugin.DeviceMounter = (*Plugin)(nil)
	_ volumeplugin.BlockMapper   = (*Plugin)(nil)
	_ volumeplugin.Repairer      = (*Plugin)(nil)
)

// New returns a plugin that knows no driver yet.
func New(h *volumeplugin.Host) *Plugin {
	return &Plugin{host: h, drivers: drivers{host: h}, wake: make(chan struct{}, 1)}
}

// Close drops the connections to all drivers.
func (p *Plugin) Close() { p.drivers.close() }

// Register makes a driver known by its endpoint.
func (p *Plugin) Register(driver, endpoint, version string) {
	p.drivers.set(driver, endpoint, version)
	p.DriversChanged()
}

// Unregister forgets a driver.
func (p *Plugin) Unregister(driver string) {
	p.drivers.remove(driver)
	p.DriversChanged()
}

// Registered returns the protocol version a driver registered with.
func (p *Plugin) Registered(driver string) (version string, ok bool) {
	return p.drivers.version(driver)
}

// Names lists the drivers that are registered.
func (p *Plugin) Names() []string { return p.drivers.names() }

// NodeInfo asks a registered driver who this node is.
func (p *Plugin) NodeInfo(ctx context.Context, driver string) (*csipb.NodeGetInfoResponse, error) {
	c, err := p.drivers.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	r, err := c.node.NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
	c.done(err)
	return r, err
}

func (p *Plugin) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return volumeplugin.WithTimeout(ctx, p.host.Lab.Clock, callTimeout)
}

// Name is the qualified name.
func (p *Plugin) Name() string { return PluginName }

// Supports any spec with a CSI source.
func (p *Plugin) Supports(s *volumeplugin.Spec) bool {
	return s.PV != nil && s.PV.Spec.CSI != nil || s.Volume != nil && s.Volume.CSI != nil
}

// SupportsMountOptions is true; the options go to the driver.
func (p *Plugin) SupportsMountOptions() bool { return true }

// RequiresRemount follows CSIDriver.spec.requiresRepublish.
func (p *Plugin) RequiresRemount(s *volumeplugin.Spec) bool {
	d, err := p.csiDriver(p.host.Life, driverOf(s))
	return err == nil && d != nil && d.Spec.RequiresRepublish != nil && *d.Spec.RequiresRepublish
}

// Attachable is false for inline volumes and for drivers whose CSIDriver says so. A missing CSIDriver means attachable.
func (p *Plugin) Attachable(s *volumeplugin.Spec) (bool, error) {
	if s.PV == nil {
		return false, nil
	}
	skip, err := p.skipAttach(p.host.Life, driverOf(s))
	return !skip, err
}

func (p *Plugin) skipAttach(ctx context.Context, driver string) (bool, error) {
	d, err := p.csiDriver(ctx, driver)
	return err == nil && d != nil && d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired, err
}

// csiDriver looks a CSIDriver up in the cache, once the cache is complete. It returns nil if there is none.
func (p *Plugin) csiDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	if err := p.host.CSIDriversSynced(ctx); err != nil {
		return nil, err
	}
	d, err := p.host.CSIDrivers.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// WaitForAttach does not wait: it reads the VolumeAttachment once.
func (p *Plugin) WaitForAttach(ctx context.Context, s *volumeplugin.Spec) (string, error) {
	src := s.PV.Spec.CSI
	name := AttachmentName(src.VolumeHandle, src.Driver, p.host.Node)
	va, err := p.host.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("volume %v has GET error for volume attachment %v: %w", src.VolumeHandle, name, err)
	case va.DeletionTimestamp != nil:
		return "", errors.New("volume attachment is being deleted")
	case va.Status.Attached:
		return va.Name, nil
	case va.Status.AttachError != nil:
		return "", errors.New(va.Status.AttachError.Message)
	}
	return "", fmt.Errorf("volume %v is not attached for volume attachment %v", src.VolumeHandle, name)
}

// Exhausted tells whether the attacher was told that no more volumes fit on this
// node, for drivers that let the count be refreshed; and refreshes it.
func (p *Plugin) Exhausted(ctx context.Context, s *volumeplugin.Spec) bool {
	if s.PV == nil || s.PV.Spec.CSI == nil {
		return false
	}
	src := s.PV.Spec.CSI
	d, err := p.csiDriver(ctx, src.Driver)
	if err != nil || d == nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return false
	}
	va, err := p.host.Client.StorageV1().VolumeAttachments().Get(ctx, AttachmentName(src.VolumeHandle, src.Driver, p.host.Node), metav1.GetOptions{})
	if err != nil || va.Status.AttachError == nil || va.Status.AttachError.ErrorCode == nil ||
		*va.Status.AttachError.ErrorCode != int32(codes.ResourceExhausted) {
		return false
	}
	if p.Refresh != nil {
		if err := p.Refresh(ctx, src.Driver); err != nil {
			p.host.Log.Warn().Err(err).Str("driver", src.Driver).Msg("refresh the number of volumes that fit on the node")
		}
	}
	return true
}

func (p *Plugin) publishContext(ctx context.Context, handle, driver string) (map[string]string, error) {
	skip, err := p.skipAttach(ctx, driver)
	if err != nil || skip {
		return nil, err
	}
	va, err := p.host.Client.StorageV1().VolumeAttachments().Get(ctx, AttachmentName(handle, driver, p.host.Node), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return va.Status.AttachmentMetadata, nil
}

func (p *Plugin) secret(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	s, err := p.host.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: find secret %s in namespace %s: %w", PluginName, ref.Name, ref.Namespace, err)
	}
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}

func driverOf(s *volumeplugin.Spec) string {
	switch {
	case s.PV != nil && s.PV.Spec.CSI != nil:
		return s.PV.Spec.CSI.Driver
	case s.Volume != nil && s.Volume.CSI != nil:
		return s.Volume.CSI.Driver
	}
	return ""
}

// firstMode is the one access mode that Node calls are told: the first of the PV's.
func firstMode(pv *v1.PersistentVolume) v1.PersistentVolumeAccessMode {
	if len(pv.Spec.AccessModes) > 0 {
		return pv.Spec.AccessModes[0]
	}
	return v1.ReadWriteOnce
}

// Reconstruct reads the data file in a pod's volume directory.
func (p *Plugin) Reconstruct(_ types.UID, _, path string) (*volumeplugin.Spec, error) {
	data, err := loadData(path)
	if err != nil {
		return nil, err
	}
	return specFromData(data, v1.PersistentVolumeFilesystem)
}

func specFromData(data map[string]string, mode v1.PersistentVolumeMode) (*volumeplugin.Spec, error) {
	if data[keySpecName] == "" || data[keyDriver] == "" {
		return nil, fmt.Errorf("%s: volume data names no volume or no driver: %v", PluginName, data)
	}
	if data[keyMode] == modeInline {
		return &volumeplugin.Spec{Label: data[keySELinux], Volume: &v1.Volume{
			Name: data[keySpecName], VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: data[keyDriver]}}}}, nil
	}
	return &volumeplugin.Spec{Label: data[keySELinux], PV: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: data[keySpecName]},
		Spec: v1.PersistentVolumeSpec{VolumeMode: &mode, PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: data[keyDriver], VolumeHandle: data[keyHandle]}}}}}, nil
}

func (p *Plugin) volumeDir(uid types.UID, inner string) string {
	return p.host.Layout.PodVolume(uid, PluginName, inner)
}

func (p *Plugin) target(uid types.UID, inner string) string {
	return filepath.Join(p.volumeDir(uid, inner), mountDirName)
}
