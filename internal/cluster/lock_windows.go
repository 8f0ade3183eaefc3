package cluster

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// hold takes the file for this process alone, until the file is closed.
func hold(f *os.File) error { return lockFile(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// share takes the file unless somebody holds it.
func share(f *os.File) error { return lockFile(f, 0) }

// lockFile locks one byte far behind the content: locks of this system keep others from reading what they cover.
func lockFile(f *os.File, how uint32) error {
	at := windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errHeld
	}
	return err
}
