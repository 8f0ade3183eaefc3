package driver

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// FSType is the type of a filesystem, as mount(8) names it.
type FSType string

// DefaultFS is made where nobody says what to make.
const DefaultFS FSType = "ext4"

// filesystems are those that the driver makes and mounts.
var filesystems = []FSType{"ext4", "xfs", "ext3"}

// accessModes are those of a disk that is in one machine at a time.
var accessModes = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
}

// unsupported says why the driver cannot serve a capability; nil if it can.
func unsupported(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	if !slices.Contains(accessModes, mode) {
		return fmt.Errorf("access mode %s: a volume is a disk in one machine at a time; use ReadWriteOnce or ReadWriteOncePod", mode)
	}
	if c.GetBlock() == nil && c.GetMount() == nil {
		return fmt.Errorf("the capability says neither block nor mount")
	}
	if fs := FSType(c.GetMount().GetFsType()); fs != "" && !slices.Contains(filesystems, fs) {
		return fmt.Errorf("filesystem %q: this driver makes %v", fs, filesystems)
	}
	return nil
}

// checkCapabilities refuses a list that is empty or that the driver cannot serve.
func checkCapabilities(list []*csi.VolumeCapability) error {
	if len(list) == 0 {
		return errorf(codes.InvalidArgument, "no volume capabilities are given")
	}
	for _, c := range list {
		if err := unsupported(c); err != nil {
			return errorf(codes.InvalidArgument, "unsupported volume capability: %w", err)
		}
	}
	return nil
}

// checkCapability refuses a capability that is missing or that the driver cannot serve.
func checkCapability(c *csi.VolumeCapability) error {
	if c == nil {
		return errorf(codes.InvalidArgument, "no volume capability is given")
	}
	return checkCapabilities([]*csi.VolumeCapability{c})
}
