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

// chmod sets a file's mode, as the system counts it.
func chmod(path string, mode uint32) error { return syscall.Chmod(path, mode) }

// groupAndMode are a file's, as the system counts them.
func groupAndMode(fi fs.FileInfo) (uint32, uint32) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Gid, uint32(st.Mode) & 0o7777
	}
	return 0, 0
}
