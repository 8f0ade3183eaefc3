package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

const (
	procMounts    = "/proc/self/mounts"
	procMountInfo = "/proc/self/mountinfo"
)

// New returns the kernel's mount table. It mounts by system calls instead of running
// mount(8) and umount(8), which take longer than the mount itself; a bind mount that is
// to be read-only is never writable for a moment; and what the filesystem had to say
// about a mount that failed is in the error.
//
// Options are those of mount(8) as far as the kernel knows them; _netdev, nofail and
// the like, which only mean something to other programs, are passed over.
func New() mount.Interface { return kernel{} }

type kernel struct{}

func (kernel) Mount(source, target, fstype string, options []string) error {
	o := parseOptions(options)
	var err error
	switch {
	case o.remount:
		err = remount(target, o)
	case o.bind || o.rbind:
		err = bind(source, target, o)
	default:
		err = attach(source, target, fstype, o)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// options are mount(8)'s, sorted by who takes them.
type options struct {
	bind, rbind, remount bool
	set, clear           uint64   // attributes of the mount
	params               []string // of the filesystem: key or key=value
}

var attributes = map[string]struct {
	bit uint64
	on  bool
}{
	"ro": {unix.MOUNT_ATTR_RDONLY, true}, "rw": {unix.MOUNT_ATTR_RDONLY, false},
	"nosuid": {unix.MOUNT_ATTR_NOSUID, true}, "suid": {unix.MOUNT_ATTR_NOSUID, false},
	"nodev": {unix.MOUNT_ATTR_NODEV, true}, "dev": {unix.MOUNT_ATTR_NODEV, false},
	"noexec": {unix.MOUNT_ATTR_NOEXEC, true}, "exec": {unix.MOUNT_ATTR_NOEXEC, false},
	"nodiratime": {unix.MOUNT_ATTR_NODIRATIME, true}, "diratime": {unix.MOUNT_ATTR_NODIRATIME, false},
	"noatime": {unix.MOUNT_ATTR_NOATIME, true}, "strictatime": {unix.MOUNT_ATTR_STRICTATIME, true},
	"relatime": {unix.MOUNT_ATTR__ATIME, false}, "atime": {unix.MOUNT_ATTR__ATIME, false},
	"norelatime": {unix.MOUNT_ATTR__ATIME, false}, "nostrictatime": {unix.MOUNT_ATTR__ATIME, false},
}

// passedOver mean something to mount(8) and its friends only.
var passedOver = []string{"defaults", "auto", "noauto", "_netdev", "nofail", "user", "nouser", "users", "owner", "group", "async", ""}

func parseOptions(list []string) options {
	var o options
	for _, opt := range slices.Concat(split(list)...) {
		a, isAttr := attributes[opt]
		switch {
		case opt == "bind":
			o.bind = true
		case opt == "rbind":
			o.rbind = true
		case opt == "remount":
			o.remount = true
		case isAttr:
			if a.bit&unix.MOUNT_ATTR__ATIME != 0 { // a field of several values, not a bit
				o.set, o.clear = o.set&^unix.MOUNT_ATTR__ATIME, o.clear|unix.MOUNT_ATTR__ATIME
			}
			if a.on {
				o.set, o.clear = o.set|a.bit, o.clear&^(a.bit&^unix.MOUNT_ATTR__ATIME)
			} else {
				o.set, o.clear = o.set&^a.bit, o.clear|a.bit
			}
			if a.bit == unix.MOUNT_ATTR_RDONLY {
				o.params = append(o.params, opt)
			}
		case slices.Contains(passedOver, opt), strings.HasPrefix(opt, "x-"), strings.HasPrefix(opt, "comment="):
		default:
			o.params = append(o.params, opt)
		}
	}
	return o
}

// split takes "a,b" in one element for two options, as mount(8) does.
func split(list []string) [][]string {
	var out [][]string
	for _, s := range list {
		out = append(out, strings.Split(s, ","))
	}
	return out
}

// attach mounts a filesystem from a device.
func attach(source, target, fstype string, o options) error {
	fsfd, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		if errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("the kernel does not know filesystem %q: %w", fstype, err)
		}
		return fmt.Errorf("open filesystem %s: %w", fstype, err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigSetString(fsfd, "source", source); err != nil {
		return said(fsfd, err)
	}
	for _, p := range o.params {
		key, value, has := strings.Cut(p, "=")
		if has {
			err = unix.FsconfigSetString(fsfd, key, value)
		} else {
			err = unix.FsconfigSetFlag(fsfd, key)
		}
		if err != nil {
			return fmt.Errorf("option %q: %w", p, said(fsfd, err))
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return said(fsfd, err)
	}
	mfd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, int(o.set))
	if err != nil {
		return said(fsfd, err)
	}
	defer unix.Close(mfd)
	return move(mfd, target)
}

// said adds what the filesystem wrote to its message log, which is more than an errno can tell.
func said(fsfd int, err error) error {
	var lines []string
	buf := make([]byte, 4096)
	for {
		n, e := unix.Read(fsfd, buf)
		if e != nil || n == 0 {
			break
		}
		line := strings.TrimSpace(string(buf[:n]))
		if len(line) > 2 && line[1] == ' ' { // "e ", "w " or "i " tells how bad it is
			line = line[2:]
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(lines, "; "))
}

// bind shows a directory or file at another place.
func bind(source, target string, o options) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if o.rbind {
		flags |= unix.AT_RECURSIVE
	}
	mfd, err := unix.OpenTree(unix.AT_FDCWD, source, flags)
	if err != nil {
		return err
	}
	defer unix.Close(mfd)
	if o.set|o.clear != 0 {
		attr := &unix.MountAttr{Attr_set: o.set, Attr_clr: o.clear}
		if err := unix.MountSetattr(mfd, "", unix.AT_EMPTY_PATH, attr); err != nil {
			return fmt.Errorf("set mount attributes: %w", err)
		}
	}
	return move(mfd, target)
}

// remount changes the attributes of one mount; those of its filesystem stay.
func remount(target string, o options) error {
	attr := &unix.MountAttr{Attr_set: o.set, Attr_clr: o.clear}
	return unix.MountSetattr(unix.AT_FDCWD, target, 0, attr)
}

func move(mfd int, target string) error {
	return unix.MoveMount(mfd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
}

func (k kernel) MountSensitive(source, target, fstype string, options, sensitive []string) error {
	return k.Mount(source, target, fstype, slices.Concat(options, sensitive))
}

func (k kernel) MountSensitiveWithoutSystemd(source, target, fstype string, options, sensitive []string) error {
	return k.MountSensitive(source, target, fstype, options, sensitive)
}

func (k kernel) MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string, options, sensitive, _ []string) error {
	return k.MountSensitive(source, target, fstype, options, sensitive)
}

// How long Unmount bears with a mount that is busy, and its first pause of it.
const (
	busyFor   = 500 * time.Millisecond
	busyPause = time.Millisecond
)

// unmount waits out what only seems to be busy. A program that this process starts,
// for another volume perhaps, has for a moment every file that is open here, until it
// has become that program; so a mount can be busy although all its files are closed.
// Nothing tells when that is over.
func unmount(target string) error {
	end := time.Now().Add(busyFor)
	for pause := busyPause; ; pause *= 2 {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
		time.Sleep(pause)
	}
}

// Unmount takes the topmost mount at target away. A target that exists and is not mounted is no error.
func (k kernel) Unmount(target string) error {
	err := unmount(target)
	if errors.Is(err, unix.EINVAL) {
		is, e := k.IsMountPoint(target)
		if e == nil && !is {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

func (kernel) List() ([]mount.MountPoint, error) { return mount.ListProcMounts(procMounts) }

// IsMountPoint asks the kernel, which knows bind mounts too. A mount whose device has
// gone answers no questions, and is then found in the table.
func (k kernel) IsMountPoint(file string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, file, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &st)
	switch {
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return false, &fs.PathError{Op: "statx", Path: file, Err: fs.ErrNotExist}
	}
	list, e := k.List()
	if e != nil {
		return false, e
	}
	path := resolve(file)
	if slices.ContainsFunc(list, func(m mount.MountPoint) bool { return m.Path == path }) {
		return true, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: file, Err: err}
	}
	return false, nil
}

func (k kernel) IsLikelyNotMountPoint(file string) (bool, error) {
	is, err := k.IsMountPoint(file)
	return !is, err
}

// CanSafelySkipMountPointCheck is true: Unmount takes a target that is not mounted for done.
func (kernel) CanSafelySkipMountPointCheck() bool { return true }

// GetMountRefs returns the other mounts that show what pathname shows. A path that
// does not exist has none.
func (kernel) GetMountRefs(pathname string) ([]string, error) {
	real, err := filepath.EvalSymlinks(pathname)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EIO) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find mounts of %s: %w", pathname, err)
	}
	return mount.SearchMountPoints(real, procMountInfo)
}
