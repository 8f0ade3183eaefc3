//go:build unix

package volumeplugin

import (
	"os"
	"syscall"
)

// sameFilesystem compares the devices of two paths, without following links.
func sameFilesystem(a, b string) (bool, error) {
	x, err := os.Lstat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Lstat(b)
	if err != nil {
		return false, err
	}
	sx, ok1 := x.Sys().(*syscall.Stat_t)
	sy, ok2 := y.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && sx.Dev == sy.Dev, nil
}
