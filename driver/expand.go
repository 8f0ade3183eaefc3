package driver

import (
	"context"
	"net/http"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
)

func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id := VolumeID(req.GetVolumeId())
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case req.GetCapacityRange() == nil:
		return nil, errorf(codes.InvalidArgument, "volume %s: no capacity range is given", id)
	}
	size, err := sizeFor(req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	release, err := c.locks.take("Volume ID", string(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.cloud.volume(ctx, id)
	if err != nil {
		return nil, err
	}
	if limit := req.GetCapacityRange().GetLimitBytes(); limit != 0 && v.SizeGigaBytes*gib > limit {
		return nil, errorf(codes.OutOfRange, "volume %s has %d GiB already, more than the limit of %d bytes; a volume cannot shrink", id, v.SizeGigaBytes, limit)
	}
	if v.SizeGigaBytes < size {
		if v, err = c.resize(ctx, v, size); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.SizeGigaBytes * gib, NodeExpansionRequired: req.GetVolumeCapability().GetBlock() == nil}, nil
}

// resize enlarges a volume to size GiB and returns it as it is then.
func (c *controller) resize(ctx context.Context, v *godo.Volume, size int64) (*godo.Volume, error) {
	id := VolumeID(v.ID)
	a, _, err := c.cloud.StorageActions.Resize(ctx, v.ID, int(size), c.cloud.region)
	switch {
	case err == nil:
		c.ops.at(pointResizeAsked, v.ID)
		if err := c.await(ctx, "resize", id, a); err != nil {
			return nil, err
		}
	case statusOf(err) == http.StatusUnprocessableEntity && says(err, "pending event"):
		if err := c.joinPending(ctx, id); err != nil {
			return nil, err
		}
	case statusOf(err) == http.StatusForbidden && says(err, "limit exceeded"):
		return nil, errorf(codes.ResourceExhausted, "enlarge volume %s to %d GiB: the account's limit is reached; delete volumes or have it raised: %w", id, size, err)
	default:
		return nil, cloudError(err, "enlarge volume %s to %d GiB", id, size)
	}
	now, e := c.cloud.volume(ctx, id)
	if e != nil {
		return nil, e
	}
	if now.SizeGigaBytes < size && err == nil {
		return nil, errorf(codes.Aborted, "volume %s has %d GiB after it was enlarged to %d; ask again", id, now.SizeGigaBytes, size)
	}
	if now.SizeGigaBytes < size {
		return nil, errorf(codes.Aborted, "volume %s has %d GiB and not %d yet, as the cloud is busy: %w; ask again", id, now.SizeGigaBytes, size, err)
	}
	return now, nil
}

func (n *node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case path == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no volume path is given", id)
	}
	release, err := n.locks.take("Volume ID", id)
	if err != nil {
		return nil, err
	}
	defer release()
	v := volume{id: VolumeID(id)}
	if err := n.isAt(v.id, path); err != nil {
		return nil, err
	}
	u, err := n.machine.usage(path)
	if err != nil {
		return nil, errorf(codeOf(err), "measure volume %s at %s: %w", id, path, err)
	}
	if u.block {
		return &csi.NodeExpandVolumeResponse{CapacityBytes: u.total}, nil
	}
	m, _, err := n.topmost(path)
	if err != nil {
		return nil, err
	}
	d, err := n.machine.open(m.Device, v)
	if err != nil {
		return nil, errorf(codes.Internal, "open the device of volume %s: %w", id, err)
	}
	defer d.close()
	if want := req.GetCapacityRange().GetRequiredBytes(); d.bytes < want {
		return nil, errorf(codes.Unavailable, "device %s of volume %s has %d bytes, and %d are asked for; has the volume been enlarged in the cloud? ask again", d.path, id, d.bytes, want)
	}
	if err := n.machine.grow(ctx, d, FSType(m.Type), path); err != nil {
		return nil, errorf(codeOf(err), "grow filesystem %s of volume %s: %w", m.Type, id, err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: d.bytes}, nil
}
