//go:build !linux

package subpath

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const throughDescriptor = false

// openInside opens what lies at sub in root, and makes directories that are not there.
// It looks before it opens: without the kernel's help a change in between goes unseen.
// Devices are simulated on these systems.
func openInside(root, sub string) (*os.File, error) {
	like, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	path := root
	for _, name := range strings.Split(filepath.ToSlash(sub), "/") {
		path = filepath.Join(path, name)
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			if err := os.Mkdir(path, like.Mode()&(fs.ModePerm|fs.ModeSetgid)); err != nil {
				return nil, fmt.Errorf("failed to create subPath directory: %w", err)
			}
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
		if path != root && !strings.HasPrefix(path, root+string(filepath.Separator)) {
			return nil, fmt.Errorf("not within volume path %q", root)
		}
	}
	return os.Open(path)
}
