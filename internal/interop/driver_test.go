package interop

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const guestName = "guest.csi.test"

// guest is somebody's CSI driver: its controller half, with volumes in memory.
type guest struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	mu        sync.Mutex
	volumes   map[string]string // guarded by mu: id -> node id where it is published
	published int               // guarded by mu: how often one was
	sizes     map[string]int64  // guarded by mu: volume -> bytes
	snapshots map[string]string // guarded by mu: id -> the volume that it was taken of
	restored  map[string]string // guarded by mu: volume -> the snapshot that it was made from
}

// serveGuest serves a guest driver until the test ends.
func serveGuest(t *testing.T, socket string) *guest {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{volumes: map[string]string{}, sizes: map[string]int64{}, snapshots: map[string]string{}, restored: map[string]string{}}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, g)
	csi.RegisterControllerServer(s, g)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return g
}

func (g *guest) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: guestName, VendorVersion: "1"}, nil
}

func (g *guest) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (g *guest) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_OFFLINE}}},
	}}, nil
}

func (g *guest) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT} {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (g *guest) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.volumes[r.GetName()]; !ok {
		if from := r.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); from != "" {
			if _, ok := g.snapshots[from]; !ok {
				return nil, status.Error(codes.NotFound, "no such snapshot")
			}
			g.restored[r.GetName()] = from
		}
		g.volumes[r.GetName()] = ""
		g.sizes[r.GetName()] = r.GetCapacityRange().GetRequiredBytes()
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), CapacityBytes: g.sizes[r.GetName()], ContentSource: r.GetVolumeContentSource()}}, nil
}

func (g *guest) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.volumes[r.GetVolumeId()] != "" {
		return nil, status.Error(codes.FailedPrecondition, "the volume is published")
	}
	delete(g.volumes, r.GetVolumeId())
	delete(g.sizes, r.GetVolumeId())
	delete(g.restored, r.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, nil
}

func (g *guest) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.volumes[r.GetVolumeId()]; !ok {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	g.volumes[r.GetVolumeId()] = r.GetNodeId()
	g.published++
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"disk": "sdz"}}, nil
}

func (g *guest) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.volumes[r.GetVolumeId()]; ok {
		g.volumes[r.GetVolumeId()] = ""
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (g *guest) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.volumes[r.GetVolumeId()]; !ok {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	g.sizes[r.GetVolumeId()] = max(g.sizes[r.GetVolumeId()], r.GetCapacityRange().GetRequiredBytes())
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: g.sizes[r.GetVolumeId()]}, nil
}

func (g *guest) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.volumes[r.GetSourceVolumeId()]; !ok {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	g.snapshots[r.GetName()] = r.GetSourceVolumeId()
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{SnapshotId: r.GetName(), SourceVolumeId: r.GetSourceVolumeId(),
		SizeBytes: g.sizes[r.GetSourceVolumeId()], CreationTime: timestamppb.Now(), ReadyToUse: true}}, nil
}

func (g *guest) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.snapshots, r.GetSnapshotId())
	return &csi.DeleteSnapshotResponse{}, nil
}

// contents gives the size of a volume, the snapshot that it was made from, and how many snapshots there are.
func (g *guest) contents(volume string) (size int64, from string, snapshots int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sizes[volume], g.restored[volume], len(g.snapshots)
}

// state gives where each volume is published.
func (g *guest) state() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]string{}
	for k, v := range g.volumes {
		out[k] = v
	}
	return out
}
