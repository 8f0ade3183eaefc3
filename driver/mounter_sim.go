package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/mounts"
)

// simMachine is a machine with simulated devices (see package mounts). To format one is
// a single rename, so there is no half of it and no mark.
type simMachine struct{ ops ops }

func (simMachine) ready() error { return nil }

func (m simMachine) open(link string, v volume) (*device, error) {
	dir, ok := mounts.Device(link)
	if !ok {
		return nil, fmt.Errorf("%s leads to no simulated device: %w", link, errNotYet)
	}
	if !m.owns(dir, v.id) {
		return nil, fmt.Errorf("%s leads to %s, the device of another volume: %w", link, dir, errNotYet)
	}
	path := filepath.Join(dir, mounts.BlockFile)
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open device: %w: %w", err, errNotYet)
	}
	if want := max(v.size, minGiB*gib); fi.Size() < want {
		return nil, fmt.Errorf("device %s has %d bytes, where the volume has %d: %w", path, fi.Size(), want, errNotYet)
	}
	return &device{volume: v, path: path, bytes: fi.Size()}, nil
}

func (simMachine) owns(dir string, id VolumeID) bool {
	return strings.TrimSuffix(filepath.Base(dir), mounts.DeviceSuffix) == string(id)
}

func (m simMachine) shows(path, _ string, v volume) (bool, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false, err
	}
	dir, ok := simDir(real)
	return ok && m.owns(dir, v.id), nil
}

// simDir is the directory of the simulated device whose data or block a resolved path is.
func simDir(real string) (string, bool) {
	dir, base := filepath.Dir(real), filepath.Base(real)
	return dir, strings.HasSuffix(dir, mounts.DeviceSuffix) && (base == mounts.DataDir || base == mounts.BlockFile)
}

func (m simMachine) probe(ctx context.Context, d *device) (content, error) {
	var c content
	dir := filepath.Dir(d.path)
	err := m.ops.quiet(ctx, "blkid", string(d.id), func(context.Context) error {
		format, err := mounts.Format(dir)
		c.fs = FSType(format)
		return err
	})
	if err := nothingFound(err); err != nil || c.fs != "" {
		return c, err
	}
	return c, m.ops.quiet(ctx, "read", string(d.id), func(context.Context) (err error) {
		c.used, err = simUsed(dir, d)
		return err
	})
}

// simUsed says where there is data on a device without a filesystem, empty if nowhere.
func simUsed(dir string, d *device) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, mounts.DataDir))
	if len(entries) > 0 {
		return filepath.Join(mounts.DataDir, entries[0].Name()), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f, err := os.Open(d.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// A sparse file knows all of its data, where the system can ask for it.
	off, told, err := firstExtent(f)
	if err != nil || told && off < 0 {
		return "", err
	}
	if off, err = firstData(f, d.bytes, extent{}); err != nil || off < 0 && !told {
		return "", err
	}
	return fmt.Sprintf("byte %d", max(off, 0)), nil
}

func (simMachine) mark(context.Context, *device, FSType) error { return nil }
func (simMachine) unmark(context.Context, *device) error       { return nil }

func (simMachine) format(_ context.Context, d *device, fs FSType) error {
	dir := filepath.Dir(d.path)
	if err := os.MkdirAll(filepath.Join(dir, mounts.DataDir), 0o755); err != nil {
		return err
	}
	format := filepath.Join(dir, mounts.FormatFile)
	tmp := format + ".new"
	if err := os.WriteFile(tmp, []byte(string(fs)+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, format)
}

func (simMachine) sound(context.Context, *device, FSType) (bool, error) { return true, nil }
func (simMachine) repair(context.Context, *device, FSType) error        { return nil }
func (simMachine) grow(context.Context, *device, FSType, string) error  { return nil }

func (simMachine) growsMounted(FSType) bool { return true }

func (m simMachine) attached(_, dir string, id VolumeID) (is, known bool, err error) {
	links, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	for _, l := range links {
		if device, ok := mounts.Device(l); ok && m.owns(device, id) {
			return true, true, nil
		}
	}
	return false, true, err
}

// condition: nothing goes wrong with simulated filesystems but their files.
func (simMachine) condition(path string) (condition, error) {
	_, err := os.Stat(path)
	return condition{}, err
}

// simInode is how much room there is for one file, as mkfs.ext4 reckons.
const simInode = 16 << 10

func (simMachine) usage(path string) (usage, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return usage{}, err
	}
	dir, ok := simDir(real)
	if !ok {
		return usage{}, fmt.Errorf("%s is not a simulated device", real)
	}
	fi, err := os.Stat(filepath.Join(dir, mounts.BlockFile))
	if err != nil {
		return usage{}, err
	}
	u := usage{total: fi.Size()}
	if filepath.Base(real) == mounts.BlockFile {
		u.block = true
		return u, nil
	}
	err = filepath.WalkDir(real, func(p string, e fs.DirEntry, err error) error {
		if err == nil {
			u.inodesUsed++
			if fi, e := e.Info(); e == nil && fi.Mode().IsRegular() {
				u.used += fi.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) && p != real { // removed while we look
			return nil
		}
		return err
	})
	u.inodes = max(u.total/simInode, u.inodesUsed)
	u.free, u.inodesFree = max(0, u.total-u.used), u.inodes-u.inodesUsed
	return u, err
}
