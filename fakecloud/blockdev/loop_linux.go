package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/lab"
)

const imageSuffix = ".img"

// Loop shows sparse files as loop devices.
type Loop struct {
	*base
	control *os.File     // /dev/loop-control
	claimed map[int]bool // guarded by mu: loop devices that a call is about to configure
}

var (
	_ Backend = (*Loop)(nil)
	_ plug    = (*Loop)(nil)
)

// NewLoop keeps images under dir, in volumes/ and snapshots/. It pulls the devices
// that an earlier process left on them, so that no image ever has two.
func NewLoop(dir string, o Options) (*Loop, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	b, err := newBase(dir, o)
	if err != nil {
		control.Close()
		return nil, err
	}
	l := &Loop{base: b, control: control, claimed: map[int]bool{}}
	if err := l.pullForeign(); err != nil {
		control.Close()
		return nil, fmt.Errorf("open block devices: %w", err)
	}
	liftUnbound()
	return l, nil
}

// Kind implements Backend.
func (l *Loop) Kind() string { return "loop" }

func (l *Loop) image(id VolumeID) string { return filepath.Join(l.volumes, string(id)+imageSuffix) }
func (l *Loop) snapshot(id SnapshotID) string {
	return filepath.Join(l.snapshots, string(id)+imageSuffix)
}

// Create implements Images.
func (l *Loop) Create(ctx context.Context, v Volume, img Image) (err error) {
	unlock, err := l.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	defer unlock()
	path := l.image(v.ID)
	if exists(path) {
		return fmt.Errorf("create volume %s: %w", v.Name, fs.ErrExist)
	}
	if img.From != "" || img.Clone.ID != "" {
		_, err = l.op(ctx, "copy", v, "", func() error {
			if img.Clone.ID != "" {
				return l.cloneFile(ctx, path, img.Clone, img.Progress)
			}
			return copyImage(ctx, path, l.snapshot(img.From), img.Progress)
		})
		if err == nil {
			lab.ComponentFrom(ctx).Point(pointImage, v.Name)
			_, err = l.op(ctx, "truncate", v, "", func() error { return enlarge(path, img.Size) })
		}
	} else {
		_, err = l.op(ctx, "truncate", v, "", func() error { return createSparse(path, img.Size) })
		if err == nil && img.Filesystem != "" {
			lab.ComponentFrom(ctx).Point(pointImage, v.Name)
			_, err = l.op(ctx, "mkfs", v, "", func() error { return mkfs(ctx, path, img.Filesystem, img.Label) })
		}
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	return nil
}

func createSparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(setSize(size, f.Truncate), f.Close()); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}

func mkfs(ctx context.Context, path, kind, label string) error {
	args := map[string][]string{"ext4": {"-q", "-F"}, "xfs": {"-q", "-f"}}[kind]
	if args == nil {
		return fmt.Errorf("format %s: %w", kind, errors.ErrUnsupported)
	}
	if label != "" {
		args = append(args, "-L", label)
	}
	if out, err := exec.CommandContext(ctx, "mkfs."+kind, append(args, path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.%s: %w: %s", kind, err, out)
	}
	return nil
}

// Delete implements Images.
func (l *Loop) Delete(ctx context.Context, v Volume) error {
	unlock, err := l.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", v.Name, err)
	}
	defer unlock()
	if l.attachment(v.ID) != nil {
		return fmt.Errorf("delete volume %s: %w", v.Name, ErrAttached)
	}
	if done, err := l.op(ctx, "delete", v, "", func() error { return remove(l.image(v.ID)) }); !done {
		return fmt.Errorf("delete volume %s: %w", v.Name, err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Attach implements Devices.
func (l *Loop) Attach(ctx context.Context, v Volume, t Target) (string, error) {
	return l.attach(ctx, l, v, t)
}

// Detach implements Devices.
func (l *Loop) Detach(ctx context.Context, v Volume) error { return l.detach(ctx, l, v) }

// Release implements Devices.
func (l *Loop) Release(ctx context.Context, v Volume, droplet string) error {
	return l.detachFrom(ctx, l, v, droplet)
}

// Grow implements Devices.
func (l *Loop) Grow(ctx context.Context, v Volume, from, to int64) error {
	return l.grow(ctx, v, func() string { return l.image(v.ID) }, from, to, func(a *attachment) error {
		return unix.IoctlSetInt(int(a.hold.Fd()), unix.LOOP_SET_CAPACITY, 0)
	}, func(a *attachment) (int64, error) {
		return unix.Seek(int(a.hold.Fd()), 0, unix.SEEK_END)
	})
}

// DeleteSnapshot implements Images.
func (l *Loop) DeleteSnapshot(ctx context.Context, id SnapshotID) error {
	if err := validID(string(id)); err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	if done, err := l.op(ctx, "delete", Volume{ID: VolumeID(id)}, "", func() error { return remove(l.snapshot(id)) }); !done {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// Changes implements Images.
func (l *Loop) Changes(ctx context.Context, of, base SnapshotID) ([]Extent, error) {
	if err := errors.Join(validID(string(of)), validBase(base)); err != nil {
		return nil, fmt.Errorf("compare snapshots: %w", err)
	}
	from := ""
	if base != "" {
		from = l.snapshot(base)
	}
	out, err := compareFiles(ctx, l.snapshot(of), from)
	if err != nil {
		return nil, fmt.Errorf("compare snapshot %s with %s: %w", of, base, err)
	}
	return out, nil
}

// Inventory implements Devices.
func (l *Loop) Inventory(_ context.Context, droplets []string) (Inventory, error) {
	var inv Inventory
	var err error
	measure := func(path string) (int64, error) {
		info, err := os.Lstat(path)
		if err != nil {
			return 0, err
		}
		if !info.Mode().IsRegular() {
			return 0, errors.New("not a file")
		}
		return info.Size(), nil
	}
	var more []string
	if inv.Volumes, inv.Strays, err = list(l.volumes, imageSuffix, measure); err != nil {
		return inv, fmt.Errorf("list volume images: %w", err)
	}
	if inv.Snapshots, more, err = list(l.snapshots, imageSuffix, measure); err != nil {
		return inv, fmt.Errorf("list snapshot images: %w", err)
	}
	inv.Strays = append(inv.Strays, more...)
	if inv.Devices, err = l.devices(); err != nil {
		return inv, fmt.Errorf("list loop devices: %w", err)
	}
	if inv.Links, err = l.links(droplets); err != nil {
		return inv, fmt.Errorf("list device links: %w", err)
	}
	return inv, nil
}

// Sweep implements Devices.
func (l *Loop) Sweep(_ context.Context, droplets []string) error {
	if err := l.pullForeign(); err != nil {
		return fmt.Errorf("sweep loop devices: %w", err)
	}
	return l.sweepLinks(droplets)
}

// Close implements Backend.
func (l *Loop) Close() error {
	l.closeAll(func(a *attachment) {
		l.lift(a)
		_, _ = release(a.hold)
	})
	return l.control.Close()
}
