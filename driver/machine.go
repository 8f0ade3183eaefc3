package driver

import (
	"context"
	"errors"
	"os"
)

// machine is what the node service needs of the machine's disks and tools. The kernel's
// disks (mounter_linux.go) and simulated ones (mounter_sim.go) are two of it. A machine
// carries out; whether a device may be formatted is decided in prepare.
//
// Mounting itself is mount.Interface's.
type machine interface {
	// ready returns an error that names the tools that are missing.
	ready() error
	// open resolves the link of a volume to its device, and holds the device until it
	// is closed. It returns errNotYet for what may pass: no link, no device, or
	// another volume's device behind it.
	open(link string, v volume) (*device, error)
	// shows tells whether what is mounted or bound at path is the volume v.
	shows(path, link string, v volume) (bool, error)
	// probe tells what is on the device. Any doubt is an error.
	probe(ctx context.Context, d *device) (content, error)
	// mark writes the format mark on a blank device; unmark erases it.
	mark(ctx context.Context, d *device, fs FSType) error
	unmark(ctx context.Context, d *device) error
	// format makes a filesystem.
	format(ctx context.Context, d *device, fs FSType) error
	// sound tells whether a filesystem that was never mounted is whole. It changes nothing.
	sound(ctx context.Context, d *device, fs FSType) (bool, error)
	// repair mends what can be mended without a loss in a filesystem that is not mounted,
	// and says so in an error if that is not enough.
	repair(ctx context.Context, d *device, fs FSType) error
	// grow makes the filesystem as big as its device. Mounted is where it is mounted, or empty.
	grow(ctx context.Context, d *device, fs FSType, mounted string) error
	// growsMounted tells whether a filesystem can grow while it is mounted. If not, grow
	// refuses a mounted one with FailedPrecondition, unless there is nothing to grow.
	growsMounted(fs FSType) bool
	// usage tells how full the filesystem or how big the device at path is.
	usage(path string) (usage, error)
	// attached tells whether a link in dir leads to the volume's device. At is where the
	// volume is mounted or bound, or empty. It is not known of devices that say nothing of whose they are.
	attached(at, dir string, id VolumeID) (is, known bool, err error)
	// condition tells what is wrong with what is mounted or bound at path.
	condition(path string) (condition, error)
}

// errNotYet is the cause of a failure that may pass by itself.
var errNotYet = errors.New("not there yet")

// volume is a volume as the node knows it: by what the calls say.
type volume struct {
	id   VolumeID
	name string // in the cloud; the link of the device holds it
	size int64  // bytes that the device has at least, zero if unknown
}

// device is an open device of a volume.
type device struct {
	volume
	path       string   // with links resolved
	bytes      int64    // its size
	unfinished bool     // a format of ours was cut short: signatures may be on it
	file       *os.File // keeps the device's number from being given to another one
}

func (d *device) close() {
	if d.file != nil {
		d.file.Close()
	}
}

// content is what a probe found on a device.
type content struct {
	fs     FSType // the filesystem, of any kind; empty if none is recognised
	other  string // what else is recognised: "partition table gpt"
	used   string // where there is data that nothing recognises; empty if there is none
	marked FSType // the device bears our format mark, for this filesystem
	fresh  bool   // fs has never been mounted
}

// usage of a filesystem in bytes and inodes, or of a device, which has a total only.
type usage struct {
	block                          bool
	total, free, used              int64
	inodes, inodesFree, inodesUsed int64
}
