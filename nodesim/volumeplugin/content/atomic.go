package content

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/drydock/internal/lab"
)

var (
	pointWritten  = lab.Point{Component: "kubelet", Name: "after writing a volume's files aside, before they are shown"}
	pointSwitched = lab.Point{Component: "kubelet", Name: "after a volume's new files are shown, before the old ones are removed"}
)

// Points lists the places of this package where the kubelet can be killed.
func Points() []lab.Point { return []lab.Point{pointWritten, pointSwitched} }

// File is one file of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode
	User *int64 // its owner; nil leaves it to the kubelet's user. Who is not root can give nothing away
}

// give makes a file the user's.
func (f File) give(path string) error {
	if f.User == nil || os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, int(*f.User), -1)
}

const (
	dataLink = "..data"
	newLink  = "..data_tmp"
)

// write makes dir show exactly these files, all at once for whoever reads through
// the link ..data:
//
//	..2026_11_29_16_04_05.123/  the files
//	..data -> that directory    replaced by rename
//	<first path element> -> ..data/<first path element>
//
// It returns false if nothing had to change.
func write(dir, stamp string, files map[string]File, reach func(lab.Point)) (bool, error) {
	for path := range files {
		if err := checkPath(path); err != nil {
			return false, err
		}
	}
	old, _ := os.Readlink(filepath.Join(dir, dataLink))
	if old != "" && same(filepath.Join(dir, old), files) {
		return false, links(dir, files)
	}
	next, err := os.MkdirTemp(dir, ".."+stamp+".")
	if err != nil {
		return false, err
	}
	if err := fill(next, files); err != nil {
		return false, errors.Join(err, removeOwn(next))
	}
	reach(pointWritten)
	tmp := filepath.Join(dir, newLink)
	os.Remove(tmp) // of a crash
	if err := os.Symlink(filepath.Base(next), tmp); err != nil {
		return false, err
	}
	if err := os.Rename(tmp, filepath.Join(dir, dataLink)); err != nil {
		return false, err
	}
	reach(pointSwitched)
	if err := links(dir, files); err != nil {
		return true, err
	}
	return true, removeStale(dir, filepath.Base(next))
}

func checkPath(path string) error {
	switch {
	case path == "" || filepath.IsAbs(path):
		return fmt.Errorf("invalid path: must be relative path: %q", path)
	case strings.HasPrefix(path, ".."):
		return fmt.Errorf("invalid path: must not start with '..': %q", path)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return fmt.Errorf("invalid path: must not contain '..': %q", path)
	}
	return nil
}

func fill(dir string, files map[string]File) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, f.Data, f.Mode.Perm()); err != nil {
			return err
		}
		if err := os.Chmod(full, f.Mode.Perm()); err != nil {
			return err
		}
		if err := f.give(full); err != nil {
			return err
		}
	}
	return nil
}

// same tells whether dir holds these files and no others.
func same(dir string, files map[string]File) bool {
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, ok := files[filepath.ToSlash(rel)]
		if !ok {
			return fs.ErrInvalid
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(b, f.Data) {
			return errors.Join(fs.ErrInvalid, err)
		}
		n++
		return nil
	})
	return err == nil && n == len(files)
}

// links makes the visible names, and removes those of files that are gone.
func links(dir string, files map[string]File) error {
	want := map[string]File{}
	for path, f := range files {
		first, _, _ := strings.Cut(path, "/")
		want[first] = f
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if _, wanted := want[e.Name()]; wanted {
			delete(want, e.Name())
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name, f := range want {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
		if err := f.give(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes the directories of earlier contents.
func removeStale(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != keep {
			if err := removeOwn(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOwn removes a directory of ours: files and directories only.
func removeOwn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			err = removeOwn(path)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
