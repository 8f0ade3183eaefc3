//go:build unix

package volumemanager

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exclusivelyHeld tells whether somebody has the device mounted or open exclusively.
func exclusivelyHeld(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, unix.Close(fd)
}
