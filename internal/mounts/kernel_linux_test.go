package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/host"
)

var private bool

// TestMain moves the tests of a root into a mount namespace of their own.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		if err := host.EnterPrivate(); err != nil {
			fmt.Fprintln(os.Stderr, "tests that mount are skipped:", err)
		} else {
			private = true
		}
	}
	os.Exit(m.Run())
}

func needsRoot(t *testing.T) {
	t.Helper()
	if private {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("mounts need root, and CI has to test them")
	}
	t.Skip("mounts need root")
}

func TestKernelMounts(t *testing.T) {
	needsRoot(t)
	n, k := newNode(t), New()
	a, b, file := n.target("a"), n.target("b"), n.path("file")
	n.must(os.WriteFile(file, nil, 0o600))
	n.must(k.Mount("tmpfs", a, "tmpfs", []string{"noatime,nodev", "size=1m"}))
	t.Cleanup(func() { k.Unmount(a) })
	n.must(os.WriteFile(filepath.Join(a, "f"), []byte("x"), 0o600))
	n.must(k.Mount(a, b, "", []string{"bind", "ro"}))
	t.Cleanup(func() { k.Unmount(b) })
	n.must(k.Mount(filepath.Join(a, "f"), file, "", []string{"bind"}))
	t.Cleanup(func() { k.Unmount(file) })
	for _, p := range []string{a, b, file} {
		if is, err := k.IsMountPoint(p); !is || err != nil {
			t.Errorf("IsMountPoint(%s) = %v, %v", p, is, err)
		}
		if not, err := k.IsLikelyNotMountPoint(p); not || err != nil {
			t.Errorf("IsLikelyNotMountPoint(%s) = %v, %v", p, not, err)
		}
	}
	list, err := k.List()
	n.must(err)
	for _, m := range list {
		switch m.Path {
		case a:
			if !slices.Contains(m.Opts, "noatime") || !slices.Contains(m.Opts, "nodev") || !slices.Contains(m.Opts, "rw") {
				t.Errorf("a: %v", m.Opts)
			}
		case b:
			if !slices.Contains(m.Opts, "ro") {
				t.Errorf("b: %v", m.Opts)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(b, "g"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write through a read-only bind: %v", err)
	}
	if refs, err := k.GetMountRefs(a); err != nil || !slices.Equal(refs, []string{b}) {
		t.Errorf("refs: %v, %v", refs, err)
	}
	if refs, err := k.GetMountRefs(n.path("none")); err != nil || len(refs) != 0 {
		t.Errorf("refs of a missing path: %v, %v", refs, err)
	}
	n.must(k.Mount("", b, "", []string{"bind", "remount", "rw"}))
	n.must(os.WriteFile(filepath.Join(b, "g"), nil, 0o600))
	for _, p := range []string{file, b, a} {
		n.must(k.Unmount(p))
		n.must(k.Unmount(p)) // is not mounted, and that is what was wanted
		if is, err := k.IsMountPoint(p); is || err != nil {
			t.Errorf("IsMountPoint(%s) after unmount = %v, %v", p, is, err)
		}
	}
}

func TestKernelRefusals(t *testing.T) {
	needsRoot(t)
	n, k := newNode(t), New()
	a := n.target("a")
	for says, err := range map[string]error{
		`option "nonsense=1"`:                k.Mount("tmpfs", a, "tmpfs", []string{"nonsense=1"}),
		"Unknown parameter 'nonsense'":       k.Mount("tmpfs", a, "tmpfs", []string{"nonsense=1"}),
		`does not know filesystem "nofs"`:    k.Mount("x", a, "nofs", nil),
		"no such file":                       k.Mount("tmpfs", n.path("none"), "tmpfs", nil),
		"no such file or directory":          k.Mount(n.path("none"), a, "", []string{"bind"}),
		"unmount " + n.path("none") + ": no": k.Unmount(n.path("none")),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	if _, err := k.IsMountPoint(n.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("IsMountPoint of nothing: %v", err)
	}
	n.must(k.Mount("tmpfs", a, "tmpfs", nil))
	f, err := os.Create(filepath.Join(a, "f"))
	n.must(err)
	if err := k.Unmount(a); !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmount in use: %v", err)
	}
	n.must(f.Close())
	n.must(k.Unmount(a))
}

func TestParseOptions(t *testing.T) {
	o := parseOptions([]string{"bind,ro", "noatime", "relatime", "_netdev", "x-systemd.automount", "discard", "commit=5", "noexec", "exec"})
	if !o.bind || o.set != unix.MOUNT_ATTR_RDONLY || o.clear != unix.MOUNT_ATTR__ATIME|unix.MOUNT_ATTR_NOEXEC ||
		!slices.Equal(o.params, []string{"ro", "discard", "commit=5"}) {
		t.Errorf("%+v", o)
	}
}

// TestUnmountWhileProgramsStart: a program that is being started holds for a moment
// what is open here, and keeps no unmount from working. What is open stays busy.
func TestUnmountWhileProgramsStart(t *testing.T) {
	needsRoot(t)
	n, k := newNode(t), New()
	dir := n.target("a")
	stop := make(chan struct{})
	var starters sync.WaitGroup
	for range 3 {
		starters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					exec.Command("/bin/true").Run()
				}
			}
		})
	}
	for range 150 {
		n.must(k.Mount("tmpfs", dir, "tmpfs", nil))
		f, err := os.Create(filepath.Join(dir, "f"))
		n.must(err)
		_, err = f.WriteString("x") // something has to happen while it is open
		n.must(errors.Join(err, f.Close()))
		n.must(k.Unmount(dir))
	}
	close(stop)
	starters.Wait()
	n.must(k.Mount("tmpfs", dir, "tmpfs", nil))
	f, err := os.Create(filepath.Join(dir, "f"))
	n.must(err)
	if err := k.Unmount(dir); !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmounted with an open file: %v", err)
	}
	n.must(f.Close())
	n.must(k.Unmount(dir))
}
