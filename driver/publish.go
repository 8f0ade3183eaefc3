package driver

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
)

// Keys of the publish context, below the driver's name.
const (
	keyVolumeName = "/volume-name" // the name in the cloud: the node finds the device by it
	keyVolumeSize = "/volume-size" // bytes when it was attached; the device is never smaller
)

func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id := VolumeID(req.GetVolumeId())
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case req.GetNodeId() == "":
		return nil, errorf(codes.InvalidArgument, "no node id is given")
	case req.GetReadonly():
		return nil, errorf(codes.InvalidArgument, "volume %s: this cloud cannot attach a volume read-only; mount it read-only in the pod instead", id)
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
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
	droplet, err := dropletOf(req.GetNodeId())
	if err != nil {
		return nil, err
	}
	if v, err = c.stays(ctx, v, droplet); err != nil {
		return nil, err
	}
	if !slices.Contains(v.DropletIDs, int(droplet)) {
		if v, err = c.attach(ctx, v, droplet); err != nil {
			return nil, err
		}
		c.ops.at(pointAttached, string(id))
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{
		c.name + keyVolumeName: v.Name, c.name + keyVolumeSize: strconv.FormatInt(v.SizeGigaBytes*gib, 10),
	}}, nil
}

// stays returns the volume as it is once no action of it is in progress, if it is
// attached to the droplet: a call that gave up waiting may be about to detach it.
func (c *controller) stays(ctx context.Context, v *godo.Volume, d DropletID) (*godo.Volume, error) {
	for slices.Contains(v.DropletIDs, int(d)) {
		a, err := c.cloud.pending(ctx, VolumeID(v.ID))
		if err != nil || a == nil {
			return v, err
		}
		if err := c.await(ctx, "pending", VolumeID(v.ID), a); err != nil && codeOf(err) != codes.Internal {
			return nil, err
		}
		if v, err = c.cloud.volume(ctx, VolumeID(v.ID)); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// dropletOf reads a node id. One that is no number names no machine of this cloud.
func dropletOf(node string) (DropletID, error) {
	n, err := strconv.Atoi(node)
	if err != nil || n <= 0 {
		return 0, errorf(codes.NotFound, "node %q does not exist: that is not a droplet's id", node)
	}
	return DropletID(n), nil
}

// attach attaches the volume and waits until that is done.
func (c *controller) attach(ctx context.Context, v *godo.Volume, d DropletID) (*godo.Volume, error) {
	id := VolumeID(v.ID)
	if err := elsewhere(v, d); err != nil {
		return nil, err
	}
	if err := c.cloud.droplet(ctx, d); err != nil {
		return nil, err
	}
	leave, err := c.droplets.enter(ctx, d)
	if err != nil {
		return nil, err
	}
	defer leave()
	action, _, err := c.cloud.StorageActions.Attach(ctx, v.ID, int(d))
	switch {
	case err == nil:
		c.ops.at(pointAttachAsked, v.ID)
		return v, c.await(ctx, "attach", id, action)
	case statusOf(err) == http.StatusUnprocessableEntity && says(err, "already attached"):
	case statusOf(err) == http.StatusUnprocessableEntity && says(err, "pending event"):
		if err := c.joinPending(ctx, id); err != nil {
			return nil, err
		}
	case statusOf(err) == http.StatusUnprocessableEntity && says(err, "cannot attach more"):
		return nil, errorf(codes.ResourceExhausted, "droplet %d has as many volumes as it can take; detach one first: %w", d, err)
	default:
		return nil, cloudError(err, "attach volume %s to droplet %d", id, d)
	}
	// Somebody was faster: an earlier call whose answer was lost, or a stranger.
	v, e := c.cloud.volume(ctx, id)
	if e != nil {
		return nil, e
	}
	if err := elsewhere(v, d); err != nil {
		return nil, err
	}
	if !slices.Contains(v.DropletIDs, int(d)) {
		return nil, errorf(codes.Aborted, "volume %s is not attached to droplet %d yet, as the cloud is busy: %w; ask again", id, d, err)
	}
	return v, nil
}

// elsewhere is the error for a volume that is attached to another machine.
func elsewhere(v *godo.Volume, d DropletID) error {
	for _, other := range v.DropletIDs {
		if other != int(d) {
			return errorf(codes.FailedPrecondition,
				"volume %s is attached to node %d, so it cannot be attached to node %d; it has to be detached from there first", v.ID, other, d)
		}
	}
	return nil
}

// joinPending waits for the action that is in progress, if it is the volume's own. It
// may be another volume's of the same droplet, or over by now: the caller has to look.
func (c *controller) joinPending(ctx context.Context, id VolumeID) error {
	a, err := c.cloud.pending(ctx, id)
	if err != nil || a == nil {
		return err
	}
	if err := c.await(ctx, "pending", id, a); codeOf(err) != codes.Internal { // an action that errored is over as well
		return err
	}
	return nil
}

// await waits for an action in a span of its own.
func (c *controller) await(ctx context.Context, what string, id VolumeID, a *godo.Action) error {
	if a == nil {
		return nil // some clouds answer so what is done at once
	}
	return c.ops.traced(ctx, "wait for "+what+" action", string(id), func(ctx context.Context) error { return c.cloud.finish(ctx, id, a) })
}

// ControllerUnpublishVolume detaches the volume from a node, or from wherever it is when no node is named.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id := VolumeID(req.GetVolumeId())
	if id == "" {
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	}
	release, err := c.locks.take("Volume ID", string(id))
	if err != nil {
		return nil, err
	}
	defer release()
	done := &csi.ControllerUnpublishVolumeResponse{}
	v, err := c.settled(ctx, id, req.GetNodeId())
	if codeOf(err) == codes.NotFound {
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range v.DropletIDs {
		if req.GetNodeId() != "" && req.GetNodeId() != strconv.Itoa(n) {
			continue
		}
		if err := c.detach(ctx, v, DropletID(n)); err != nil {
			return nil, err
		}
		c.ops.at(pointDetached, v.ID)
	}
	return done, nil
}

// settled returns the volume as it is once no action of it is in progress. A volume
// that is not attached may be about to be, by a call that gave up waiting: to call
// that detached would leave the volume attached for ever.
func (c *controller) settled(ctx context.Context, id VolumeID, node string) (*godo.Volume, error) {
	for {
		v, err := c.cloud.volume(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, n := range v.DropletIDs {
			if node == "" || node == strconv.Itoa(n) {
				return v, nil
			}
		}
		a, err := c.cloud.pending(ctx, id)
		if err != nil || a == nil {
			return v, err
		}
		if err := c.await(ctx, "pending", id, a); err != nil && codeOf(err) != codes.Internal {
			return nil, err
		}
	}
}

func (c *controller) detach(ctx context.Context, v *godo.Volume, d DropletID) error {
	leave, err := c.droplets.enter(ctx, d)
	if err != nil {
		return err
	}
	defer leave()
	action, _, err := c.cloud.StorageActions.DetachByDropletID(ctx, v.ID, int(d))
	switch s := statusOf(err); {
	case err == nil:
		c.ops.at(pointDetachAsked, v.ID)
		return c.await(ctx, "detach", VolumeID(v.ID), action)
	case s == http.StatusUnprocessableEntity && says(err, "pending event"):
		if err := c.joinPending(ctx, VolumeID(v.ID)); err != nil {
			return err
		}
	case s == http.StatusNotFound, s == http.StatusUnprocessableEntity && says(err, "attachment not found"):
	default:
		return cloudError(err, "detach volume %s from droplet %d", v.ID, d)
	}
	now, e := c.cloud.volume(ctx, VolumeID(v.ID))
	if codeOf(e) == codes.NotFound {
		return nil
	}
	if e != nil {
		return e
	}
	if slices.Contains(now.DropletIDs, int(d)) {
		return errorf(codes.Aborted, "volume %s is still attached to droplet %d, as the cloud is busy: %w; ask again", v.ID, d, err)
	}
	return nil
}
