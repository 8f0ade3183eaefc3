package driver

import (
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"k8s.io/mount-utils"
)

// topmost returns the mount at path, false if there is none.
func (n *node) topmost(path string) (mount.MountPoint, bool, error) {
	list, err := n.mounter.List()
	if err != nil {
		return mount.MountPoint{}, false, errorf(codes.Internal, "list what is mounted: %w", err)
	}
	for _, m := range slices.Backward(list) {
		if same(m.Path, path) {
			return m, true, nil
		}
	}
	return mount.MountPoint{}, false, nil
}

// mountedAs is the type of the filesystem that is mounted at path, empty if none is.
func (n *node) mountedAs(path string) (FSType, error) {
	m, _, err := n.topmost(path)
	return FSType(m.Type), err
}

func (n *node) isReadonly(path string) (bool, error) {
	m, _, err := n.topmost(path)
	return slices.Contains(m.Opts, "ro"), err
}

// same tells whether two paths name the same place, of which the mount table has the
// one with the links of its parents resolved.
func same(a, b string) bool { return a == b || parentResolved(a) == parentResolved(b) }

func parentResolved(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Clean(path)
}
