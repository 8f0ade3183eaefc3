// Package mounts is the mount table of a node, simulated or real, behind
// k8s.io/mount-utils' mount.Interface.
//
// [Table] simulates one without privileges, on any system: to mount is to put a
// symbolic link in the place of the empty target, and to write that down in a
// table file. What is reached through the target is then the volume's data, as
// with a real mount. Two things a real mount does are only recorded: options, and
// being read-only.
//
// A simulated device is the file `block` in a directory `<name>.sim`, beside a
// file `format` (the filesystem's type; absent on a blank device) and the
// directory `data` (the filesystem's tree). Mounting the device links to data;
// binding a directory or a file links to what it resolves to.
//
// Promises. A target must be empty, so nothing is ever hidden or lost, and nothing
// is removed except the links, empty directories and empty files that this package
// itself deals in: never a tree. The table names a mount before its link appears
// and until the link is gone, so Clear finds every link whenever the process died.
//
// Ownership. One Table, in one process, owns a table file; its methods may be
// called from any goroutine.
package mounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"k8s.io/mount-utils"
)

// Table is a simulated mount table. It implements mount.Interface.
type Table struct {
	path string

	mu      sync.Mutex
	entries []entry // guarded by mu, in the order they were mounted
}

var _ mount.Interface = (*Table)(nil)

// entry is one mount. To is what the link at Path points to; it is empty for a
// filesystem without a device, such as tmpfs, which leaves its target as it is.
type entry struct {
	Device string      `json:"device"`
	Path   string      `json:"path"`
	Type   string      `json:"type"`
	Opts   []string    `json:"opts"`
	To     string      `json:"to,omitempty"`
	File   bool        `json:"file,omitempty"` // the target was a file, not a directory
	Mode   fs.FileMode `json:"mode"`           // permissions of the target before the mount
}

const tableVersion = 1

type tableFile struct {
	Version int     `json:"version"`
	Mounts  []entry `json:"mounts"`
}

// OpenTable reads the table at path; a missing file is an empty table.
func OpenTable(path string) (*Table, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open mount table %s: %w", path, err)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Table{path: path}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open mount table: %w", err)
	}
	entries, err := parseTable(b)
	if err != nil {
		return nil, fmt.Errorf("open mount table %s: %w", path, err)
	}
	return &Table{path: path, entries: entries}, nil
}

func parseTable(b []byte) ([]entry, error) {
	var f tableFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("not a mount table: %w", err)
	}
	if f.Version != tableVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", f.Version, tableVersion)
	}
	seen := map[string]bool{}
	for _, e := range f.Mounts {
		if !filepath.IsAbs(e.Path) || filepath.Clean(e.Path) != e.Path || seen[e.Path] || e.To != "" && !filepath.IsAbs(e.To) {
			return nil, fmt.Errorf("bad entry for path %q", e.Path)
		}
		seen[e.Path] = true
	}
	return f.Mounts, nil
}

// save replaces the table file as a whole. The caller holds mu.
func (t *Table) save(entries []entry) error {
	b, err := json.MarshalIndent(tableFile{Version: tableVersion, Mounts: entries}, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(t.path), "."+filepath.Base(t.path)+"-*")
	if err != nil {
		return fmt.Errorf("write mount table: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), t.path)
	}
	if err != nil {
		return fmt.Errorf("write mount table %s: %w", t.path, err)
	}
	t.entries = entries
	return nil
}

// Clear does to the mounts what a reboot of the node does: it takes every link
// away, leaves an empty directory or file in its place and empties the table.
func (t *Table) Clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []entry
	var errs []error
	for _, e := range slices.Backward(t.entries) {
		if err := e.restore(); err != nil {
			errs = append(errs, fmt.Errorf("clear mount %s: %w", e.Path, err))
			kept = append(kept, e)
		}
	}
	slices.Reverse(kept)
	if len(t.entries) > 0 {
		errs = append(errs, t.save(kept))
	}
	return errors.Join(errs...)
}

// Target returns what the mount at path leads to, false if nothing is mounted there.
func (t *Table) Target(path string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.find(resolve(path))
	if i < 0 {
		return "", false
	}
	return t.entries[i].To, true
}

// find returns the index of the mount at a resolved path, or -1. The caller holds mu.
func (t *Table) find(path string) int {
	return slices.IndexFunc(t.entries, func(e entry) bool { return e.Path == path })
}

// resolve names a path as the table does: absolute, with the links of its parents
// resolved and the last element as it stands, for that may be a mount itself.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// place puts the link in the place of the empty target. It undoes a half of it.
func (e entry) place() error {
	if e.To == "" {
		return nil
	}
	if err := os.Remove(e.Path); err != nil {
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
			return errors.New("the target directory is not empty; a simulated mount does not hide files")
		}
		return err
	}
	if err := os.Symlink(e.To, e.Path); err != nil {
		return errors.Join(err, e.restore())
	}
	return nil
}

// restore takes the link away and puts the empty target back. It does nothing where that is already so.
func (e entry) restore() error {
	if e.To == "" {
		return nil
	}
	fi, err := os.Lstat(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case fi.Mode()&fs.ModeSymlink == 0:
		return nil
	default:
		to, err := os.Readlink(e.Path)
		if err != nil {
			return err
		}
		if to != e.To {
			return fmt.Errorf("the link leads to %s, not to %s as mounted; somebody replaced it, so it is left alone", to, e.To)
		}
		if err := os.Remove(e.Path); err != nil {
			return err
		}
	}
	if e.File {
		f, err := os.OpenFile(e.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, e.Mode)
		if err == nil {
			err = f.Close()
		}
		return e.gone(err)
	}
	if err := os.Mkdir(e.Path, e.Mode); err != nil {
		return e.gone(err)
	}
	return os.Chmod(e.Path, e.Mode) // the umask must not change what was there before
}

// gone takes a parent that has been removed meanwhile for what it is: nothing is left to restore.
func (e entry) gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}
