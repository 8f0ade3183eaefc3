package nodesim

import (
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubestats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// fsStats are those of the filesystem at path, or nil.
func fsStats(path string, at metav1.Time) *kubestats.FsStats {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return nil
	}
	size := uint64(s.Bsize)
	total, free, used := s.Blocks*size, s.Bavail*size, (s.Blocks-s.Bfree)*size
	inodes, inodesFree := s.Files, s.Ffree
	inodesUsed := inodes - inodesFree
	return &kubestats.FsStats{Time: at, CapacityBytes: &total, AvailableBytes: &free, UsedBytes: &used, Inodes: &inodes, InodesFree: &inodesFree, InodesUsed: &inodesUsed}
}
