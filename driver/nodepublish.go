package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func (n *node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, target, staging := req.GetVolumeId(), req.GetTargetPath(), req.GetStagingTargetPath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case target == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no target path is given", id)
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if staging == "" {
		return nil, errorf(codes.FailedPrecondition, "volume %s: no staging target path is given; stage the volume first", id)
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
	mode := req.GetVolumeCapability().GetAccessMode().GetMode()
	p := publication{volume: v, target: target, staging: staging, block: req.GetVolumeCapability().GetBlock() != nil,
		readonly: req.GetReadonly() || mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		alone:    mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER}
	if err := n.publish(ctx, p); err != nil {
		return nil, errorf(codeOf(err), "publish volume %s at %s: %w", id, target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publication is one place where a volume is to be seen.
type publication struct {
	volume
	target, staging string
	block           bool // the device itself, not its filesystem
	readonly        bool
	alone           bool // no other target may show the volume
}

func (n *node) publish(ctx context.Context, p publication) error {
	source := p.staging
	if p.block {
		d, err := n.locate(ctx, p.volume)
		if err != nil {
			return err
		}
		defer d.close()
		source = d.path
	} else if err := n.isStaged(p); err != nil {
		return err
	}
	is, err := n.isMount(p.target)
	if err != nil {
		return err
	}
	if is {
		return n.published(p)
	}
	if p.alone {
		refs, err := n.mounter.GetMountRefs(source)
		if err != nil {
			return errorf(codes.Internal, "find out where else it is published: %w", err)
		}
		refs = slices.DeleteFunc(refs, func(r string) bool { return same(r, p.staging) || same(r, p.target) })
		if len(refs) > 0 {
			return errorf(codes.FailedPrecondition, "it is published at %s already, and its access mode allows one place only", refs[0])
		}
	}
	if err := p.makeTarget(); err != nil {
		return errorf(codeOf(err), "make the target: %w", err)
	}
	n.ops.at(pointTargetMade, string(p.id))
	options := []string{"bind"}
	if p.readonly {
		options = append(options, "ro")
	}
	err = n.ops.kernel(ctx, "mount", "bind mount", string(p.id), func(context.Context) error { return n.mounter.Mount(source, p.target, "", options) })
	if err != nil {
		return err
	}
	n.ops.at(pointPublished, string(p.id))
	return nil
}

// isStaged refuses to bind a staging path that does not show the volume: the pod would
// write into the node's own disk.
func (n *node) isStaged(p publication) error {
	is, err := n.isMount(p.staging)
	if err != nil {
		return err
	}
	if !is {
		return errorf(codes.FailedPrecondition, "it is not staged at %s; stage it first", p.staging)
	}
	ours, err := n.machine.shows(p.staging, n.link(p.volume), p.volume)
	if err != nil {
		return errorf(codes.Internal, "find out what is staged at %s: %w", p.staging, err)
	}
	if !ours {
		return errorf(codes.FailedPrecondition, "another volume is staged at %s; unstage that and stage this one", p.staging)
	}
	return nil
}

// published checks that what is mounted at the target is what is asked for.
func (n *node) published(p publication) error {
	ours, err := n.machine.shows(p.target, n.link(p.volume), p.volume)
	if err != nil {
		return errorf(codes.Internal, "find out what is mounted there: %w", err)
	}
	if !ours {
		return errorf(codes.AlreadyExists, "another volume is mounted there; unpublish it first")
	}
	readonly, err := n.isReadonly(p.target)
	if err != nil {
		return err
	}
	if readonly != p.readonly {
		return errorf(codes.AlreadyExists, "it is published there with read-only being %t, not %t; unpublish it first", readonly, p.readonly)
	}
	return nil
}

// makeTarget makes the directory or file to mount on.
func (p publication) makeTarget() error {
	if !p.block {
		return os.MkdirAll(p.target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(p.target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(p.target, os.O_CREATE|os.O_WRONLY, 0o660)
	if err != nil {
		return err
	}
	return f.Close()
}

func (n *node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	switch {
	case id == "":
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	case target == "":
		return nil, errorf(codes.InvalidArgument, "volume %s: no target path is given", id)
	}
	release, err := n.locks.take("Volume ID", id)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := n.unmount(ctx, id, target); err != nil {
		return nil, errorf(codeOf(err), "unpublish volume %s at %s: %w", id, target, err)
	}
	n.ops.at(pointUnbound, id)
	if err := removeTarget(target); err != nil {
		return nil, errorf(codes.Internal, "unpublish volume %s: it is unmounted, but its target stays: %w", id, err)
	}
	n.ops.at(pointUnpublished, id)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// removeTarget removes an empty directory or an empty file, and nothing else: what is
// in a target that is not mounted is somebody's, written into the wrong place.
func removeTarget(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() && (!fi.Mode().IsRegular() || fi.Size() > 0) {
		return errorf(codes.Internal, "%s is not an empty file; look at it and remove it by hand", path)
	}
	return os.Remove(path)
}
