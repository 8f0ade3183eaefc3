package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"drydock.dev/drydock/internal/lab"
)

// Layout of a simulated volume. The simulated mounter in internal/mounts relies on
// it: block is the disk, format names its filesystem, data is that filesystem's tree.
const (
	simSuffix = ".sim"
	simBlock  = "block"
	simFormat = "format"
	simData   = "data"
	// unplugged marks what a detached volume hides, so that a path into it no longer
	// leads anywhere, as on a pulled disk. The next attach brings it back.
	unplugged = ".unplugged"
)

// Sim keeps a volume in a directory and shows its block file as the device.
// Nothing in it needs privileges.
type Sim struct{ *base }

var (
	_ Backend = (*Sim)(nil)
	_ plug    = (*Sim)(nil)
)

// NewSim keeps volumes under dir, in volumes/ and snapshots/.
func NewSim(dir string, o Options) (*Sim, error) {
	b, err := newBase(dir, o)
	if err != nil {
		return nil, err
	}
	return &Sim{b}, nil
}

// Kind implements Backend.
func (s *Sim) Kind() string { return "sim" }

func (s *Sim) image(id VolumeID) string      { return filepath.Join(s.volumes, string(id)+simSuffix) }
func (s *Sim) snapshot(id SnapshotID) string { return filepath.Join(s.snapshots, string(id)+simSuffix) }

// Create implements Images.
func (s *Sim) Create(ctx context.Context, v Volume, img Image) (err error) {
	unlock, err := s.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	defer unlock()
	dir := s.image(v.ID)
	if exists(dir) {
		return fmt.Errorf("create volume %s: %w", v.Name, fs.ErrExist)
	}
	if img.From != "" || img.Clone.ID != "" {
		_, err = s.op(ctx, "copy", v, "", func() error {
			if img.Clone.ID == "" {
				return copyVolume(ctx, dir, s.snapshot(img.From), img.Progress)
			}
			unlock, err := s.lock(ctx, img.Clone.ID)
			if err != nil {
				return err
			}
			defer unlock()
			return copyVolume(ctx, dir, s.image(img.Clone.ID), img.Progress)
		})
		lab.ComponentFrom(ctx).Point(pointImage, v.Name)
		if err == nil {
			_, err = s.op(ctx, "truncate", v, "", func() error { return enlarge(blockFile(dir), img.Size) })
		}
	} else {
		_, err = s.op(ctx, "truncate", v, "", func() error { return createSim(dir, img.Size) })
		lab.ComponentFrom(ctx).Point(pointImage, v.Name)
		if err == nil && img.Filesystem != "" {
			_, err = s.op(ctx, "mkfs", v, "", func() error { return formatSim(dir, img.Filesystem) })
		}
	}
	if err != nil {
		os.RemoveAll(dir)
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	return nil
}

func createSim(dir string, size int64) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, simBlock), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(setSize(size, f.Truncate), f.Close())
}

func formatSim(dir, kind string) error {
	if err := os.Mkdir(filepath.Join(dir, simData), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, simFormat), []byte(kind+"\n"), 0o644)
}

// blockFile is the disk, wherever it is just now.
func blockFile(dir string) string {
	if path := filepath.Join(dir, simBlock+unplugged); exists(path) {
		return path
	}
	return filepath.Join(dir, simBlock)
}

// copyVolume copies a volume's directory; the copy is plugged in.
func copyVolume(ctx context.Context, to, from string, progress Progress) (err error) {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(to)
		}
	}()
	if err := copyImage(ctx, filepath.Join(to, simBlock), blockFile(from), progress); err != nil {
		return err
	}
	format, err := os.ReadFile(filepath.Join(from, simFormat))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data := filepath.Join(from, simData)
	if exists(data + unplugged) {
		data += unplugged
	}
	if exists(data) {
		if err := copyTree(ctx, filepath.Join(to, simData), data); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, simFormat), format, 0o644)
}

// Delete implements Images.
func (s *Sim) Delete(ctx context.Context, v Volume) error {
	unlock, err := s.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("delete volume %s: %w", v.Name, err)
	}
	defer unlock()
	if s.attachment(v.ID) != nil {
		return fmt.Errorf("delete volume %s: %w", v.Name, ErrAttached)
	}
	if done, err := s.op(ctx, "delete", v, "", func() error { return os.RemoveAll(s.image(v.ID)) }); !done {
		return fmt.Errorf("delete volume %s: %w", v.Name, err)
	}
	return nil
}

// Attach implements Devices.
func (s *Sim) Attach(ctx context.Context, v Volume, t Target) (string, error) {
	return s.attach(ctx, s, v, t)
}

// Detach implements Devices.
func (s *Sim) Detach(ctx context.Context, v Volume) error { return s.detach(ctx, s, v) }

// Release implements Devices.
func (s *Sim) Release(ctx context.Context, v Volume, droplet string) error {
	return s.detachFrom(ctx, s, v, droplet)
}

// Limit implements Devices: files know no limits.
func (s *Sim) Limit(context.Context, Volume, Limit) (Limited, error) {
	return Limited{Why: "devices are simulated"}, nil
}

func (s *Sim) plugIn(ctx context.Context, v Volume, t Target) (*attachment, error) {
	dir := s.image(v.ID)
	done, err := s.op(ctx, "loop-attach", v, t.Droplet, func() error { return move(dir, unplugged, "") })
	if err != nil {
		if done {
			_ = move(dir, "", unplugged)
		}
		return nil, err
	}
	// The mode speaks to all but root, who writes what he likes; a real device refuses him too.
	mode := os.FileMode(0o600)
	if t.ReadOnly {
		mode = 0o400
	}
	if err := os.Chmod(filepath.Join(dir, simBlock), mode); err != nil {
		return nil, errors.Join(err, move(dir, "", unplugged))
	}
	return &attachment{device: filepath.Join(dir, simBlock)}, nil
}

func (s *Sim) pullOut(ctx context.Context, a *attachment) (bool, error) {
	return s.op(ctx, "loop-detach", a.volume, a.node(), func() error { return move(s.image(a.volume.ID), "", unplugged) })
}

func (s *Sim) drop(*attachment) {}

// move renames a volume's disk and tree from one suffix to the other. What is
// there already stays, so a move that was cut short can be repeated.
func move(dir, from, to string) error {
	for _, name := range []string{simData, simBlock} {
		err := os.Rename(filepath.Join(dir, name+from), filepath.Join(dir, name+to))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, err := os.Stat(filepath.Join(dir, simBlock+to))
	return err
}

// Grow implements Devices.
func (s *Sim) Grow(ctx context.Context, v Volume, from, to int64) error {
	path := func() string { return blockFile(s.image(v.ID)) }
	// The file is the device, so the device has followed before it is told.
	return s.grow(ctx, v, path, from, to, func(*attachment) error { return nil }, func(*attachment) (int64, error) { return from, nil })
}

// Snapshot implements Images.
func (s *Sim) Snapshot(ctx context.Context, v Volume, id SnapshotID, progress Progress) (int64, error) {
	if err := validID(string(id)); err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	unlock, err := s.lock(ctx, v.ID)
	if err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	defer unlock()
	to := s.snapshot(id)
	done, err := s.op(ctx, "copy", v, "", func() error { return copyVolume(ctx, to, s.image(v.ID), progress) })
	if err != nil {
		if done {
			os.RemoveAll(to)
		}
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	size, err := occupied(to)
	if err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	return size, nil
}

// Changes implements Images. Where the volume has a filesystem, whose tree lies beside
// the disk, a difference between the trees counts as one everywhere.
func (s *Sim) Changes(ctx context.Context, of, base SnapshotID) ([]Extent, error) {
	if err := errors.Join(validID(string(of)), validBase(base)); err != nil {
		return nil, fmt.Errorf("compare snapshots: %w", err)
	}
	here, from, there := s.snapshot(of), "", ""
	if base != "" {
		there = s.snapshot(base)
		from = filepath.Join(there, simBlock)
	}
	out, err := compareFiles(ctx, filepath.Join(here, simBlock), from)
	if err != nil {
		return nil, fmt.Errorf("compare snapshot %s with %s: %w", of, base, err)
	}
	same, err := sameTrees(filepath.Join(here, simData), filepath.Join(there, simData), base != "")
	if err != nil || same {
		return out, err
	}
	size, err := simSize(here)
	return []Extent{{0, size}}, err
}

// DeleteSnapshot implements Images.
func (s *Sim) DeleteSnapshot(ctx context.Context, id SnapshotID) error {
	if err := validID(string(id)); err != nil {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	if done, err := s.op(ctx, "delete", Volume{ID: VolumeID(id)}, "", func() error { return os.RemoveAll(s.snapshot(id)) }); !done {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// occupied is what disk and tree take up together.
func occupied(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += allocated(info)
		}
		return err
	})
	return total, err
}

func simSize(dir string) (int64, error) {
	info, err := os.Stat(blockFile(dir))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Inventory implements Devices.
func (s *Sim) Inventory(_ context.Context, droplets []string) (Inventory, error) {
	inv := Inventory{Devices: s.deviceList()}
	var more []string
	var err error
	if inv.Volumes, inv.Strays, err = list(s.volumes, simSuffix, simSize); err != nil {
		return inv, fmt.Errorf("list volumes: %w", err)
	}
	if inv.Snapshots, more, err = list(s.snapshots, simSuffix, simSize); err != nil {
		return inv, fmt.Errorf("list snapshots: %w", err)
	}
	inv.Strays = append(inv.Strays, more...)
	if inv.Links, err = s.links(droplets); err != nil {
		return inv, fmt.Errorf("list device links: %w", err)
	}
	return inv, nil
}

// Sweep implements Devices.
func (s *Sim) Sweep(_ context.Context, droplets []string) error { return s.sweepLinks(droplets) }

// Close implements Backend.
func (s *Sim) Close() error {
	s.closeAll(func(*attachment) {})
	return nil
}
