package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestHealthOfFilesystems: what the kernel does to a filesystem in which it meets errors.
func TestHealthOfFilesystems(t *testing.T) {
	r := newRig(t, false)
	n := r.nodes["n1"]
	d := n.create("pvc-a", writer("ext4"))
	d.up()
	defer d.down()
	defer func() { r.must(unix.Mount("", d.staging, "", unix.MS_REMOUNT, "")) }()
	r.must(unix.Mount("", d.staging, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	d.expect("DEGRADED FilesystemReadOnly")

	// A volume that is mounted read-only on purpose is well.
	ro := n.create("pvc-c", writer("ext4"))
	for _, step := range []func() error{ro.attach, ro.stage, func() error { return ro.podAt(ro.target, true) }} {
		r.must(step())
	}
	defer ro.down()
	ro.expect()

	e := n.create("pvc-b", writer("ext4"))
	e.up()
	defer e.down()
	var st unix.Stat_t
	r.must(unix.Stat(e.target, &st))
	device, err := os.Readlink(filepath.Join("/sys/dev/block", devNumber(st.Dev)))
	r.must(err)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("by the test"), 0o200); err != nil {
		t.Skipf("this machine lets nobody make an error in a filesystem: %v", err)
	}
	deadline := time.Now().Add(time.Minute) // the kernel counts in a worker of its own
	for !slices.Contains(e.ails(), "DEGRADED FilesystemErrors") {
		if time.Now().After(deadline) {
			t.Fatalf("after an error: %q", e.ails())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestHealthOfABrokenDisk: a filesystem whose disk gives nothing but I/O errors is inaccessible, also where the kernel still answers from memory.
func TestHealthOfABrokenDisk(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			r := newRig(t, false)
			d := r.nodes["n1"].create("pvc-a", writer(fs))
			d.up()
			defer d.down()
			f, err := os.Open(d.target)
			r.must(err)
			const goingDown, nothing = 0x8004587d, 1 // *_IOC_SHUTDOWN, without as much as the log written
			mode := uint32(nothing)
			_, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), goingDown, uintptr(unsafe.Pointer(&mode)))
			r.must(f.Close())
			if e != 0 {
				t.Fatal(e)
			}
			d.expect("INACCESSIBLE IOError")
		})
	}
}
