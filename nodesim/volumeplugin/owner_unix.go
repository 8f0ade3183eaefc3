//go:build unix

package volumeplugin

import (
	"io/fs"
	"os"
	"syscall"
)

func lchown(path string, gid int) error { return os.Lchown(path, -1, gid) }

func groupOf(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int64(st.Gid)
	}
	return -1
}
