package blockdev

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// openMount opens the root of a filesystem on a device, wherever on this machine it is
// mounted: here, or in the mount namespace of another process, as a guest's is. It
// returns nil if it is mounted nowhere.
func openMount(hold *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(hold.Fd()), &st); err != nil {
		return nil, err
	}
	ours := func(m *mountinfo.Info) (skip, stop bool) {
		same := m.Major == int(unix.Major(st.Rdev)) && m.Minor == int(unix.Minor(st.Rdev)) || m.Source == hold.Name()
		return !same, same
	}
	mounts, err := mountinfo.GetMounts(ours)
	if err != nil {
		return nil, err
	}
	if len(mounts) > 0 {
		return os.Open(mounts[0].Mountpoint)
	}
	// To ask the kernel whether the device is in use at all, one would have to open it for
	// oneself alone, and would be in the way of whoever mounts it just then.
	own, _ := os.Readlink("/proc/self/ns/mnt")
	seen := map[string]bool{own: true}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		ns, err := os.Readlink(filepath.Join(p, "ns/mnt"))
		if err != nil || seen[ns] {
			continue // it has ended, or its namespace was looked at
		}
		seen[ns] = true
		f, err := os.Open(filepath.Join(p, "mountinfo"))
		if err != nil {
			continue
		}
		mounts, err := mountinfo.GetMountsFromReader(f, ours)
		f.Close()
		if err == nil && len(mounts) > 0 {
			if dir, err := os.Open(filepath.Join(p, "root", mounts[0].Mountpoint)); err == nil {
				return dir, nil
			}
		}
	}
	return nil, nil
}

// freeze stops writing to a filesystem until thaw; it is flushed then.
func freeze(dir *os.File) (thaw func(), err error) {
	if err := unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0); err != nil {
		dir.Close()
		return nil, fmt.Errorf("freeze %s: %w", dir.Name(), err)
	}
	return func() {
		_ = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
		dir.Close()
	}, nil
}
