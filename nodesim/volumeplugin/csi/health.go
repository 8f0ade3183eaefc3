package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Ability is what a driver's node service says that it can.
type Ability = csipb.NodeServiceCapability_RPC_Type

// What a driver can say of health. The last one is of CSI up to 1.12: its number is not in use any more.
const (
	VolumeHealth    = csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH
	StorageHealth   = csipb.NodeServiceCapability_RPC_GET_STORAGE_HEALTH
	VolumeCondition = Ability(4)
)

// maxConditions bounds what a driver may say of its storage at once.
const maxConditions = 16

// Abilities asks a driver what it can.
func (p *Plugin) Abilities(ctx context.Context, driver string) (map[Ability]bool, error) {
	c, err := p.drivers.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	return c.abilities(ctx)
}

// HealthOf asks a driver what is wrong with a volume. Nothing is good news; what this version does not know is left out.
func (p *Plugin) HealthOf(ctx context.Context, driver, handle, staged, published string) ([]v1.VolumeHealthCondition, error) {
	c, err := p.drivers.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	r, err := c.node.NodeGetVolumeHealth(ctx, &csipb.NodeGetVolumeHealthRequest{VolumeId: handle, StagingTargetPath: staged, VolumePublishPath: published})
	c.done(err)
	if err != nil {
		return nil, fmt.Errorf("ask for the health of volume %s: %w", handle, err)
	}
	words := map[csipb.VolumeHealthErrorType]v1.VolumeHealthStatusType{
		csipb.VolumeHealthErrorType_INACCESSIBLE: v1.VolumeHealthInaccessible, csipb.VolumeHealthErrorType_DATA_LOSS: v1.VolumeHealthDataLoss,
		csipb.VolumeHealthErrorType_DEGRADED: v1.VolumeHealthDegraded,
	}
	var out []v1.VolumeHealthCondition
	for _, e := range r.GetVolumeHealth().GetHealthStatuses() {
		if s, known := words[e.GetStatus()]; known {
			out = append(out, v1.VolumeHealthCondition{Status: s, Reason: e.GetReason(), Message: e.GetMessage()})
		}
	}
	return out, nil
}

// StorageHealthOf asks a driver what is wrong with the storage behind all of its volumes.
func (p *Plugin) StorageHealthOf(ctx context.Context, driver string) ([]storagev1.StorageHealthCondition, error) {
	c, err := p.drivers.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	r, err := c.node.NodeGetStorageHealth(ctx, &csipb.NodeGetStorageHealthRequest{})
	c.done(err)
	if err != nil {
		return nil, fmt.Errorf("ask for the health of the storage: %w", err)
	}
	if n := len(r.GetBackendHealth()); n > maxConditions {
		return nil, fmt.Errorf("NodeGetStorageHealth returned %d conditions, maximum is %d", n, maxConditions)
	}
	words := map[csipb.StorageHealthErrorType]storagev1.StorageHealthStatusType{
		csipb.StorageHealthErrorType_STORAGE_DEGRADED: storagev1.StorageDegraded, csipb.StorageHealthErrorType_STORAGE_UNREACHABLE: storagev1.StorageUnreachable,
	}
	var out []storagev1.StorageHealthCondition
	for i, e := range r.GetBackendHealth() {
		s, known := words[e.GetStatus()]
		if !known {
			continue
		}
		is := storagev1.StorageHealthCondition{Status: s, Reason: e.GetReason(), Message: e.GetMessage()}
		if c := e.GetVolumeCapability(); c != nil {
			if is.AccessMode, is.VolumeMode, err = affected(c); err != nil {
				return nil, fmt.Errorf("NodeGetStorageHealth condition %d has invalid volume capability: %w", i, err)
			}
		}
		out = append(out, is)
	}
	return out, nil
}

// affected is what a capability means as modes of volumes.
func affected(c *csipb.VolumeCapability) (*v1.PersistentVolumeAccessMode, *v1.PersistentVolumeMode, error) {
	var mode v1.PersistentVolumeMode
	switch {
	case c.GetBlock() != nil:
		mode = v1.PersistentVolumeBlock
	case c.GetMount() != nil:
		mode = v1.PersistentVolumeFilesystem
	default:
		return nil, nil, errors.New("access type is required")
	}
	if c.GetAccessMode() == nil {
		return nil, nil, errors.New("access mode is required")
	}
	var access v1.PersistentVolumeAccessMode
	switch m := c.GetAccessMode().GetMode(); m {
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		access = v1.ReadWriteOnce
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		access = v1.ReadWriteOncePod
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		access = v1.ReadOnlyMany
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		access = v1.ReadWriteMany
	default:
		return nil, nil, fmt.Errorf("unsupported access mode %q", m)
	}
	return &access, &mode, nil
}
