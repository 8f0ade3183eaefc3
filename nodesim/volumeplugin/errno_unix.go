//go:build unix

package volumeplugin

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func errnoByName(name string) (error, bool) {
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == name {
			return e, true
		}
	}
	return nil, false
}
