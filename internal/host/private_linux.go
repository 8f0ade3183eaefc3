package host

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// marker holds the mount namespace that the process left, so that its second life knows it has arrived.
const marker = "DRYDOCK_LEFT_MOUNT_NAMESPACE"

// EnterPrivate moves the process into a mount namespace of its own by executing
// itself once more; it returns only in that second life, or with an error. In it no
// mount is visible from outside, and the kernel takes all of them away with the
// process, however it ends.
func EnterPrivate() error {
	ns, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("read own mount namespace: %w", err)
	}
	if left := os.Getenv(marker); left != "" && left != ns {
		return os.Unsetenv(marker)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program file: %w", err)
	}
	// The thread that executes becomes the process's only one and keeps its namespace.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a private mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount namespace private: %w", err)
	}
	env := append(without(os.Environ(), marker), marker+"="+ns)
	err = unix.Exec(self, os.Args, env)
	return fmt.Errorf("execute %s again in its mount namespace: %w", self, err)
}

func without(env []string, name string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return out
}
