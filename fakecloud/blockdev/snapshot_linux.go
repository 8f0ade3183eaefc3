package blockdev

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Snapshot implements Images. A mounted filesystem is frozen while its data is copied,
// whoever mounted it; a raw device is written back first.
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
	dir, err := openMount(hold)
	if err != nil {
		return nil, fmt.Errorf("find the mount of %s: %w", hold.Name(), err)
	}
	thaw = func() {}
	if dir != nil {
		if thaw, err = freeze(dir); err != nil {
			return nil, err
		}
	}
	if err := unix.SyncFileRange(int(hold.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err != nil {
		thaw()
		return nil, fmt.Errorf("write back %s: %w", hold.Name(), err)
	}
	return thaw, nil
}
