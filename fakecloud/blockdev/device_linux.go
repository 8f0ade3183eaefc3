package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// plugIn binds a free loop device to the image. The device clears itself when
// nobody holds it open any more, so the attachment keeps a descriptor.
func (l *Loop) plugIn(ctx context.Context, v Volume, t Target) (*attachment, error) {
	mode := os.O_RDWR
	if t.ReadOnly {
		mode = os.O_RDONLY
	}
	file, err := os.OpenFile(l.image(v.ID), mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	a := &attachment{}
	done, err := l.op(ctx, "loop-attach", v, t.Droplet, func() error {
		var err error
		a.device, a.hold, err = l.bind(file, v, t)
		return err
	})
	if err != nil {
		if done {
			_, _ = release(a.hold)
		}
		return nil, err
	}
	return a, nil
}

// attempts bounds the search for a free loop device while other processes take them.
const attempts = 1024

// bind configures a loop device in one call and returns it held open, for reading
// only: some kernels let nobody mount a device that is open for writing.
func (l *Loop) bind(file *os.File, v Volume, t Target) (string, *os.File, error) {
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if t.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	if !l.o.Buffered {
		config.Info.Flags |= unix.LO_FLAGS_DIRECT_IO // the kernel drops it where the file system cannot
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(file.Name()))
	from := 0
	for range attempts {
		n, err := l.claim(from)
		if err != nil {
			return "", nil, fmt.Errorf("find a free loop device: %w", err)
		}
		path := "/dev/loop" + strconv.Itoa(n)
		hold, err := configure(path, n, &config)
		l.unclaim(n)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENXIO) {
			from = n + 1 // somebody else was faster, or is about to let go of it
			continue
		}
		if err != nil {
			return "", nil, err
		}
		return path, hold, nil
	}
	return "", nil, fmt.Errorf("find a free loop device: %w", unix.EBUSY)
}

// claim picks a loop device that is probably free and that no other call of this
// backend tries just now, so that they can be configured side by side. The kernel
// names only the first free one; those after it may exist, be busy or have to be made.
func (l *Loop) claim(from int) (int, error) {
	n, err := unix.IoctlRetInt(int(l.control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return 0, err
	}
	n = max(n, from)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.claimed[n] || bound(n) {
		n++
	}
	if err := unix.IoctlSetInt(int(l.control.Fd()), unix.LOOP_CTL_ADD, n); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, err
	}
	l.claimed[n] = true
	return n, nil
}

// bound tells whether a device is in use, without opening it: that would keep it
// from going away just when its owner lets go.
func bound(n int) bool { return exists(fmt.Sprintf("/sys/block/loop%d/loop", n)) }

func (l *Loop) unclaim(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.claimed, n)
}

func configure(path string, n int, config *unix.LoopConfig) (hold *os.File, err error) {
	dev, err := openLoop(path, n)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	c := *config
	err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
	if errors.Is(err, unix.EINVAL) && c.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0 {
		c.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
	}
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDONLY, 0)
}

const loopMajor = 7

// openLoop makes the node where no devtmpfs does.
func openLoop(path string, n int) (*os.File, error) {
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return dev, err
	}
	err = unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make device node %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// pullOut implements plug.
func (l *Loop) pullOut(ctx context.Context, a *attachment) (gone bool, err error) {
	_, err = l.op(ctx, "loop-detach", a.volume, a.node(), func() error {
		l.lift(a)
		gone, err = release(a.hold)
		return err
	})
	return gone, err
}

// drop implements plug: closing the last descriptor clears the device.
func (l *Loop) drop(a *attachment) { a.hold.Close() }

// release takes the device away and closes hold. Who has it open or mounted
// keeps a device of one sector: every read and write fails, unmounting works, and
// the device is free once they let go.
func release(hold *os.File) (gone bool, err error) {
	fd := int(hold.Fd())
	// What was written through a descriptor that is closed by now sits in the device's
	// cache, because ours kept the device open: it would be lost. If it cannot be
	// written, the disk goes all the same; its writer was told by fsync or never asked.
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return false, fmt.Errorf("clear %s: %w", hold.Name(), err)
	}
	if err := pull(fd); err != nil {
		return false, fmt.Errorf("pull %s: %w", hold.Name(), err)
	}
	return true, hold.Close()
}

// pull cuts a device that is still bound down to one sector.
func pull(fd int) error {
	info, err := unix.IoctlLoopGetStatus64(fd)
	if errors.Is(err, unix.ENXIO) {
		return nil // not bound: nobody else had it
	}
	if err != nil {
		return err
	}
	info.Sizelimit = 512
	info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	return unix.IoctlLoopSetStatus64(fd, info)
}

// devices finds every loop device on one of our images.
func (l *Loop) devices() ([]Device, error) {
	out := l.deviceList()
	ours := map[string]bool{}
	for _, d := range out {
		ours[d.Path] = true
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it was cleared meanwhile
		}
		path := strings.TrimSuffix(strings.TrimRight(string(raw), "\n"), " (deleted)")
		id, isImage := strings.CutSuffix(filepath.Base(path), imageSuffix)
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(f))))
		if isImage && filepath.Dir(path) == l.volumes && !ours[device] {
			out = append(out, Device{Volume: VolumeID(id), Path: device})
		}
	}
	return out, nil
}

// pullForeign pulls the devices on our images that are not this backend's: another
// process's mounts can keep them. Two devices on one image would ruin it.
func (l *Loop) pullForeign() error {
	found, err := l.devices()
	if err != nil {
		return err
	}
	for _, d := range found {
		if d.Droplet != "" {
			continue
		}
		dev, err := os.OpenFile(d.Path, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		if _, err := release(dev); err != nil {
			dev.Close()
			return fmt.Errorf("pull %s, left on volume %s: %w", d.Path, d.Volume, err)
		}
	}
	return nil
}
