package driver

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/mounts"
)

// node answers the node calls. It keeps no state but what runs: what is staged and
// published is in the mount table.
type node struct {
	csi.UnimplementedNodeServer
	name        string // of the driver
	metadataURL string
	http        *http.Client
	deviceDir   string
	mounter     mount.Interface
	machine     machine
	maxVolumes  int64
	ops         ops
	locks       *locks
}

const defaultDeviceDir = "/dev/disk/by-id"

func newNode(name string, c NodeConfig, o ops) (*node, error) {
	n := &node{name: name, metadataURL: c.MetadataURL, http: c.HTTPClient, deviceDir: c.DeviceDir, mounter: c.Mounter,
		maxVolumes: c.MaxVolumes, ops: o, locks: newLocks()}
	if n.metadataURL == "" {
		n.metadataURL = "http://169.254.169.254"
	}
	if n.http == nil {
		n.http = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if n.deviceDir == "" {
		n.deviceDir = defaultDeviceDir
	}
	if n.maxVolumes == 0 {
		n.maxVolumes = DefaultMaxVolumes
	}
	if c.Simulated {
		if n.mounter == nil {
			return nil, errors.New("start driver: simulated devices need a simulated mount table")
		}
		n.machine = simMachine{ops: o}
		return n, nil
	}
	if n.mounter == nil {
		n.mounter = mounts.New()
	}
	var err error
	n.machine, err = newKernelMachine(o)
	return n, err
}

func (n *node) close() { n.http.CloseIdleConnections() }

// outlive returns a context that ends with the driver's life and not with the call.
func (n *node) outlive(ctx context.Context) context.Context {
	if n.ops.component == nil {
		return context.WithoutCancel(ctx)
	}
	return lifeContext{n.ops.component.Context(), context.WithoutCancel(ctx)}
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	}
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return resp, nil
}

func (n *node) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	id, region, err := n.droplet(ctx)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetInfoResponse{
		NodeId: strconv.Itoa(int(id)), MaxVolumesPerNode: n.maxVolumes,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{RegionKey: region}},
	}, nil
}
