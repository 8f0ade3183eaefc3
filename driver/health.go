package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// condition is what is wrong with a filesystem that is mounted.
type condition struct {
	readonly bool // it cannot be written to, though it is mounted to be
	errors   int  // that the kernel has met in it
}

// NodeGetVolumeHealth tells what is wrong with a volume on this node, as far as that can
// be seen without writing. A volume that is nowhere mounted is only looked for among the
// node's devices.
func (n *node) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id, published := req.GetVolumeId(), req.GetVolumePublishPath()
	if id == "" {
		return nil, errorf(codes.InvalidArgument, "no volume id is given")
	}
	at := "" // where it is seen
	for _, p := range []string{req.GetStagingTargetPath(), published} {
		if p == "" {
			continue
		}
		switch err := n.isAt(VolumeID(id), p); {
		case err == nil, errors.Is(err, syscall.EIO): // what cannot even be looked at is looked at once more below
			at = p
		case codeOf(err) != codes.NotFound:
			return nil, err
		}
	}
	var found []*csi.VolumeHealth_VolumeHealthEntry
	add := func(status csi.VolumeHealthErrorType, reason, format string, args ...any) {
		found = append(found, &csi.VolumeHealth_VolumeHealthEntry{Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	missing := func() {
		add(csi.VolumeHealthErrorType_INACCESSIBLE, "DeviceMissing", "the node has no device of volume %s; look in the cloud whether it is attached", id)
	}
	there, known, err := n.machine.attached(at, n.deviceDir, VolumeID(id))
	if err != nil {
		return nil, errorf(codes.Internal, "look for the device of volume %s: %w", id, err)
	}
	switch {
	case known && !there:
		missing() // that nothing can be seen at its path either goes without saying
	case published != "" && at != published:
		add(csi.VolumeHealthErrorType_INACCESSIBLE, "NotMounted", "volume %s is not mounted at %s", id, published)
	}
	var is condition
	err = n.ops.quiet(ctx, "health", id, func(context.Context) (err error) {
		if at != "" {
			is, err = n.machine.condition(at)
		}
		return err
	})
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist): // it was taken away meanwhile
	case errors.Is(err, syscall.EROFS):
		is.readonly = true
	case errors.Is(err, syscall.EIO):
		add(csi.VolumeHealthErrorType_INACCESSIBLE, "IOError", "volume %s cannot be read: %v", id, err)
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		if there || !known {
			missing()
		}
	default:
		return nil, errorf(codeOf(err), "look at volume %s: %w", id, err)
	}
	if is.readonly {
		add(csi.VolumeHealthErrorType_DEGRADED, "FilesystemReadOnly", "the filesystem of volume %s has become read-only; see the kernel's log, stop its pods and check it", id)
	}
	if is.errors > 0 {
		add(csi.VolumeHealthErrorType_DEGRADED, "FilesystemErrors", "the kernel has met %d errors in the filesystem of volume %s; stop its pods and check it", is.errors, id)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: id, HealthStatuses: found}}, nil
}
