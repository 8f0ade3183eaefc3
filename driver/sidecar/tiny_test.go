package sidecar

import (
	"context"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tinyDriver keeps volumes in memory. Its zero value is ready.
type tinyDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	mu        sync.Mutex
	volumes   map[string]*csi.CreateVolumeRequest // guarded by mu: by id
	published map[string]string                   // guarded by mu: volume id -> node id
	held      chan struct{}                       // CreateVolume waits for it where it is set
	entered   chan struct{}                       // told of each CreateVolume that waits
	grow      func(bytes int64) (nodeToo bool, err error)
}

// ControllerExpandVolume does what grow says; without it every size is fine and the node has its part.
func (d *tinyDriver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	grow := d.grow
	d.mu.Unlock()
	bytes, nodeToo := r.GetCapacityRange().GetRequiredBytes(), true
	if grow != nil {
		var err error
		if nodeToo, err = grow(bytes); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: nodeToo}, nil
}

func (d *tinyDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: testDriver, VendorVersion: "1"}, nil
}

func (d *tinyDriver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *tinyDriver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{}
	for _, t := range []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS} {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return r, nil
}

func (d *tinyDriver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME} {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

func (d *tinyDriver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return &csi.GetCapacityResponse{AvailableCapacity: 1 << 40}, nil
}

func (d *tinyDriver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held != nil {
		d.entered <- struct{}{}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.volumes == nil {
		d.volumes, d.published = map[string]*csi.CreateVolumeRequest{}, map[string]string{}
	}
	id := "id-" + r.GetName()
	d.volumes[id] = r
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: r.GetCapacityRange().GetRequiredBytes(),
		AccessibleTopology: r.GetAccessibilityRequirements().GetPreferred()}}, nil
}

func (d *tinyDriver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if node, ok := d.published[r.GetVolumeId()]; ok {
		return nil, status.Errorf(codes.FailedPrecondition, "published at %s", node)
	}
	delete(d.volumes, r.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func (d *tinyDriver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.volumes[r.GetVolumeId()] == nil {
		return nil, status.Error(codes.NotFound, r.GetVolumeId())
	}
	d.published[r.GetVolumeId()] = r.GetNodeId()
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": fmt.Sprintf("/dev/%s", r.GetVolumeId())}}, nil
}

func (d *tinyDriver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.published, r.GetVolumeId())
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
