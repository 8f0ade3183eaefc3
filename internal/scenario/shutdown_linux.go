package scenario

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	goingDown = 0x8004587d // the request that ext4, xfs and f2fs share
	logFlush  = 1          // what is synced is kept
)

// shutdown makes the kernel answer everything on a mounted filesystem with I/O errors, as
// it does when a disk breaks. What was synced is there when it is mounted again.
func shutdown(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	how := uint32(logFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), goingDown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("shut down the filesystem at %s: %w", dir, errno)
	}
	return nil
}
