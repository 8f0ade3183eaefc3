package blockdev_test

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// content is a volume's data, as a file of its filesystem or as the device itself.
type content struct {
	*rig
	kind   string
	mnt    string
	device string
}

func (c *content) mount(device string) {
	c.Helper()
	c.device = device
	if c.kind != "raw" {
		c.must(unix.Mount(device, c.mnt, c.kind, 0, map[string]string{"xfs": "nouuid"}[c.kind]))
	}
}

func (c *content) unmount() {
	c.Helper()
	if c.kind != "raw" {
		c.must(unix.Unmount(c.mnt, 0))
	}
}

func (c *content) path() string {
	if c.kind == "raw" {
		return c.device
	}
	return filepath.Join(c.mnt, "data")
}

const amount = 8 * mib

// write puts random bytes there, which nobody has flushed, and gives their checksum.
func (c *content) write() (sum [32]byte) {
	c.Helper()
	b := make([]byte, amount)
	_, _ = rand.Read(b)
	f, err := os.OpenFile(c.path(), os.O_RDWR|os.O_CREATE, 0o600)
	c.must(err)
	_, err = f.WriteAt(b, 0)
	c.must(errors.Join(err, f.Close()))
	return sha256.Sum256(b)
}

func (c *content) read() (sum [32]byte) {
	c.Helper()
	f, err := os.Open(c.path())
	c.must(err)
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyN(h, f, amount)
	if err != nil || n != amount {
		c.Fatalf("read %d bytes: %v", n, err)
	}
	return [32]byte(h.Sum(nil))
}

// follow lets the filesystem grow to its device.
func (c *content) follow() {
	c.Helper()
	switch c.kind {
	case "ext4": // unmounted: not every machine lets it grow in use
		c.unmount()
		c.run("e2fsck", "-fp", c.device)
		c.run("resize2fs", c.device)
		c.mount(c.device)
	case "xfs":
		c.run("xfs_growfs", "-d", c.mnt)
	case "btrfs":
		c.run("btrfs", "filesystem", "resize", "max", c.mnt)
	}
}

// TestChecksums leads data through everything that may happen to a volume.
func TestChecksums(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs", "raw"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "loop")
			c := &content{rig: r, kind: kind, mnt: filepath.Join(r.dir, "mnt")}
			r.must(os.Mkdir(c.mnt, 0o755))
			t.Cleanup(func() { _ = unix.Unmount(c.mnt, unix.MNT_DETACH) })
			r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 512 * mib}))
			device, err := r.Attach(r.ctx, vol, n1)
			r.must(err)
			if kind != "raw" {
				r.mkfs(kind, device)
			}
			c.mount(device)
			first := c.write()
			r.must(r.Grow(r.ctx, vol, 512*mib, 768*mib))
			c.follow()
			if c.read() != first {
				t.Error("the resize changed the data")
			}
			occupied, err := r.Snapshot(r.ctx, vol, snap, nil)
			r.must(err)
			if occupied < amount || occupied > 300*mib {
				t.Errorf("a snapshot of %d bytes of data occupies %d", amount, occupied)
			}
			second := c.write()
			c.unmount()
			r.must(r.Detach(r.ctx, vol))
			r.must(r.Close())
			r.open("loop")

			device, err = r.Attach(r.ctx, vol, n2)
			r.must(err)
			if n := r.size(device); n != 768*mib {
				t.Errorf("after the restart the device has %d bytes", n)
			}
			c.mount(device)
			if c.read() != second {
				t.Error("detach, restart and attach changed the data")
			}
			c.unmount()
			r.must(r.Detach(r.ctx, vol)) // two filesystems of one uuid must not be seen together

			copied := blockdev.Volume{ID: "copy", Name: "copy"}
			r.must(r.Create(r.ctx, copied, blockdev.Image{Size: 768 * mib, From: snap}))
			r.must(r.DeleteSnapshot(r.ctx, snap))
			device, err = r.Attach(r.ctx, copied, n1)
			r.must(err)
			c.mount(device)
			if c.read() != first {
				t.Error("the restored data is not the snapshot's")
			}
			c.unmount()
		})
	}
}

// TestTrim: what a filesystem discards comes back to the machine's disk.
func TestTrim(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "loop")
			r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 512 * mib}))
			device, err := r.Attach(r.ctx, vol, n1)
			r.must(err)
			r.mkfs(kind, device)
			c := &content{rig: r, kind: kind, mnt: filepath.Join(r.dir, "mnt")}
			r.must(os.Mkdir(c.mnt, 0o755))
			t.Cleanup(func() { _ = unix.Unmount(c.mnt, unix.MNT_DETACH) })
			c.mount(device)
			c.write()
			r.run("sync", "-f", c.mnt)
			image := filepath.Join(r.dir, "cloud/volumes", string(vol.ID)+".img")
			full := blocks(t, image)
			r.must(os.Remove(c.path()))
			c.unmount() // a busy filesystem may free the blocks later
			c.mount(device)
			r.run("fstrim", c.mnt)
			if after := blocks(t, image); after > full-amount/2 {
				t.Errorf("the image occupied %d bytes and occupies %d after %d were discarded", full, after, amount)
			}
			c.unmount()
		})
	}
}

// TestFrozenElsewhere: a filesystem that is mounted in another namespace, by a guest,
// is frozen for a snapshot as well.
func TestFrozenElsewhere(t *testing.T) {
	r := newRig(t, "loop")
	r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 64 * mib}))
	device, err := r.Attach(r.ctx, vol, n1)
	r.must(err)
	r.mkfs("ext4", device)
	mnt := filepath.Join(r.dir, "mnt")
	r.must(os.Mkdir(mnt, 0o755))
	guest := exec.Command("unshare", "-m", "sh", "-c", `mount "$0" "$1" && head -c 1048576 /dev/zero | tr '\0' 'x' > "$1/data" && echo ready && { read line || true; }`, device, mnt)
	in, err := guest.StdinPipe()
	r.must(err)
	out, err := guest.StdoutPipe()
	r.must(err)
	r.must(guest.Start())
	defer func() {
		in.Close()
		_ = guest.Wait()
	}()
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_, err = r.Snapshot(r.ctx, vol, snap, nil)
	r.must(err)
	in.Close()
	r.must(guest.Wait())
	r.must(r.Detach(r.ctx, vol))
	copied := blockdev.Volume{ID: "copy", Name: "copy"}
	r.must(r.Create(r.ctx, copied, blockdev.Image{Size: 64 * mib, From: snap}))
	device, err = r.Attach(r.ctx, copied, n1)
	r.must(err)
	r.must(unix.Mount(device, mnt, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(mnt, unix.MNT_DETACH) })
	if info, err := os.Stat(filepath.Join(mnt, "data")); err != nil || info.Size() != mib {
		t.Errorf("what the guest had written and not flushed: %v, %v", info, err)
	}
	r.must(unix.Unmount(mnt, 0))
}

func TestLimit(t *testing.T) {
	r := newRig(t, "loop")
	attached(r)
	got, err := r.Limit(r.ctx, vol, blockdev.Limit{IOPS: 20})
	r.must(err)
	if !got.Applied {
		t.Skip("this machine has no limits: " + got.Why)
	}
	fd, err := unix.Open(r.link("n1"), unix.O_RDONLY|unix.O_DIRECT, 0)
	r.must(err)
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	r.must(err)
	reads := func(n int) time.Duration {
		begin := time.Now()
		for i := range n {
			_, _, no := unix.Syscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&page[0])), 4096, uintptr(i*4096), 0, 0)
			if no != 0 {
				t.Fatal(no)
			}
		}
		return time.Since(begin)
	}
	if took := reads(30); took < 900*time.Millisecond {
		t.Errorf("30 reads at 20 a second took %s", took)
	}
	_, err = r.Limit(r.ctx, vol, blockdev.Limit{})
	r.must(err)
	if took := reads(30); took > 900*time.Millisecond {
		t.Errorf("30 reads without a limit took %s", took)
	}
}

// TestReflink: where the filesystem under the images shares blocks, a snapshot and a
// restore copy nothing.
func TestReflink(t *testing.T) {
	r := newRig(t, "loop")
	r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 1024 * mib}))
	device, err := r.Attach(r.ctx, vol, n1)
	r.must(err)
	r.mkfs("btrfs", device)
	mnt := filepath.Join(r.dir, "mnt")
	r.must(os.Mkdir(mnt, 0o755))
	r.must(unix.Mount(device, mnt, "btrfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(mnt, unix.MNT_DETACH) })
	o := r.options()
	inner, err := blockdev.NewLoop(mnt, o)
	r.must(err)
	defer inner.Close()
	v := blockdev.Volume{ID: "inner", Name: "inner"}
	r.must(inner.Create(r.ctx, v, blockdev.Image{Size: 256 * mib}))
	for i := range int64(64) {
		r.write(filepath.Join(mnt, "volumes/inner.img"), i*mib)
	}
	used := func() uint64 {
		r.run("sync", "-f", mnt)
		var st unix.Statfs_t
		r.must(unix.Statfs(mnt, &st))
		return (st.Blocks - st.Bfree) * uint64(st.Bsize)
	}
	before := used()
	size, err := inner.Snapshot(r.ctx, v, snap, func(int64, int64) { t.Error("bytes were copied") })
	r.must(err)
	if size < 64*mib {
		t.Errorf("the snapshot is billed for %d bytes", size)
	}
	r.must(inner.Create(r.ctx, blockdev.Volume{ID: "copy", Name: "copy"}, blockdev.Image{Size: 256 * mib, From: snap}))
	// What was written after the snapshot is found without reading what both share.
	r.write(filepath.Join(mnt, "volumes/inner.img"), 10*mib)
	const second = blockdev.SnapshotID("second")
	_, err = inner.Snapshot(r.ctx, v, second, nil)
	r.must(err)
	if got, err := inner.Changes(r.ctx, second, snap); err != nil || len(got) != 1 || got[0] != (blockdev.Extent{Start: 10 * mib, Length: mib}) {
		t.Errorf("changes %v, %v", got, err)
	}
	if shared := blockdev.SameBlocks(t, filepath.Join(mnt, "snapshots", string(second)+".img"), filepath.Join(mnt, "snapshots", string(snap)+".img")); shared != 63*mib {
		t.Errorf("%d bytes are known to be shared, not 63 MiB", shared)
	}
	if after := used(); after > before+16*mib {
		t.Errorf("64 MiB copied twice take %d bytes", after-before)
	}
	r.must(inner.Close())
	r.must(unix.Unmount(mnt, 0))
}
