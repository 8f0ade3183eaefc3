package interop

import (
	"os"
	"os/exec"
	"sort"
	"strings"
	"testing"
)

// kernelTables are the machine's loop devices and mounts, as far as they can be seen.
func kernelTables(t *testing.T) string {
	t.Helper()
	var lines []string
	if out, err := exec.Command("losetup", "-a").Output(); err == nil {
		lines = append(lines, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		lines = append(lines, strings.Split(strings.TrimSpace(string(b)), "\n")...)
	}
	var ours []string
	for _, l := range lines {
		if strings.Contains(l, "/ddi") { // other tests of this machine may come and go meanwhile
			ours = append(ours, l)
		}
	}
	sort.Strings(ours)
	return strings.Join(ours, "\n")
}

// keepsKernelTables fails the test if it ends with other tables than it began with.
// It must be called before start, so that it looks after the cluster has gone.
func keepsKernelTables(t *testing.T) {
	t.Helper()
	before := kernelTables(t)
	t.Cleanup(func() {
		if after := kernelTables(t); after != before {
			t.Errorf("loop devices and mounts before:\n%s\nafter:\n%s", before, after)
		}
	})
}
