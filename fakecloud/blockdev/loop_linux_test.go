package blockdev_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// TestMain moves into a private mount namespace where it can: no mount of these
// tests is ever seen outside, and none outlives them. It compares the machine's
// loop devices before and after.
func TestMain(m *testing.M) {
	const marker = "DRYDOCK_TEST_NAMESPACE"
	if os.Geteuid() == 0 && os.Getenv(marker) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), marker+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if left := ourLoops(); len(left) > 0 && code == 0 {
		fmt.Fprintln(os.Stderr, "loop devices left over:", left)
		code = 1
	}
	os.Exit(code)
}

// ourLoops lists the bound loop devices whose file lies where these tests put theirs.
func ourLoops() (out []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		if bytes.Contains(raw, []byte("/dd")) && bytes.Contains(raw, []byte("/cloud/volumes/")) && !alive(string(raw)) {
			out = append(out, f+": "+string(raw))
		}
	}
	return out
}

// alive tells whether the file still exists: then it belongs to a test of another package that runs beside us.
func alive(path string) bool {
	_, err := os.Stat(strings.TrimSpace(path))
	return err == nil
}

func TestManyDevices(t *testing.T) {
	r := newRig(t, "loop")
	const n = 220 // more than any kernel makes nodes for by itself
	var wg sync.WaitGroup
	paths := make([]string, n)
	for i := range n {
		wg.Go(func() {
			v := blockdev.Volume{ID: blockdev.VolumeID(fmt.Sprintf("many-%02d", i)), Name: fmt.Sprintf("many-%d", i)}
			if err := r.Create(r.ctx, v, blockdev.Image{Size: 16 * mib}); err != nil {
				t.Error(err)
			}
			var err error
			if paths[i], err = r.Attach(r.ctx, v, n1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(paths)
	if got := len(slices.Compact(paths)); got != n {
		t.Errorf("%d volumes have %d devices", n, got)
	}
	inv := r.inventory()
	if len(inv.Devices) != n || len(inv.Links) != n {
		t.Errorf("%d devices, %d links", len(inv.Devices), len(inv.Links))
	}
}

func (r *rig) run(name string, args ...string) {
	r.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		r.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// mkfs formats a device, or skips where the tool is missing.
func (r *rig) mkfs(kind, device string) {
	r.Helper()
	if _, err := exec.LookPath("mkfs." + kind); err != nil {
		r.Skip(err)
	}
	flag := map[string]string{"ext4": "-F", "xfs": "-f", "btrfs": "-f"}[kind]
	r.run("mkfs."+kind, "-q", flag, device)
}

// TestPulledDisk detaches a volume whose filesystem is mounted: what is synced is
// safe, later I/O fails, unmounting works, and another attach mounts it again.
func TestPulledDisk(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "loop")
			r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 512 * mib}))
			device, err := r.Attach(r.ctx, vol, n1)
			r.must(err)
			r.mkfs(kind, device)
			mnt := filepath.Join(r.dir, "mnt")
			r.must(os.Mkdir(mnt, 0o755))
			r.must(unix.Mount(device, mnt, kind, 0, ""))
			mounted := true
			t.Cleanup(func() {
				if mounted {
					_ = unix.Unmount(mnt, unix.MNT_DETACH)
				}
			})
			marker := []byte("synced before the disk was pulled")
			r.must(os.WriteFile(filepath.Join(mnt, "marker"), marker, 0o644))
			f, err := os.Create(filepath.Join(mnt, "open"))
			r.must(err)
			unix.Sync()

			r.must(r.Detach(r.ctx, vol))
			_, err = f.Write(bytes.Repeat([]byte("x"), mib))
			if err == nil {
				err = f.Sync()
			}
			if err == nil {
				t.Error("writing to a pulled disk works")
			} else if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
				t.Errorf("writing to a pulled disk fails with %v", err)
			}
			f.Close()
			r.must(unix.Unmount(mnt, 0))
			mounted = false
			if _, err := r.Inventory(r.ctx, droplets); err != nil {
				t.Error(err)
			}

			device, err = r.Attach(r.ctx, vol, n2)
			r.must(err)
			r.must(unix.Mount(device, mnt, kind, 0, ""))
			mounted = true
			got, err := os.ReadFile(filepath.Join(mnt, "marker"))
			if err != nil || !bytes.Equal(got, marker) {
				t.Errorf("the marker reads %q, %v", got, err)
			}
			r.must(unix.Unmount(mnt, 0))
			mounted = false
		})
	}
}

func TestPulledRawDisk(t *testing.T) {
	r := newRig(t, "loop")
	attached(r)
	f, err := os.OpenFile(r.link("n1"), os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	r.must(r.Detach(r.ctx, vol))
	_, err = f.WriteAt(make([]byte, 4096), 8*mib)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		t.Error("writing to a pulled disk works")
	}
	if inv, err := r.Inventory(r.ctx, droplets); err != nil || len(inv.Devices) != 1 || !foreign(inv) {
		t.Errorf("the held device is listed as %+v, %v", inv.Devices, err)
	}
}

// TestWrittenThroughAClosedDescriptor: the kernel keeps what a block device's
// writer left unflushed for as long as somebody, here the backend, has the device open.
func TestWrittenThroughAClosedDescriptor(t *testing.T) {
	r := newRig(t, "loop")
	attached(r)
	check := r.write(r.link("n1"), 3*mib)
	r.must(r.Detach(r.ctx, vol))
	check(filepath.Join(r.dir, "cloud/volumes", string(vol.ID)+".img"))
}

func TestSnapshotOfMountedFilesystem(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "loop")
			r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 512 * mib}))
			device, err := r.Attach(r.ctx, vol, n1)
			r.must(err)
			r.mkfs(kind, device)
			mnt := filepath.Join(r.dir, "mnt")
			r.must(os.Mkdir(mnt, 0o755))
			r.must(unix.Mount(device, mnt, kind, 0, ""))
			t.Cleanup(func() { _ = unix.Unmount(mnt, unix.MNT_DETACH) })
			data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			r.must(os.WriteFile(filepath.Join(mnt, "data"), data, 0o644)) // not synced
			if _, err := r.Snapshot(r.ctx, vol, snap, nil); err != nil {
				t.Fatal(err)
			}
			r.must(os.WriteFile(filepath.Join(mnt, "later"), data, 0o644)) // it is not frozen any more
			r.must(unix.Unmount(mnt, 0))

			copied := blockdev.Volume{ID: "copy", Name: "copy"}
			r.must(r.Create(r.ctx, copied, blockdev.Image{Size: 512 * mib, From: snap}))
			r.must(r.Detach(r.ctx, vol)) // two btrfs of one uuid must not be seen together
			device, err = r.Attach(r.ctx, copied, n1)
			r.must(err)
			options := map[string]string{"xfs": "nouuid"}[kind]
			r.must(unix.Mount(device, mnt, kind, 0, options))
			got, err := os.ReadFile(filepath.Join(mnt, "data"))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("the copy reads %d bytes, %v", len(got), err)
			}
			if _, err := os.Stat(filepath.Join(mnt, "later")); err == nil {
				t.Error("the copy has what was written after it")
			}
			r.must(unix.Unmount(mnt, 0))
		})
	}
}

func TestDirectIO(t *testing.T) {
	for _, buffered := range []bool{false, true} {
		r := newRig(t, "loop")
		o := r.options()
		o.Buffered = buffered
		b, err := blockdev.NewLoop(filepath.Join(r.dir, "other"), o)
		r.must(err)
		r.must(b.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib}))
		device, err := b.Attach(r.ctx, vol, n1)
		r.must(err)
		dio, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/dio"))
		r.must(err)
		if direct := strings.TrimSpace(string(dio)) == "1"; direct && buffered {
			t.Error("a buffered device does direct I/O")
		} else if !direct && !buffered {
			t.Log("the file system of /tmp has no direct I/O for loop devices")
		}
		r.must(b.Close())
	}
}

func TestReadOnly(t *testing.T) {
	r := newRig(t, "loop")
	created(r)
	_, err := r.Attach(r.ctx, vol, blockdev.Target{Droplet: "n1", ReadOnly: true})
	r.must(err)
	if f, err := os.OpenFile(r.link("n1"), os.O_RDWR, 0); err == nil {
		if _, err = f.WriteAt([]byte("x"), 0); err == nil {
			err = f.Sync()
		}
		f.Close()
		if err == nil {
			t.Error("a read-only device was written")
		}
	}
}

func TestDiscardGivesBlocksBack(t *testing.T) {
	r := newRig(t, "loop")
	attached(r)
	r.write(r.link("n1"), 4*mib)
	f, err := os.OpenFile(r.link("n1"), os.O_RDWR, 0)
	r.must(err)
	r.must(f.Sync())
	image := filepath.Join(r.dir, "cloud/volumes", string(vol.ID)+".img")
	before := blocks(t, image)
	span := [2]uint64{4 * mib, mib}
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span[0]))); no != 0 {
		t.Fatal(no)
	}
	r.must(f.Close())
	if after := blocks(t, image); before < mib || after > before-mib {
		t.Errorf("the image occupied %d bytes and occupies %d after the discard of 1 MiB", before, after)
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestForeignDevice: something keeps a device of an earlier process. The next
// backend pulls it before the image gets a second one.
func TestForeignDevice(t *testing.T) {
	r := newRig(t, "loop")
	attached(r)
	f, err := os.OpenFile(r.link("n1"), os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	second, err := blockdev.NewLoop(filepath.Join(r.dir, "cloud"), r.options())
	r.must(err)
	defer second.Close()
	_, err = f.WriteAt(make([]byte, 4096), 8*mib)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		t.Error("two devices can write one image")
	}
}

func TestFullDisk(t *testing.T) {
	r := newRig(t, "loop")
	small := filepath.Join(r.dir, "small")
	r.must(os.Mkdir(small, 0o755))
	r.must(unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	b, err := blockdev.NewLoop(small, r.options())
	r.must(err)
	defer b.Close()
	r.must(b.Create(r.ctx, vol, blockdev.Image{Size: 64 * mib}))
	r.must(os.WriteFile(filepath.Join(small, "volumes", string(vol.ID)+".img"), bytes.Repeat([]byte("x"), 5*mib), 0o600))
	_, err = b.Snapshot(r.ctx, vol, snap, nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a snapshot on a full disk: %v", err)
	}
	inv, err := b.Inventory(r.ctx, nil)
	r.must(err)
	if len(inv.Snapshots)+len(inv.Strays) > 0 {
		t.Errorf("half a snapshot is left: %+v", inv)
	}
}

// TestKill9 lets another process attach volumes and kills it: the kernel takes the devices.
func TestKill9(t *testing.T) {
	if dir := os.Getenv("DRYDOCK_TEST_VICTIM"); dir != "" {
		r := &rig{T: t, lab: lab.New(lab.Options{}), dir: dir, ctx: context.Background()}
		r.open("loop")
		attached(r)
		fmt.Println("attached")
		<-time.After(time.Hour) // it is killed; a program that waits for nothing at all would be ended by Go
	}
	needRoot(t)
	r := newRig(t, "loop")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKill9$")
	cmd.Env = append(os.Environ(), "DRYDOCK_TEST_VICTIM="+r.dir)
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	for lines := bufio.NewScanner(out); lines.Text() != "attached"; {
		if !lines.Scan() {
			t.Fatalf("the other process ended before it had attached anything: %v", lines.Err())
		}
	}
	if inv, err := r.Inventory(r.ctx, droplets); err != nil || len(inv.Devices) != 1 {
		t.Errorf("while it lives: %+v, %v", inv.Devices, err)
	}
	r.must(cmd.Process.Kill())
	_ = cmd.Wait()
	if inv := r.inventory(); len(inv.Devices) > 0 {
		t.Fatalf("after kill -9: %+v", inv.Devices)
	}
	r.must(r.Sweep(r.ctx, droplets))
	if inv := r.inventory(); len(inv.Links) > 0 {
		t.Errorf("stale links: %+v", inv.Links)
	}
	_, err = r.Attach(r.ctx, vol, n2)
	r.must(err)
}
