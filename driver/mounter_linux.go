package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// kernelMachine is a Linux machine: block devices and the tools for them.
type kernelMachine struct{ ops ops }

func newKernelMachine(o ops) (machine, error) { return kernelMachine{o}, nil }

func (kernelMachine) ready() error {
	for _, t := range []tool{toolBlkid, toolMkfsExt4, toolE2fsck} {
		if _, err := t.path(); err != nil {
			return err
		}
	}
	return nil
}

func (m kernelMachine) open(link string, v volume) (*device, error) {
	path, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", link, errNotYet)
	}
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", link, err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("%s leads to %s, which is no device yet: %w", link, path, errNotYet)
	}
	if err != nil {
		return nil, fmt.Errorf("open device: %w", err)
	}
	d := &device{volume: v, path: path, file: f}
	if err := m.inspect(d, link); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// inspect checks that an open device is the volume's, and whole.
func (m kernelMachine) inspect(d *device, link string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", d.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("%s leads to %s, which is not a block device", link, d.path)
	}
	if owner, known := loopOwner(st.Rdev); known && owner != d.id {
		return fmt.Errorf("%s leads to %s, the device of volume %s: %w", link, d.path, owner, errNotYet)
	}
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("measure %s: %w", d.path, err)
	}
	if want := max(d.size, minGiB*gib); size < want {
		return fmt.Errorf("device %s has %d bytes, where the volume has %d: %w", d.path, size, want, errNotYet)
	}
	d.bytes = size
	return nil
}

func (m kernelMachine) shows(path, link string, v volume) (bool, error) {
	var st, want unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	dev := st.Dev
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = st.Rdev
	}
	if owner, known := loopOwner(dev); known {
		return owner == v.id, nil
	}
	if link == "" {
		return true, nil // nothing says otherwise
	}
	if err := unix.Stat(link, &want); err != nil {
		return false, &fs.PathError{Op: "stat", Path: link, Err: err}
	}
	return dev == want.Rdev, nil
}

// probe asks blkid and looks for itself at the same time, unless it is known already that there is nothing to find.
func (m kernelMachine) probe(ctx context.Context, d *device) (content, error) {
	empty := hollow(d)
	var found content
	asked := make(chan error, 1)
	go func() {
		asked <- m.ops.quiet(ctx, "blkid", string(d.id), func(ctx context.Context) (err error) {
			if !empty {
				found, err = blkid(ctx, d.path)
			}
			return err
		})
	}()
	seen := sight{data: -1}
	readErr := m.ops.quiet(ctx, "read", string(d.id), func(context.Context) (err error) {
		if !empty {
			seen, err = examine(d)
		}
		return err
	})
	err := nothingFound(<-asked)
	if err := errors.Join(err, readErr); err != nil {
		return content{}, err
	}
	c := content{fs: found.fs, other: found.other, marked: seen.mark}
	d.unfinished = seen.mark != ""
	switch {
	case c.fs == "" && seen.data >= 0:
		c.used = fmt.Sprintf("byte %d", seen.data)
	case c.fs != "" && c.marked == c.fs:
		s, err := readSuperblock(d.file, c.fs)
		if err != nil {
			return content{}, err
		}
		c.fresh = s.fresh
	}
	return c, nil
}

// sight is what can be seen of a device without knowing what it holds.
type sight struct {
	mark FSType // as in content.marked
	data int64  // offset of the first data apart from the mark, -1 if it looks blank
}

func examine(d *device) (s sight, err error) {
	if s.mark, err = readMark(d.file, d.bytes, d.id); err != nil {
		return s, err
	}
	except := extent{}
	if s.mark != "" {
		except = extent{markOffset(d.bytes), markSize}
	}
	s.data, err = firstData(d.file, d.bytes, except)
	return s, err
}

// blkid asks the tool of that name, past its cache.
func blkid(ctx context.Context, path string) (content, error) {
	r, err := toolBlkid.run(ctx, "-p", "-o", "export", path)
	if err != nil {
		return content{}, err
	}
	switch {
	case r.exit == 2 && strings.TrimSpace(r.stdout+r.stderr) == "":
		return content{}, nil
	case r.exit != 0:
		return content{}, fmt.Errorf("blkid: %s", r)
	}
	return parseBlkid(r.stdout)
}

func (m kernelMachine) mark(ctx context.Context, d *device, fs FSType) error {
	return m.ops.quiet(ctx, "mark", string(d.id), func(context.Context) error { return write(d, formatMark{d.id, fs}.block()) })
}

func (m kernelMachine) unmark(ctx context.Context, d *device) error {
	return m.ops.quiet(ctx, "unmark", string(d.id), func(context.Context) error {
		if fs, err := readMark(d.file, d.bytes, d.id); err != nil || fs == "" {
			return err
		}
		return write(d, make([]byte, markSize))
	})
}

// write puts a block in the mark's place and onto the disk.
func write(d *device, block []byte) error {
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(block, markOffset(d.bytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// format makes a filesystem. What mkfs would write only to say zero it leaves out, for
// the device is blank: it neither discards, nor zeroes inode tables and journal.
func (kernelMachine) format(ctx context.Context, d *device, fs FSType) error {
	args := []string{"-q", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", d.path}
	if fs == "xfs" {
		args = []string{"-q", "-K", d.path}
		if d.unfinished {
			args = append([]string{"-f"}, args...)
		}
	}
	t := mkfs(fs)
	r, err := t.run(ctx, args...)
	if err == nil && r.exit != 0 {
		err = fmt.Errorf("%s: %s", t.name, r)
	}
	return err
}

func (kernelMachine) sound(ctx context.Context, d *device, fs FSType) (bool, error) {
	t, args, broken := toolE2fsck, []string{"-f", "-n", d.path}, 4
	if fs == "xfs" {
		t, args, broken = toolXfsRepair, []string{"-n", d.path}, 1
	}
	r, err := t.run(ctx, args...)
	if err == nil && r.exit != 0 && r.exit != broken {
		err = fmt.Errorf("%s: %s", t.name, r)
	}
	return r.exit == 0, err
}

// repair does what e2fsck dares without questions. The mount of an xfs replays its log; there is nothing else to do before it.
func (kernelMachine) repair(ctx context.Context, d *device, fs FSType) error {
	if fs == "xfs" {
		return nil
	}
	return e2fsck(ctx, "-p", d.path)
}

func e2fsck(ctx context.Context, args ...string) error {
	r, err := toolE2fsck.run(ctx, args...)
	if err != nil {
		return err
	}
	const mended, mendedReboot, left = 1, 2, 4
	switch {
	case r.exit&left != 0:
		return fmt.Errorf("it has errors that need a decision; it is not mounted; run e2fsck on it by hand: %s", r)
	case r.exit&^(mended|mendedReboot) != 0:
		return fmt.Errorf("e2fsck: %s", r)
	}
	return nil
}

func (m kernelMachine) grow(ctx context.Context, d *device, fs FSType, mounted string) error {
	s, err := readSuperblock(d.file, fs)
	if err != nil {
		return err
	}
	if d.bytes-s.bytes < edge { // no more than a remainder
		return nil
	}
	if mounted != "" && !m.growsMounted(fs) {
		return errorf(codes.FailedPrecondition, "to grow a mounted %s takes CAP_SYS_RESOURCE, which this process lacks; it grows when the volume is staged the next time", fs)
	}
	t, args := toolResize2fs, []string{d.path}
	if fs == "xfs" {
		t, args = toolXfsGrowfs, []string{"-d", mounted}
	}
	return m.ops.kernel(ctx, t.name, t.name, string(d.id), func(ctx context.Context) error {
		if fs != "xfs" && mounted == "" {
			if err := e2fsck(ctx, "-f", "-p", d.path); err != nil {
				return err
			}
		}
		r, err := t.run(ctx, args...)
		if err == nil && r.exit != 0 {
			err = fmt.Errorf("%s: %s", t.name, r)
		}
		return err
	})
}

// growsMounted asks for the capability that ext4 wants of who grows it; some containers lack it.
// Without it an ext4 grows when it is next staged.
func (kernelMachine) growsMounted(fs FSType) bool {
	if fs == "xfs" {
		return true
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func (kernelMachine) usage(path string) (usage, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return usage{}, err
	}
	if fi.Mode()&fs.ModeDevice != 0 {
		f, err := os.Open(path)
		if err != nil {
			return usage{}, err
		}
		defer f.Close()
		size, err := f.Seek(0, io.SeekEnd)
		return usage{block: true, total: size}, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return usage{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	unit := int64(st.Bsize)
	return usage{
		total: int64(st.Blocks) * unit, free: int64(st.Bavail) * unit, used: int64(st.Blocks-st.Bfree) * unit,
		inodes: int64(st.Files), inodesFree: int64(st.Ffree), inodesUsed: int64(st.Files - st.Ffree),
	}, nil
}
