package driver

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/digitalocean/godo"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	name, source := req.GetName(), VolumeID(req.GetSourceVolumeId())
	switch {
	case name == "":
		return nil, errorf(codes.InvalidArgument, "no snapshot name is given")
	case source == "":
		return nil, errorf(codes.InvalidArgument, "snapshot %s: no source volume id is given", name)
	case !known(source):
		return nil, errorf(codes.NotFound, "snapshot %s: volume %q does not exist: that is not an id of this cloud", name, source)
	}
	release, err := c.locks.take("Snapshot Name", name)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := c.findSnapshot(ctx, name)
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = c.snap(ctx, name, source); err != nil {
			return nil, err
		}
		c.ops.at(pointSnapped, string(source))
	}
	if VolumeID(s.ResourceID) != source {
		return nil, errorf(codes.AlreadyExists, "snapshot %s exists, and is of volume %s, not %s; use another name", name, s.ResourceID, source)
	}
	out, err := describeSnapshot(s)
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: out}, nil
}

// findSnapshot looks for a snapshot that an earlier call made; like find, it fails only in ways to come back from.
func (c *controller) findSnapshot(ctx context.Context, name string) (*godo.Snapshot, error) {
	all, err := c.snapshots(ctx)
	if err != nil {
		return nil, unsure(err, "find out whether snapshot %s was made already", name)
	}
	if i := slices.IndexFunc(all, func(s godo.Snapshot) bool { return s.Name == cloudName(name) }); i >= 0 {
		return &all[i], nil
	}
	return nil, nil
}

func (c *controller) snap(ctx context.Context, name string, source VolumeID) (*godo.Snapshot, error) {
	s, _, err := c.cloud.Storage.CreateSnapshot(ctx, &godo.SnapshotCreateRequest{
		VolumeID: string(source), Name: cloudName(name), Description: "Made by drydock for snapshot " + name})
	switch {
	case err == nil:
		return s, nil
	case statusOf(err) == http.StatusConflict: // made by a call whose answer was lost, after findSnapshot looked
		if s, err := c.findSnapshot(ctx, name); s != nil || err != nil {
			return s, err
		}
		return nil, errorf(codes.Unavailable, "create snapshot %s: the cloud says that the name is taken, and shows no such snapshot: %w; ask again", name, err)
	case statusOf(err) == http.StatusForbidden && says(err, "limit"):
		return nil, errorf(codes.ResourceExhausted, "create snapshot %s: the account's limit is reached; delete snapshots or have it raised: %w", name, err)
	}
	return nil, cloudError(err, "create snapshot %s of volume %s", name, source)
}

// snapshots lists those of volumes in the region.
func (c *controller) snapshots(ctx context.Context) ([]godo.Snapshot, error) {
	all, err := pages(func(o *godo.ListOptions) ([]godo.Snapshot, *godo.Response, error) {
		return c.cloud.Snapshots.ListVolumeSnapshotByRegion(ctx, c.cloud.region, o)
	})
	if err != nil {
		return nil, cloudError(err, "list snapshots of region %s", c.cloud.region)
	}
	return all, nil
}

// snapshot returns a snapshot of a volume; a NotFound error if there is none.
func (c *cloud) snapshot(ctx context.Context, id SnapshotID) (*godo.Snapshot, error) {
	if !known(id) {
		return nil, errorf(codes.NotFound, "snapshot %q does not exist: that is not an id of this cloud", id)
	}
	s, _, err := c.Snapshots.Get(ctx, string(id))
	if err != nil {
		return nil, cloudError(err, "get snapshot %s", id)
	}
	if s.ResourceType != "volume" {
		return nil, errorf(codes.NotFound, "snapshot %s is one of a %s, not of a volume", id, s.ResourceType)
	}
	return s, nil
}

func describeSnapshot(s *godo.Snapshot) (*csi.Snapshot, error) {
	at, err := time.Parse(time.RFC3339, s.Created)
	if err != nil {
		return nil, errorf(codes.Internal, "snapshot %s: the cloud says that it was made at %q, which is no time: %w", s.ID, s.Created, err)
	}
	return &csi.Snapshot{SnapshotId: s.ID, SourceVolumeId: s.ResourceID, SizeBytes: int64(s.MinDiskSize) * gib,
		CreationTime: timestamppb.New(at), ReadyToUse: true}, nil
}

func (c *controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id := SnapshotID(req.GetSnapshotId())
	if id == "" {
		return nil, errorf(codes.InvalidArgument, "no snapshot id is given")
	}
	if !known(id) {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	release, err := c.locks.take("Snapshot ID", string(id))
	if err != nil {
		return nil, err
	}
	defer release()
	switch _, err := c.cloud.Storage.DeleteSnapshot(ctx, string(id)); {
	case statusOf(err) == http.StatusNotFound:
	case err != nil:
		return nil, cloudError(err, "delete snapshot %s", id)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, errorf(codes.InvalidArgument, "no snapshot id is given")
	}
	s, err := c.cloud.snapshot(ctx, SnapshotID(req.GetSnapshotId()))
	if err != nil {
		return nil, err
	}
	out, err := describeSnapshot(s)
	return &csi.GetSnapshotResponse{Snapshot: out}, err
}

func (c *controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	var all []godo.Snapshot
	if id := req.GetSnapshotId(); id != "" {
		s, err := c.cloud.snapshot(ctx, SnapshotID(id))
		if err != nil && codeOf(err) != codes.NotFound {
			return nil, err
		}
		if s != nil {
			all = append(all, *s)
		}
	} else {
		var err error
		if all, err = c.snapshots(ctx); err != nil {
			return nil, err
		}
	}
	if source := req.GetSourceVolumeId(); source != "" {
		all = slices.DeleteFunc(all, func(s godo.Snapshot) bool { return s.ResourceID != source })
	}
	part, next, err := page(all, func(s godo.Snapshot) place {
		at, _ := time.Parse(time.RFC3339, s.Created)
		return placeOf(at, s.ID)
	}, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for i := range part {
		s, err := describeSnapshot(&part[i])
		if err != nil {
			return nil, err
		}
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: s})
	}
	return resp, nil
}
