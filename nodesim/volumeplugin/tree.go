package volumeplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NoMountBelow fails if the mount table shows a mount at or below root.
func (h *Host) NoMountBelow(root string) error {
	mounts, err := h.Mounter.List()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range mounts {
		if m.Path == root || strings.HasPrefix(m.Path, root+string(filepath.Separator)) {
			return fmt.Errorf("%s is still mounted", m.Path)
		}
	}
	return nil
}

// RemoveTree removes a directory and what is in it. It follows no link, leaves no
// filesystem, and does nothing at all while anything is mounted below. A tree that is
// not there is removed.
func (h *Host) RemoveTree(root string) error {
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := h.NoMountBelow(root); err != nil {
		return err
	}
	return removeTree(root, root)
}

func removeTree(path, root string) error {
	same, err := sameFilesystem(path, root)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s is on another filesystem", path)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return os.Remove(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeTree(filepath.Join(path, e.Name()), root); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
