package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/mount-utils"
)

// Names in the directory of a simulated device.
const (
	DeviceSuffix = ".sim"   // of the directory
	BlockFile    = "block"  // the device's bytes
	FormatFile   = "format" // the filesystem's type
	DataDir      = "data"   // the filesystem's tree
)

// ErrBusy is the cause of an unmount that would cut off a mount below it.
var ErrBusy = errors.New("target is busy")

// Device returns the directory of the simulated device that path leads to, false if it leads elsewhere.
func Device(path string) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(real) != BlockFile || !strings.HasSuffix(filepath.Dir(real), DeviceSuffix) {
		return "", false
	}
	return filepath.Dir(real), true
}

// Format returns the type of the filesystem on the simulated device in dir, empty when it has none.
func Format(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, FormatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read filesystem type: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Mount mounts source at target, which must be there and be empty. Sources are a
// simulated device, a path to bind (option "bind"), or the name of a filesystem
// without a device; that one only makes an entry in the table.
func (t *Table) Mount(source, target, fstype string, options []string) error {
	if err := t.mount(source, target, fstype, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

func (t *Table) mount(source, target, fstype string, options []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := entry{Device: source, Path: resolve(target), Type: fstype, Opts: slices.Clone(options)}
	at := t.find(e.Path)
	if slices.Contains(options, "remount") {
		if at < 0 {
			return errors.New("not mounted")
		}
		return t.remount(at, options)
	}
	if at >= 0 {
		return fmt.Errorf("%s is already mounted there", t.entries[at].Device)
	}
	fi, err := os.Lstat(e.Path)
	if err != nil {
		return fmt.Errorf("mount point does not exist: %w", err)
	}
	if err := t.lead(&e, source); err != nil {
		return err
	}
	e.Mode, e.File = fi.Mode().Perm(), !fi.IsDir()
	if e.To != "" {
		if err := fits(e.To, fi); err != nil {
			return err
		}
	}
	before := t.entries
	if err := t.save(append(slices.Clone(before), e)); err != nil {
		return err
	}
	if err := e.place(); err != nil {
		return errors.Join(err, t.save(before))
	}
	return nil
}

// lead fills in what a mount of source leads to.
func (t *Table) lead(e *entry, source string) error {
	if slices.Contains(e.Opts, "bind") || slices.Contains(e.Opts, "rbind") {
		real, err := filepath.EvalSymlinks(source)
		if err != nil {
			return fmt.Errorf("source does not exist: %w", err)
		}
		e.To = real
		// Like the kernel's table, name the device rather than the path that was bound.
		if i := t.find(resolve(source)); i >= 0 {
			e.Device, e.Type = t.entries[i].Device, t.entries[i].Type
		}
		return nil
	}
	dir, ok := Device(source)
	if !ok {
		if filepath.IsAbs(source) {
			return fmt.Errorf("%s is not a simulated device", source)
		}
		return nil
	}
	format, err := Format(dir)
	if err != nil {
		return err
	}
	if format == "" || e.Type != "" && e.Type != "auto" && e.Type != format {
		return fmt.Errorf("wrong fs type, bad option, bad superblock on %s: it holds %s, not %s", source, orNone(format), orNone(e.Type))
	}
	e.Type, e.Device, e.To = format, filepath.Join(dir, BlockFile), filepath.Join(dir, DataDir)
	if _, err := os.Stat(e.To); err != nil {
		return fmt.Errorf("read superblock: %w", err)
	}
	return nil
}

func orNone(format string) string {
	if format == "" {
		return "no filesystem"
	}
	return format
}

// fits checks that a directory is mounted on a directory and a file on an empty file.
func fits(to string, target fs.FileInfo) error {
	src, err := os.Stat(to)
	switch {
	case err != nil:
		return err
	case src.IsDir() != target.IsDir():
		return errors.New("a directory can be mounted only on a directory, a file only on a file")
	case target.IsDir():
		return nil
	case !target.Mode().IsRegular() || target.Size() != 0:
		return errors.New("the target file is not empty; a simulated mount does not hide files")
	}
	return nil
}

func (t *Table) remount(at int, options []string) error {
	entries := slices.Clone(t.entries)
	entries[at].Opts = slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "remount" })
	return t.save(entries)
}

// MountSensitive is Mount; sensitive options are not written down.
func (t *Table) MountSensitive(source, target, fstype string, options, _ []string) error {
	return t.Mount(source, target, fstype, options)
}

// MountSensitiveWithoutSystemd is MountSensitive: there is no systemd in a simulation.
func (t *Table) MountSensitiveWithoutSystemd(source, target, fstype string, options, _ []string) error {
	return t.Mount(source, target, fstype, options)
}

// MountSensitiveWithoutSystemdWithMountFlags is MountSensitive; flags of the mount command mean nothing here.
func (t *Table) MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype string, options, _, _ []string) error {
	return t.Mount(source, target, fstype, options)
}

// Unmount takes the mount at target away. A target that exists and is not mounted is no error, as with
// a current umount under mount-utils.
func (t *Table) Unmount(target string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := resolve(target)
	at := t.find(path)
	if at < 0 {
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
		return nil
	}
	e := t.entries[at]
	if user := t.userOf(at); user != "" {
		return fmt.Errorf("unmount %s: %w: %s is mounted below it", target, ErrBusy, user)
	}
	if err := e.restore(); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return t.save(slices.Delete(slices.Clone(t.entries), at, at+1))
}

// userOf returns the path of a mount that lies in the tree of mount at, when no other mount shows that tree.
func (t *Table) userOf(at int) string {
	e := t.entries[at]
	if e.To == "" {
		return ""
	}
	for i, o := range t.entries {
		if i != at && o.To == e.To {
			return ""
		}
	}
	for i, o := range t.entries {
		if i != at && below(o.Path, e.To) {
			return o.Path
		}
	}
	return ""
}

// List returns the mounts in the order they were made.
func (t *Table) List() ([]mount.MountPoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]mount.MountPoint, 0, len(t.entries))
	for _, e := range t.entries {
		out = append(out, mount.MountPoint{Device: e.Device, Path: e.Path, Type: e.Type, Opts: slices.Clone(e.Opts)})
	}
	return out, nil
}

// IsMountPoint tells whether something is mounted at file. It returns fs.ErrNotExist when nothing is there.
// A mount whose device has gone is still one.
func (t *Table) IsMountPoint(file string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := resolve(file)
	if t.find(path) >= 0 {
		return true, nil
	}
	if _, err := os.Lstat(path); err != nil {
		return false, err
	}
	return false, nil
}

// IsLikelyNotMountPoint is the opposite of IsMountPoint, and as certain: bind mounts are no blind spot here.
func (t *Table) IsLikelyNotMountPoint(file string) (bool, error) {
	is, err := t.IsMountPoint(file)
	return !is, err
}

// CanSafelySkipMountPointCheck is true: Unmount takes a target that is not mounted for done.
func (t *Table) CanSafelySkipMountPointCheck() bool { return true }

// GetMountRefs returns the other mounts that show the same tree or file as pathname does. Pathname may be
// a mount or an ordinary directory; one that does not exist has none.
func (t *Table) GetMountRefs(pathname string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path, to := resolve(pathname), ""
	if at := t.find(path); at >= 0 {
		to = t.entries[at].To
	} else {
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("find mounts of %s: %w", pathname, err)
		}
		to = real
	}
	var refs []string
	for _, e := range t.entries {
		if e.Path != path && e.To != "" && e.To == to {
			refs = append(refs, e.Path)
		}
	}
	return refs, nil
}
