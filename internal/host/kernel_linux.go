package host

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func kernel() []Finding {
	caps := effective()
	has := func(bit uint) bool { return caps&(1<<bit) != 0 }
	out := []Finding{
		{Name: "CAP_SYS_ADMIN", OK: has(unix.CAP_SYS_ADMIN), Needed: true, Detail: word(has(unix.CAP_SYS_ADMIN)),
			Means: "no mounts and loop devices, so devices are simulated; run outside of the container, or with this capability"},
		{Name: "CAP_SYS_RESOURCE", OK: has(unix.CAP_SYS_RESOURCE), Detail: word(has(unix.CAP_SYS_RESOURCE)),
			Means: "ext4 cannot grow while it is mounted (xfs and btrfs can)"},
	}
	f := Finding{Name: "loop devices", Needed: true, Detail: "/dev/loop-control", Means: "devices are simulated; load the loop module"}
	if fd, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		f.OK = true
	} else {
		f.Detail = fmt.Sprintf("open /dev/loop-control: %v", err)
	}
	out = append(out, f)
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		ok := filesystem(fs)
		out = append(out, Finding{Name: "filesystem " + fs, OK: ok, Detail: word(ok),
			Means: "the kernel does not list it yet; it may still load it as a module at the first mount"})
	}
	return out
}

func word(ok bool) string {
	if ok {
		return "present"
	}
	return "missing"
}

// effective reads the effective capabilities of this process.
func effective() uint64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "CapEff:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n
		}
	}
	return 0
}

func filesystem(name string) bool {
	b, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == name {
			return true
		}
	}
	return false
}
