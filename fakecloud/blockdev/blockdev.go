// Package blockdev makes the disks of the fake cloud: images that hold data and
// devices that show them to a droplet.
//
// Two backends stand behind one contract. Loop keeps a volume in a sparse file
// and shows it as a Linux loop device; it needs root. Sim keeps it in a
// directory, shows its image file in place of a device, and runs anywhere.
//
// Promises.
//   - When Attach returns, the device has its full size and the droplet's by-id
//     link points to it. When Detach returns, the link is gone, and whoever still
//     holds the device gets I/O errors: the disk was pulled.
//   - A call that returns an error left nothing half-made: no file, device or
//     link beyond those that were there before.
//   - Images outlive the process. Devices do not: when it ends, however it ends,
//     the kernel takes the loop devices away. Links stay behind and may then
//     name a device of somebody else, so Sweep runs before the first Attach.
//   - Attach, Detach, Delete and Grow may be repeated.
//
// Blocking. Calls about one volume run one after another, calls about different
// volumes side by side. Nothing is flushed to the physical disk: data survives
// the death of the process, not of the machine.
//
// What it does not do: it knows no rules, no limits, no records. Which volume may
// go where is the business of package fakecloud.
package blockdev

import (
	"context"
	"errors"

	"drydock.dev/drydock/internal/lab"
)

// VolumeID and SnapshotID name images; they become file names.
type (
	VolumeID   string
	SnapshotID string
)

// LinkPrefix starts the name of a volume's link in a droplet's by-id directory;
// the volume's name follows.
const LinkPrefix = "scsi-0DO_Volume_"

// Errors that callers tell apart; everything else comes from the file system or
// the kernel, with its errno in the chain.
var (
	ErrAttached    = errors.New("the volume is attached")
	ErrElsewhere   = errors.New("the volume is attached to another droplet")
	ErrUnsupported = errors.New("loop devices need Linux and root")
)

// Volume is what a backend must know of one: the id names the image, the name the link.
type Volume struct {
	ID   VolumeID
	Name string
}

// Image says what a new volume holds. The zero value of all but Size is a blank disk.
type Image struct {
	Size       int64      // bytes
	From       SnapshotID // copy of this snapshot
	Clone      Volume     // copy of this volume as it is now; a mounted filesystem is frozen meanwhile
	Progress   Progress   // of a copy; may be nil
	Filesystem string     // ext4 or xfs: formatted at birth
	Label      string     // of that filesystem
}

// Target says where a volume is attached.
type Target struct {
	Droplet  string // its name; decides the link's directory
	ReadOnly bool
	Shared   bool // another droplet may have it already: then both see one device
}

// Extent is a range of a disk, in bytes.
type Extent struct{ Start, Length int64 }

// Limit is what a device may do in a second, for reads and for writes, each. Zero is no limit.
type Limit struct{ IOPS, Bytes int64 }

// Limited tells whether a limit is in force, and if not, why.
type Limited struct {
	Applied bool
	Why     string
}

// Progress is told how many bytes of how many were copied.
type Progress func(done, total int64)

// Images keeps volumes and snapshots as files.
type Images interface {
	// Create makes a volume's image. It fails with fs.ErrExist if there is one.
	Create(context.Context, Volume, Image) error
	// Delete removes it; ErrAttached while it is attached. A missing image is no error.
	Delete(context.Context, Volume) error
	// Snapshot copies the volume's present content and returns how many bytes the copy
	// occupies. A mounted filesystem is frozen meanwhile. Progress may be nil.
	Snapshot(context.Context, Volume, SnapshotID, Progress) (int64, error)
	// DeleteSnapshot removes a snapshot. A missing one is no error.
	DeleteSnapshot(context.Context, SnapshotID) error
	// Changes lists where a snapshot differs from another one of the same volume, in
	// order and without overlap; without a base, where it has data. What lies beyond the
	// end of a smaller base counts as different only where there is data.
	Changes(ctx context.Context, of, base SnapshotID) ([]Extent, error)
}

// Devices shows volumes to droplets.
type Devices interface {
	// Attach returns the device's path. ErrElsewhere if another droplet has it.
	Attach(context.Context, Volume, Target) (string, error)
	// Detach takes the device away from all droplets, in use or not.
	Detach(context.Context, Volume) error
	// Release takes the volume away from one droplet: its link, and with the last
	// droplet's the device. Others that share the device keep it, and so does whoever
	// has it open on a droplet that lost its link.
	Release(ctx context.Context, v Volume, droplet string) error
	// Limit bounds the I/O on an attached volume's device, where the machine can; else
	// it says why not. It holds until the device goes.
	Limit(context.Context, Volume, Limit) (Limited, error)
	// Grow enlarges the image and, when attached, the device, from one size to another.
	// If the device cannot follow, the image goes back to from; else it never shrinks.
	Grow(ctx context.Context, v Volume, from, to int64) error
	// Sweep removes the links in those droplets' directories, and the devices, that
	// belong to no attachment of this backend.
	Sweep(ctx context.Context, droplets []string) error
	// Inventory lists what exists, whoever made it.
	Inventory(ctx context.Context, droplets []string) (Inventory, error)
}

// Backend is a whole set of disks.
type Backend interface {
	Images
	Devices
	// Kind is "loop" or "sim".
	Kind() string
	// Close detaches everything. Images stay.
	Close() error
}

// Inventory is everything a backend can find of its own on this machine.
type Inventory struct {
	Volumes   []File   // images of volumes; ID is a VolumeID
	Snapshots []File   // ID is a SnapshotID
	Strays    []string // other paths in its directories
	Devices   []Device
	Links     []Link
}

// File is an image.
type File struct {
	ID   string
	Path string
	Size int64 // of the disk in bytes; -1 if the image is damaged or unfinished
}

// Device is an attached volume. One with an empty Droplet was made by somebody
// else, such as an earlier process whose mounts something still holds.
type Device struct {
	Volume  VolumeID
	Path    string
	Droplet string
}

// Link is an entry in a droplet's by-id directory.
type Link struct {
	Droplet string
	Path    string
	Target  string
}

// Options of both backends. Lab is needed; a nil Links makes no links.
type Options struct {
	Lab *lab.Lab
	// Links gives the by-id directory of a droplet by its name; empty for none.
	Links func(droplet string) (dir string)
	// Buffered keeps loop devices on the page cache, without direct I/O.
	Buffered bool
}

// Kill points of this package; package fakecloud's component reaches them.
var (
	pointImage    = lab.Point{Component: "cloud", Name: "after the image is made, before its content"}
	pointDevice   = lab.Point{Component: "cloud", Name: "after the device is attached, before its link"}
	pointUnlinked = lab.Point{Component: "cloud", Name: "after the link is removed, before the device is detached"}
	pointGrown    = lab.Point{Component: "cloud", Name: "after the image is enlarged, before the device is"}
)

// Points lists the kill points in the backends.
func Points() []lab.Point {
	return []lab.Point{pointImage, pointDevice, pointUnlinked, pointGrown}
}
