package driver

import (
	"context"
	"errors"
	"io/fs"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// NodeGetVolumeStats never looks at a path at which nothing is mounted: the numbers
// would be those of the node's own disk.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case path == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no volume path is given", id)
	}
	if err := n.isAt(VolumeID(id), path); err != nil {
		return nil, err
	}
	var u usage
	err := n.ops.quiet(ctx, "statfs", id, func(context.Context) (err error) {
		u, err = n.machine.usage(path)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errorf(codes.NotFound, "volume %s is not at %s any more: %w", id, path, err)
	}
	if err != nil {
		return nil, errorf(codeOf(err), "measure volume %s at %s: %w", id, path, err)
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: u.total, Available: u.free, Used: u.used}
	if u.block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes,
		{Unit: csi.VolumeUsage_INODES, Total: u.inodes, Available: u.inodesFree, Used: u.inodesUsed}}}, nil
}

// isAt is a NotFound error unless the volume is mounted at path.
func (n *node) isAt(id VolumeID, path string) error {
	is, err := n.isMount(path)
	if err != nil {
		return err
	}
	if is {
		if is, err = n.machine.shows(path, "", volume{id: id}); errors.Is(err, fs.ErrNotExist) {
			is, err = false, nil
		}
		if err != nil {
			return errorf(codes.Internal, "find out what is mounted at %s: %w", path, err)
		}
	}
	if !is {
		return errorf(codes.NotFound, "volume %s is not mounted at %s", id, path)
	}
	return nil
}
