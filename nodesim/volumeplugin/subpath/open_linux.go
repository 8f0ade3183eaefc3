package subpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// throughDescriptor: what was opened is bound by its descriptor, so that nobody can put
// something else in its place.
const throughDescriptor = true

// openInside opens what lies at sub in root. The kernel follows links as long as they
// stay below root. Directories that are not there are made with root's mode.
func openInside(root, sub string) (*os.File, error) {
	base, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(base)
	parts := strings.Split(sub, "/")
	for have := len(parts); have >= 0; have-- {
		fd, err := openBeneath(base, filepath.Join(append([]string{"."}, parts[:have]...)...))
		switch {
		case errors.Is(err, unix.ENOENT) && have > 0:
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
			return nil, fmt.Errorf("not within volume path %q", root)
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: filepath.Join(root, sub), Err: err}
		}
		if fd, err = makeBelow(fd, root, parts[have:]); err != nil {
			return nil, err
		}
		name := filepath.Join(root, sub)
		if real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil {
			name = real
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	return nil, &os.PathError{Op: "open", Path: root, Err: unix.ENOENT}
}

func openBeneath(base int, path string) (int, error) {
	return unix.Openat2(base, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
}

// makeBelow makes one directory after the other, and opens each without following a
// link. It takes fd over and returns the last one.
func makeBelow(fd int, root string, names []string) (int, error) {
	if len(names) == 0 {
		return fd, nil
	}
	var like unix.Stat_t
	if err := unix.Stat(root, &like); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	mode := like.Mode & (0o777 | unix.S_ISGID)
	for _, name := range names {
		next, err := makeOne(fd, name, mode)
		unix.Close(fd)
		if err != nil {
			return -1, fmt.Errorf("failed to create subPath directory: %w", &os.PathError{Op: "mkdir", Path: name, Err: err})
		}
		fd = next
	}
	return fd, nil
}

func makeOne(dir int, name string, mode uint32) (int, error) {
	err := unix.Mkdirat(dir, name, mode)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, e := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if e != nil {
		return -1, e
	}
	if err == nil { // the process's umask must not count
		if err := unix.Fchmod(fd, mode); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}
