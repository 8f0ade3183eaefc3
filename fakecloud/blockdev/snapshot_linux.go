package blockdev

import (
	"context"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Snapshot implements Images. A filesystem mounted in this process's namespace is
// frozen while its data is copied; a raw device is written back first.
func (l *Loop) Snapshot(ctx context.Context, v Volume, id SnapshotID, progress Progress) (int64, error) {
	if err := validID(string(id)); err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	unlock, err := l.lock(ctx, v.ID)
	if err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	defer unlock()
	to, node := l.snapshot(id), ""
	if a := l.attachment(v.ID); a != nil {
		node = a.node()
	}
	done, err := l.op(ctx, "copy", v, node, func() error { return l.copyLocked(ctx, to, v, progress) })
	if err != nil {
		if done {
			os.Remove(to)
		}
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	info, err := os.Stat(to)
	if err != nil {
		return 0, fmt.Errorf("snapshot volume %s: %w", v.Name, err)
	}
	return allocated(info), nil
}

// copyLocked copies the image of a volume whose lock is held, as its device shows it now.
func (l *Loop) copyLocked(ctx context.Context, to string, v Volume, progress Progress) error {
	if a := l.attachment(v.ID); a != nil {
		thaw, err := quiesce(a.hold)
		if err != nil {
			return err
		}
		defer thaw()
	}
	return copyImage(ctx, to, l.image(v.ID), progress)
}

// cloneFile is copyLocked of another volume. A clone is unknown to others until it is
// made, so that two locks held at once cannot wait for each other.
func (l *Loop) cloneFile(ctx context.Context, to string, source Volume, progress Progress) error {
	unlock, err := l.lock(ctx, source.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return l.copyLocked(ctx, to, source, progress)
}

// The FIFREEZE and FITHAW requests, _IOWR('X', 119, int) and _IOWR('X', 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// quiesce brings the image up to date with its device and keeps it so until thaw.
func quiesce(hold *os.File) (thaw func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(hold.Fd()), &st); err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		same := m.Major == int(unix.Major(st.Rdev)) && m.Minor == int(unix.Minor(st.Rdev)) || m.Source == hold.Name()
		return !same, same
	})
	if err != nil {
		return nil, err
	}
	thaw = func() {}
	if len(mounts) > 0 {
		dir, err := os.Open(mounts[0].Mountpoint)
		if err != nil {
			return nil, fmt.Errorf("freeze %s: %w", mounts[0].Mountpoint, err)
		}
		if err := unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0); err != nil {
			dir.Close()
			return nil, fmt.Errorf("freeze %s: %w", mounts[0].Mountpoint, err)
		}
		thaw = func() {
			_ = unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
			dir.Close()
		}
	}
	if err := unix.SyncFileRange(int(hold.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err != nil {
		thaw()
		return nil, fmt.Errorf("write back %s: %w", hold.Name(), err)
	}
	return thaw, nil
}
