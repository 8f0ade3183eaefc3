// Package volumeplugin is the contract between the volume manager and the kinds of
// volume a node knows: how a volume is named, where its files lie, how it is
// brought up and taken down, and which errors leave what behind.
//
// Promises. A plugin has no state that matters after a restart other than files
// and mounts. Its methods may be called again after any error or crash. It takes
// down only what it brought up: removal goes file by file and directory by
// directory, never recursively across a mount.
//
// Blocking. Methods that take a context may block on a driver, on the Kubernetes
// API or on the kernel, until the context ends. All others return at once.
package volumeplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UniqueName identifies a volume on a node, as in node.status.volumesAttached.
type UniqueName = v1.UniqueVolumeName

// Spec is one volume as a pod asks for it: either a pod's own volume source or a
// persistent volume. Exactly one of Volume and PV is set.
type Spec struct {
	Volume   *v1.Volume
	PV       *v1.PersistentVolume
	ReadOnly bool // as the pod's persistentVolumeClaim source says
	// Label is the SELinux label that a volume was mounted with; only in specs of what was found on disk.
	Label string
}

// Name is the inner name: the PV's, or the pod's own name for the volume.
// Directories are named by it.
func (s *Spec) Name() string {
	switch {
	case s == nil:
		return ""
	case s.PV != nil:
		return s.PV.Name
	case s.Volume != nil:
		return s.Volume.Name
	}
	return ""
}

// Block tells whether the volume is used as a device. A nil spec is a filesystem.
func (s *Spec) Block() bool {
	return s != nil && s.PV != nil && s.PV.Spec.VolumeMode != nil && *s.PV.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// CSIDriver is the driver's name of a CSI volume, else empty.
func (s *Spec) CSIDriver() string {
	switch {
	case s.PV != nil && s.PV.Spec.CSI != nil:
		return s.PV.Spec.CSI.Driver
	case s.Volume != nil && s.Volume.CSI != nil:
		return s.Volume.CSI.Driver
	}
	return ""
}

// flexDriver is the driver's name of a FlexVolume, else empty.
func (s *Spec) flexDriver() string {
	switch {
	case s.PV != nil && s.PV.Spec.FlexVolume != nil:
		return s.PV.Spec.FlexVolume.Driver
	case s.Volume != nil && s.Volume.FlexVolume != nil:
		return s.Volume.FlexVolume.Driver
	}
	return ""
}

// Plugin is one kind of volume.
type Plugin interface {
	// Name is the qualified name: kubernetes.io/csi.
	Name() string
	// Supports tells whether the plugin is in charge of this source.
	Supports(*Spec) bool
	// RequiresRemount tells whether SetUp is to be called again at each sync of the pod.
	RequiresRemount(*Spec) bool
	// SupportsMountOptions tells whether PV.spec.mountOptions are allowed.
	SupportsMountOptions() bool
	// NewMounter prepares a SetUp; it may refuse the spec.
	NewMounter(*Spec, *v1.Pod) (Mounter, error)
	// NewUnmounter prepares a TearDown from what is on disk.
	NewUnmounter(inner string, uid types.UID) (Unmounter, error)
	// Reconstruct finds out what the volume in a pod's directory is. It must not need the API.
	Reconstruct(uid types.UID, inner, path string) (*Spec, error)
}

// Mounter brings a filesystem volume to one pod's path.
type Mounter interface {
	// Path is where the pod finds the volume.
	Path() string
	// SetUp is idempotent. Its error's class says what may be left behind.
	SetUp(context.Context, SetUpArgs) error
}

// Unmounter takes a volume from one pod's path.
type Unmounter interface {
	TearDown(context.Context) error
}

// SetUpArgs is what SetUp needs besides the spec and the pod.
type SetUpArgs struct {
	FSGroup             *int64
	FSGroupChangePolicy *v1.PodFSGroupChangePolicy
	SELinuxLabel        string
	// SizeLimit bounds an emptyDir, in bytes; zero is none.
	SizeLimit int64
	// Reconstructed: the volume was found on disk and has not been set up in this life.
	Reconstructed bool
	// Remount: the volume is up; only its content is refreshed.
	Remount bool
	// Warn records a warning event on the pod.
	Warn func(reason, message string)
}

// Attacher is a plugin whose volumes are attached by a controller before use.
type Attacher interface {
	Plugin
	// Attachable is false if the volume certainly needs no attachment.
	Attachable(*Spec) (bool, error)
	// WaitForAttach confirms the attachment and returns the device path.
	WaitForAttach(context.Context, *Spec) (string, error)
	// Exhausted tells whether the attachment failed for lack of room on this node, and refreshes what the scheduler knows of it.
	Exhausted(context.Context, *Spec) bool
}

// DeviceMounter is a plugin with a mount of its own for each volume that the pods' mounts share.
type DeviceMounter interface {
	Plugin
	DeviceMountable(*Spec) bool
	// VolumeName is the unique name's tail.
	VolumeName(*Spec) (string, error)
	DeviceMountPath(*Spec) (string, error)
	MountDevice(ctx context.Context, spec *Spec, devicePath, deviceMountPath string, a DeviceArgs) error
	// UnmountDevice goes by the files beside the mount; spec serves where they are damaged.
	UnmountDevice(ctx context.Context, spec *Spec, deviceMountPath string) error
	// DeviceMountRefs lists other mounts of the same filesystem.
	DeviceMountRefs(deviceMountPath string) ([]string, error)
}

// DeviceArgs is what MountDevice needs besides the spec.
type DeviceArgs struct {
	FSGroup      *int64
	SELinuxLabel string
}

// BlockMapper is a plugin that can hand a volume to a pod as a device.
type BlockMapper interface {
	Plugin
	// NewMapper prepares the mapping and writes what tearing down will need.
	NewMapper(*Spec, *v1.Pod) (Mapper, error)
	// NewUnmapper prepares the way back; uid is empty for the device as a whole.
	NewUnmapper(inner string, uid types.UID) (Unmapper, error)
	// Forget removes what NewMapper wrote for a volume whose device was never set up.
	Forget(inner string) error
	// ReconstructBlock is Reconstruct for a volume in volumeDevices.
	ReconstructBlock(uid types.UID, inner, path string) (*Spec, error)
}

// Mapper brings a device to one pod.
type Mapper interface {
	GlobalMapPath() string
	// PodDeviceMapPath is the directory of the pod's link, and the link's name.
	PodDeviceMapPath() (dir, name string)
	// SetUpDevice: found says that the device was found on disk and may be up, so that a failure must leave what it takes to take it down.
	SetUpDevice(ctx context.Context, found bool) (stagingPath string, err error)
	MapPodDevice(ctx context.Context) (devicePath string, err error)
	// StagingPath is where the device is staged, if it is.
	StagingPath() string
}

// Unmapper takes a device away.
type Unmapper interface {
	GlobalMapPath() string
	PodDeviceMapPath() (dir, name string)
	UnmapPodDevice(context.Context) error
	TearDownDevice(ctx context.Context, globalMapPath, devicePath string) error
}

// DeviceFinder is a plugin that can find devices on disk of which no pod's directory tells.
type DeviceFinder interface {
	Plugin
	FindDevices() ([]FoundDevice, error)
}

// FoundDevice is a device that may be up, and the pods that may have it although their directories do not say so.
type FoundDevice struct {
	Spec *Spec
	Pods []types.UID
}

// Repairer is a plugin that can deal with a volume whose files are damaged.
type Repairer interface {
	Plugin
	// Repair rewrites the metadata of the volume in a pod's directory from what the API
	// knows, and returns the spec. If nothing is known it takes down what is mounted
	// there, removes the files it knows, and returns nil.
	Repair(ctx context.Context, uid types.UID, inner, path string, block bool) (*Spec, error)
}
