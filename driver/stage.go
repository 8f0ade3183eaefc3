package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func (n *node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case staging == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no staging target path is given", id)
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := n.volumeOf(id, req.GetPublishContext())
	if err != nil {
		return nil, err
	}
	release, err := n.locks.take("Volume ID", id)
	if err != nil {
		return nil, err
	}
	defer release()
	d, err := n.locate(ctx, v)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if m := req.GetVolumeCapability().GetMount(); m != nil {
		if err := n.stage(ctx, d, staging, FSType(m.GetFsType()), m.GetMountFlags()); err != nil {
			return nil, errorf(codeOf(err), "stage volume %s on device %s: %w", id, d.path, err)
		}
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage mounts the device at the staging path, with its filesystem made if need be.
func (n *node) stage(ctx context.Context, d *device, staging string, wanted FSType, flags []string) error {
	is, err := n.isMount(staging)
	if err != nil {
		return err
	}
	if is {
		return n.staged(ctx, d, staging, wanted, readonlyIn(flags))
	}
	if err := os.MkdirAll(staging, 0o750); err != nil {
		return errorf(codes.Internal, "make the staging path: %w", err)
	}
	readonly := readonlyIn(flags)
	fs, err := n.prepare(ctx, d, wanted, readonly)
	if err != nil {
		return err
	}
	options := slices.Clone(flags)
	if fs == "xfs" && !slices.Contains(options, "nouuid") {
		options = append(options, "nouuid") // a restored snapshot has its source's UUID, and may be on the same machine
	}
	err = n.ops.kernel(ctx, "mount", "mount", string(d.id), func(context.Context) error { return n.mounter.Mount(d.path, staging, string(fs), options) })
	if err != nil {
		return err
	}
	n.ops.at(pointStaged, string(d.id))
	return n.growMounted(ctx, d, staging, fs, readonly)
}

func readonlyIn(flags []string) bool { return slices.Contains(flags, "ro") }

// growMounted grows an xfs, which is only possible when it is mounted. It is tried
// again whenever the volume is staged, also when that was done before.
func (n *node) growMounted(ctx context.Context, d *device, staging string, fs FSType, readonly bool) error {
	if fs != "xfs" || readonly {
		return nil
	}
	if err := n.machine.grow(ctx, d, fs, staging); err != nil {
		return errorf(codeOf(err), "grow filesystem %s to the device's size: %w", fs, err)
	}
	return nil
}

// staged checks that what is mounted at the staging path is what is asked for.
func (n *node) staged(ctx context.Context, d *device, staging string, wanted FSType, readonly bool) error {
	same, err := n.machine.shows(staging, n.link(d.volume), d.volume)
	if err != nil {
		return errorf(codes.Internal, "find out what is mounted at %s: %w", staging, err)
	}
	if !same {
		return errorf(codes.AlreadyExists, "another device is mounted at %s; unstage it first", staging)
	}
	have, err := n.mountedAs(staging)
	if err != nil {
		return err
	}
	if wanted != "" && have != "" && have != wanted {
		return errorf(codes.AlreadyExists, "it is staged at %s with filesystem %s, not %s; unstage it first", staging, have, wanted)
	}
	return n.growMounted(ctx, d, staging, have, readonly)
}

func (n *node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case staging == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no staging target path is given", id)
	}
	release, err := n.locks.take("Volume ID", id)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := n.unmount(ctx, id, staging); err != nil {
		return nil, errorf(codeOf(err), "unstage volume %s: %w", id, err)
	}
	n.ops.at(pointUnstaged, id)
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// unmount takes away whatever is mounted at path, also in layers. The path itself stays.
func (n *node) unmount(ctx context.Context, id, path string) error {
	const layers = 16
	for range layers {
		is, err := n.isMount(path)
		if err != nil || !is {
			return err
		}
		if err := n.ops.kernel(ctx, "unmount", "unmount", id, func(context.Context) error { return n.mounter.Unmount(path) }); err != nil {
			return err
		}
	}
	return errorf(codes.Internal, "%s is still mounted after %d unmounts; something keeps mounting it", path, layers)
}

// isMount tells whether something is mounted at path. Nothing is mounted at a path that does not exist.
func (n *node) isMount(path string) (bool, error) {
	is, err := n.mounter.IsMountPoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errorf(codes.Internal, "find out whether %s is mounted: %w", path, err)
	}
	return is, nil
}
