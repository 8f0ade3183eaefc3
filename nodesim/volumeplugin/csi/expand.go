package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

var _ volumeplugin.Expander = (*Plugin)(nil)

// NodeExpand asks the driver to make filesystem or device as large as the volume.
// As in the kubelet an uncertain answer is wrapped, and so counts as a final one.
func (p *Plugin) NodeExpand(ctx context.Context, s *volumeplugin.Spec, a volumeplugin.ExpandArgs) error {
	if s.PV == nil || s.PV.Spec.CSI == nil {
		return errors.New("Expander.NodeExpand failed to find associated PersistentVolume for plugin " + PluginName)
	}
	src := s.PV.Spec.CSI
	c, err := p.drivers.client(src.Driver)
	if err != nil {
		return volumeplugin.AsTransient(err)
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	can, err := c.has(ctx, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil {
		return fmt.Errorf("Expander.NodeExpand failed to check if node supports expansion : %w", err)
	}
	if !can {
		return volumeplugin.WithReason(fmt.Errorf("NodeExpand is not supported by the CSI driver %s", src.Driver), volumeplugin.ErrUnsupported)
	}
	r := &csipb.NodeExpandVolumeRequest{VolumeId: src.VolumeHandle, VolumePath: a.Path, StagingTargetPath: a.StagePath,
		CapacityRange: &csipb.CapacityRange{RequiredBytes: a.NewSize.Value()}}
	if ref := src.NodeExpandSecretRef; ref != nil {
		if r.Secrets, err = p.secret(ctx, ref); err != nil {
			return fmt.Errorf("expander.NodeExpand failed to get NodeExpandSecretRef %s/%s: %w", ref.Namespace, ref.Name, err)
		}
	}
	use := access{block: s.Block(), fsType: src.FSType, flags: s.PV.Spec.MountOptions, mode: firstMode(s.PV)}
	p.host.Point(pointExpand, src.VolumeHandle)
	err = c.expand(ctx, use, r)
	p.host.Point(pointExpanded, src.VolumeHandle)
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition:
		return volumeplugin.WithReason(fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err), volumeplugin.ErrInUse)
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return volumeplugin.WithReason(fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err), volumeplugin.ErrInfeasible)
	}
	return fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err)
}

func (c *client) expand(ctx context.Context, a access, r *csipb.NodeExpandVolumeRequest) error {
	if r.VolumePath == "" {
		return errors.New("missing volume path")
	}
	var err error
	if r.VolumeCapability, err = c.capability(ctx, a); err != nil {
		return err
	}
	_, err = c.node.NodeExpandVolume(ctx, r)
	return c.classify(err)
}
