package sidecar

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"

	resizercsi "github.com/kubernetes-csi/external-resizer/v2/pkg/csi"
)

// resizeClient is the driver as external-resizer sees it, over this life's own
// connection: upstream's client ends the process when it loses its own.
type resizeClient struct{ conn *grpc.ClientConn }

var _ resizercsi.Client = (*resizeClient)(nil)

func (c *resizeClient) GetDriverName(ctx context.Context) (string, error) {
	return rpc.GetDriverName(ctx, c.conn)
}

func (c *resizeClient) SupportsPluginControllerService(ctx context.Context) (bool, error) {
	caps, err := rpc.GetPluginCapabilities(ctx, c.conn)
	return caps[csi.PluginCapability_Service_CONTROLLER_SERVICE], err
}

func (c *resizeClient) controllerHas(ctx context.Context, capability csi.ControllerServiceCapability_RPC_Type) (bool, error) {
	caps, err := rpc.GetControllerCapabilities(ctx, c.conn)
	return caps[capability], err
}

func (c *resizeClient) SupportsControllerResize(ctx context.Context) (bool, error) {
	return c.controllerHas(ctx, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
}

func (c *resizeClient) SupportsControllerModify(ctx context.Context) (bool, error) {
	return c.controllerHas(ctx, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
}

func (c *resizeClient) SupportsControllerSingleNodeMultiWriter(ctx context.Context) (bool, error) {
	return c.controllerHas(ctx, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
}

func (c *resizeClient) SupportsNodeResize(ctx context.Context) (bool, error) {
	r, err := csi.NewNodeClient(c.conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	for _, x := range r.GetCapabilities() {
		if x.GetRpc().GetType() == csi.NodeServiceCapability_RPC_EXPAND_VOLUME {
			return true, nil
		}
	}
	return false, err
}

func (c *resizeClient) Expand(ctx context.Context, volume string, bytes int64, secrets map[string]string, capability *csi.VolumeCapability) (int64, bool, error) {
	r, err := csi.NewControllerClient(c.conn).ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, Secrets: secrets, VolumeCapability: capability})
	return r.GetCapacityBytes(), r.GetNodeExpansionRequired(), err
}

func (c *resizeClient) Modify(ctx context.Context, volume string, secrets, parameters map[string]string) error {
	_, err := csi.NewControllerClient(c.conn).ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
		VolumeId: volume, Secrets: secrets, MutableParameters: parameters})
	return err
}

// CloseConnection does nothing: the connection ends with the life.
func (c *resizeClient) CloseConnection() {}
