//go:build unix

package scenario

import (
	"io/fs"
	"syscall"
)

// device is the filesystem that a file lies on.
func device(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
}
