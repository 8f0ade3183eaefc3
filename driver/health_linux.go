package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func (kernelMachine) attached(at, dir string, id VolumeID) (is, known bool, err error) {
	var here uint64 // the device that is seen
	if at != "" {
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return false, false, nil // what it is that cannot be seen, condition tells
		}
		if here, known = st.Dev, true; st.Mode&unix.S_IFMT == unix.S_IFBLK {
			here = st.Rdev
		}
	}
	links, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	if err != nil {
		return false, known, err
	}
	for _, l := range links {
		var st unix.Stat_t
		if unix.Stat(l, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue
		}
		owner, says := loopOwner(st.Rdev)
		if says && owner == id || known && st.Rdev == here {
			return true, true, nil
		}
		if !says && at == "" {
			return false, false, nil // it may be this one
		}
		known = true
	}
	return false, known || len(links) == 0, nil
}

func (kernelMachine) condition(path string) (condition, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return condition{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return condition{}, readable(path)
	}
	c := condition{errors: ext4Errors(st.Dev)}
	own, filesystem, err := mountOptions(st.Dev, path)
	switch {
	case err != nil:
		return c, fmt.Errorf("find out how %s is mounted: %w", path, err)
	case slices.Contains(filesystem, "shutdown"): // an ext4 that answers from memory, and can do no more
		return c, &fs.PathError{Op: "use", Path: path, Err: unix.EIO}
	}
	broken := slices.Contains(filesystem, "ro") || slices.Contains(filesystem, "emergency_ro")
	c.readonly = broken && !slices.Contains(own, "ro")
	return c, nil
}

// mountOptions are those of the mount of a device at path, and those of its filesystem wherever that is mounted.
func mountOptions(dev uint64, path string) (own, filesystem []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, err
	}
	number, lines := " "+devNumber(dev)+" ", strings.Builder{}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, number) { // few of very many
			lines.WriteString(line)
		}
	}
	list, err := mountinfo.GetMountsFromReader(strings.NewReader(lines.String()), nil)
	for _, m := range slices.Backward(list) {
		if same(m.Mountpoint, path) {
			return strings.Split(m.Options, ","), strings.Split(m.VFSOptions, ","), nil
		}
	}
	return nil, nil, err
}

// readable tells whether a device can be read from at all.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 512))
	return errors.Join(err, f.Close())
}

// ext4Errors is how many errors ext4 has on record for the filesystem on a device, in its
// superblock and so over reboots. It is zero for other filesystems.
func ext4Errors(dev uint64) int {
	device, err := os.Readlink(filepath.Join("/sys/dev/block", devNumber(dev)))
	if err != nil {
		return 0
	}
	b, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

func devNumber(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }
