package driver

import (
	"context"
	"fmt"
	"net/http"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
)

// controller answers the controller calls. It keeps no state but what runs: the cloud has it all.
type controller struct {
	csi.UnimplementedControllerServer
	name     string // of the driver
	cloud    *cloud
	ops      ops
	locks    *locks
	droplets *queues
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return resp, nil
}

// wish is a valid CreateVolume request.
type wish struct {
	origin
	size int64 // GiB
	span *csi.CapacityRange
}

func (c *controller) wish(req *csi.CreateVolumeRequest) (wish, error) {
	w := wish{origin: origin{name: req.GetName()}, span: req.GetCapacityRange()}
	if w.name == "" {
		return w, errorf(codes.InvalidArgument, "no volume name is given")
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return w, err
	}
	if len(req.GetMutableParameters()) > 0 {
		return w, errorf(codes.InvalidArgument, "this driver has no mutable parameters; remove the VolumeAttributesClass from the claim")
	}
	if src := req.GetVolumeContentSource(); src != nil {
		if w.source = SnapshotID(src.GetSnapshot().GetSnapshotId()); w.source == "" {
			return w, errorf(codes.InvalidArgument, "this driver makes volumes from snapshots only, not from other volumes; take a snapshot of the volume first")
		}
	}
	if !c.reachable(req.GetAccessibilityRequirements()) {
		return w, errorf(codes.ResourceExhausted, "no volume can be made where it is wanted: this driver makes volumes in region %s only", c.cloud.region)
	}
	var err error
	w.size, err = sizeFor(w.span)
	return w, err
}

func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	w, err := c.wish(req)
	if err != nil {
		return nil, err
	}
	release, err := c.locks.take("Volume Name", w.name)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.find(ctx, w)
	if err != nil {
		return nil, err
	}
	if v == nil {
		if v, err = c.make(ctx, w); err != nil {
			return nil, err
		}
		c.ops.at(pointCreated, v.ID)
	}
	if v, err = c.fit(ctx, w, v); err != nil {
		return nil, err
	}
	c.ops.lab.Timeline.Alias(v.ID, w.name)
	return &csi.CreateVolumeResponse{Volume: c.describe(v)}, nil
}

// find looks for a volume that an earlier call made. As long as that cannot be told,
// nothing else can, so every failure is one to come back from.
func (c *controller) find(ctx context.Context, w wish) (*godo.Volume, error) {
	v, err := c.cloud.volumeNamed(ctx, cloudName(w.name))
	if err != nil {
		return nil, unsure(err, "find out whether volume %s was made already", w.name)
	}
	return v, nil
}

// unsure is err with a code that says that the outcome is unknown, so that the caller comes back.
func unsure(err error, format string, args ...any) error {
	code := codeOf(err)
	if code != codes.DeadlineExceeded && code != codes.Canceled && code != codes.Aborted {
		code = codes.Unavailable
	}
	return errorf(code, "%s: %w", fmt.Sprintf(format, args...), err)
}

// make asks the cloud for a volume. An error with a code other than Unavailable,
// DeadlineExceeded or Canceled means that there is none.
func (c *controller) make(ctx context.Context, w wish) (*godo.Volume, error) {
	if w.source != "" {
		s, err := c.cloud.snapshot(ctx, w.source)
		if err != nil {
			return nil, err
		}
		if least, limit := int64(s.MinDiskSize)*gib, w.span.GetLimitBytes(); limit != 0 && limit < least {
			return nil, errorf(codes.OutOfRange, "volume %s: snapshot %s needs %d bytes, more than the limit of %d", w.name, w.source, least, limit)
		}
	}
	v, _, err := c.cloud.Storage.CreateVolume(ctx, &godo.VolumeCreateRequest{
		Region: c.cloud.region, Name: cloudName(w.name), Description: w.origin.String(), SizeGigaBytes: w.size, SnapshotID: string(w.source),
	})
	switch {
	case err == nil:
		return v, nil
	case statusOf(err) == http.StatusConflict: // made by a call whose answer was lost, after find looked
		if v, err := c.find(ctx, w); v != nil || err != nil {
			return v, err
		}
		return nil, errorf(codes.Unavailable, "create volume %s: the cloud says that the name is taken, and shows no such volume: %w; ask again", w.name, err)
	case statusOf(err) == http.StatusForbidden && says(err, "limit exceeded"):
		return nil, errorf(codes.ResourceExhausted, "create volume %s of %d GiB: the account's limit is reached; delete volumes or have it raised: %w", w.name, w.size, err)
	}
	return nil, cloudError(err, "create volume %s of %d GiB", w.name, w.size)
}

// fit returns the volume in the size that is wished for, or says why it is another one.
// A volume from a snapshot comes in the snapshot's size and is enlarged here, maybe by
// a later call than the one that made it.
func (c *controller) fit(ctx context.Context, w wish, v *godo.Volume) (*godo.Volume, error) {
	if err := w.made(v); err != nil {
		return nil, err
	}
	if w.source != "" && v.SizeGigaBytes < w.size {
		bigger, err := c.resize(ctx, v, w.size)
		if err != nil { // the volume exists, so no error may sound final
			return nil, unsure(err, "volume %s is made, and too small yet", w.name)
		}
		v = bigger
	}
	if !within(w.span, v.SizeGigaBytes) {
		return nil, errorf(codes.AlreadyExists, "volume %s exists with %d GiB, which is not the size asked for (%d to %d bytes); use another name",
			v.Name, v.SizeGigaBytes, w.span.GetRequiredBytes(), w.span.GetLimitBytes())
	}
	return v, nil
}

// made tells whether a volume is the one that is wished for, whatever its size.
func (w wish) made(v *godo.Volume) error {
	o, ours := parseOrigin(v.Description)
	switch {
	case !ours:
		return errorf(codes.AlreadyExists, "volume %s exists in the cloud and was not made by this driver; use another name", v.Name)
	case o != w.origin:
		return errorf(codes.AlreadyExists, "volume %s exists and was made otherwise: %q; use another name", v.Name, v.Description)
	}
	return nil
}

// describe is the volume as CSI shows it.
func (c *controller) describe(v *godo.Volume) *csi.Volume {
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.SizeGigaBytes * gib, AccessibleTopology: []*csi.Topology{c.topology()}}
	if o, ours := parseOrigin(v.Description); ours && o.source != "" {
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: string(o.source)}}}
	}
	return out
}

func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := VolumeID(req.GetVolumeId())
	if id == "" {
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	}
	if !known(id) {
		return &csi.DeleteVolumeResponse{}, nil
	}
	release, err := c.locks.take("Volume ID", string(id))
	if err != nil {
		return nil, err
	}
	defer release()
	_, err = c.cloud.Storage.DeleteVolume(ctx, string(id))
	switch {
	case statusOf(err) == http.StatusNotFound:
	case statusOf(err) == http.StatusConflict:
		return nil, errorf(codes.FailedPrecondition, "volume %s is in use; it can be deleted once it is detached from its node: %w", id, err)
	case err != nil:
		return nil, cloudError(err, "delete volume %s", id)
	default:
		c.ops.at(pointDeleted, string(id))
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, errorf(codes.InvalidArgument, "no volume capabilities are given")
	}
	if _, err := c.cloud.volume(ctx, VolumeID(req.GetVolumeId())); err != nil {
		return nil, err
	}
	for _, want := range req.GetVolumeCapabilities() {
		if err := unsupported(want); err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
		}
	}
	if len(req.GetMutableParameters()) > 0 {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "this driver has no mutable parameters"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}
