package driver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"drydock.dev/drydock/internal/lab"
)

// scribble writes into the image behind the device's back.
func (d *disk) scribble(off int64, b []byte) {
	d.n.r.t.Helper()
	f, err := os.OpenFile(d.image(), os.O_RDWR, 0)
	d.n.r.must(err)
	_, err = f.WriteAt(b, off)
	d.n.r.must(err)
	d.n.r.must(f.Close())
}

// writtenZeros makes the image one that is blank and has to be read to know it.
func (d *disk) writtenZeros() { d.scribble(5<<20, make([]byte, 4096)) }

// refused checks that a stage fails, that it says why, and that it leaves the image as it was.
func (d *disk) refused(code codes.Code, says string) {
	r := d.n.r
	r.t.Helper()
	before := r.count("mkfs.ext4") + r.count("mkfs.xfs")
	r.must(d.attach())
	r.wantCode(d.stage(), code, says)
	r.must(d.detach())
	if after := r.count("mkfs.ext4") + r.count("mkfs.xfs"); after != before {
		r.t.Errorf("%s was formatted", d.name)
	}
}

// Data anywhere a filesystem, a partition table, a label or a user of raw blocks puts it
// keep the device from being formatted.
func TestDataWithoutFilesystemIsKept(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		for i, off := range []int64{0, 512, 4096, 1<<20 - 1, 8<<20 + 1<<10, 64 << 20, 128 << 20, 256 << 20, 512 << 20, 768 << 20, gib - 64<<10, gib - 1, markOffset(gib)} {
			d := r.nodes["n1"].create(fmt.Sprintf("pvc-%d", i), writer(""))
			d.scribble(off, []byte{1})
			d.refused(codes.FailedPrecondition, "not blank")
			if d.bytesAt(off, 1) != "\x01" {
				t.Errorf("the byte at %d is gone", off)
			}
		}
	})
}

// A sparse file knows all of its data, so on a simulated device no byte can hide.
func TestSimulatedDeviceHidesNothing(t *testing.T) {
	r := newRig(t, true)
	d := r.nodes["n1"].create("pvc-a", writer(""))
	d.scribble(700<<20+12345, []byte{1})
	d.refused(codes.FailedPrecondition, "not blank")
}

func TestSomethingElseOnTheDeviceIsKept(t *testing.T) {
	r := newRig(t, false)
	n := r.nodes["n1"]
	table := make([]byte, 512) // a DOS partition table with one partition
	table[446+4] = 0x83
	binary.LittleEndian.PutUint32(table[446+8:], 2048)
	binary.LittleEndian.PutUint32(table[446+12:], 4096)
	table[510], table[511] = 0x55, 0xaa
	d := n.create("pvc-table", writer(""))
	d.scribble(0, table)
	d.refused(codes.FailedPrecondition, "partition table dos")

	d = n.create("pvc-luks", writer(""))
	luks := append([]byte("LUKS\xba\xbe\x00\x01"), make([]byte, 600)...)
	copy(luks[8:], "aes")
	copy(luks[168:], "01234567-89ab-cdef-0123-456789abcdef")
	d.scribble(0, luks)
	d.refused(codes.FailedPrecondition, "crypto_LUKS")
}

// used is a volume that a pod has written its marker to, and that is detached.
func (r *rig) used(name, fs string) *disk {
	d := r.nodes["n1"].create(name, writer(fs))
	d.up()
	d.write("precious")
	d.down()
	return d
}

// intact checks that the volume still has the pod's marker, and was formatted once.
func (d *disk) intact() {
	r := d.n.r
	r.t.Helper()
	fs := d.cap.GetMount().GetFsType()
	d.up()
	d.verify("precious")
	d.down()
	if got := r.count("mkfs." + fs); got != 1 {
		r.t.Errorf("formatted %d times", got)
	}
}

func TestProbeThatFailsIsNoBlank(t *testing.T) {
	for op, code := range map[string]string{"blkid": "EIO", "read": "EIO", "device": "EIO"} {
		t.Run(op, func(t *testing.T) {
			modes(t, func(t *testing.T, r *rig) {
				d := r.nodes["n1"].create("pvc-a", writer("ext4"))
				h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: op, Action: lab.Fail, Code: code})
				d.refused(codes.Internal, "input/output error")
				h.Remove()
				d.up()
				d.write("precious")
				d.down()
				h = r.rule(lab.Rule{Kind: lab.KindKernel, Op: op, Action: lab.Fail, Code: code})
				if op != "read" || !r.sim { // a simulated device is read only when it has no filesystem
					d.refused(codes.Internal, "input/output error")
				}
				h.Remove()
				d.intact()
			})
		})
	}
}

// The probe says "nothing" of a device that holds a filesystem.
func TestProbeThatLies(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.used("pvc-a", "ext4")
		h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "blkid", Action: lab.Fail, Code: "2"})
		d.refused(codes.FailedPrecondition, "not blank")
		h.Remove()
		d.intact()
	})
}

func TestMissingTools(t *testing.T) {
	r := newRig(t, false)
	d := r.nodes["n1"].create("pvc-a", writer("ext4"))
	d.writtenZeros()
	r.must(d.attach())
	dirs := toolDirs
	t.Cleanup(func() { toolDirs = dirs })
	toolDirs = nil
	t.Setenv("PATH", t.TempDir())
	r.wantCode(d.stage(), codes.Internal, "blkid is not installed; install package util-linux")
	_, err := d.n.Probe(d.n.ctx(), &csi.ProbeRequest{})
	r.wantCode(err, codes.FailedPrecondition, "install package")
}

// blkid that answers in a way that nobody expects: an error, whatever it may mean.
func TestOddProbes(t *testing.T) {
	r := newRig(t, false)
	d := r.nodes["n1"].create("pvc-a", writer("ext4"))
	d.writtenZeros()
	for name, script := range map[string]string{
		"complains":  "echo 'error: read failed' >&2; exit 2",
		"ambivalent": "exit 8",
		"usage":      "exit 4",
		"killed":     "kill -9 $$",
		"says junk":  "echo hello; exit 0",
		"says blank": "exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			r.fakeTool(t, "blkid", script)
			d.refused(codes.Internal, "not touched until that is known")
		})
	}
}

// fakeTool puts a shell script in the place of a tool for the time of the test.
func (r *rig) fakeTool(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	r.must(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
}

func TestZeroedSuperblockIsKept(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		r := newRig(t, false)
		d := r.used("pvc-"+fs, fs)
		head := []byte(d.bytesAt(0, 4096))
		d.scribble(0, make([]byte, 4096))
		d.refused(codes.FailedPrecondition, "not blank")
		d.scribble(0, head)
		d.intact()
	}
}

func TestOtherFilesystemIsKept(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.used("pvc-a", "ext4")
		d.cap = writer("xfs")
		d.refused(codes.FailedPrecondition, "holds a filesystem ext4 and not xfs")
		d.cap = writer("") // any will do
		d.up()
		d.verify("precious")
		d.down()
		d.cap = writer("ext4")
		d.intact()
	})
}

func TestRawDataAreNotFormatted(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", rawBlock())
		d.up()
		f, err := os.OpenFile(d.target, os.O_RDWR, 0)
		r.must(err)
		_, err = f.WriteAt([]byte("raw"), 0)
		r.must(err)
		r.must(f.Close())
		d.down()
		d.cap = writer("")
		d.refused(codes.FailedPrecondition, "not blank")
	})
}

// The link appears late, and leads to another volume's disk at first.
func TestLateLink(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		n := r.nodes["n1"]
		d, other := r.used("pvc-a", "ext4"), n.create("pvc-b", writer("ext4"))
		r.must(d.attach())
		r.must(other.attach())
		link, wrong := filepath.Join(r.links("n1"), linkPrefix+"pvc-a"), filepath.Join(r.links("n1"), linkPrefix+"pvc-b")
		right, err := os.Readlink(link)
		r.must(err)
		elsewhere, err := os.Readlink(wrong)
		r.must(err)
		r.must(os.Remove(link))
		_, sub := r.lab.Timeline.Subscribe(100)
		defer sub.Close()
		done := make(chan error, 1)
		go func() { done <- d.stage() }()
		for s := range sub.C {
			if s.Op == "wait for device" {
				break
			}
		}
		r.must(os.Symlink(elsewhere, link))
		r.must(os.Symlink(right, link+".new"))
		r.must(os.Rename(link+".new", link))
		r.must(<-done)
		r.must(d.pod())
		d.verify("precious")
		d.down()
		r.must(other.detach())
		d.intact()
	})
}

func TestDeviceThatNeverComes(t *testing.T) {
	for name, spoil := range map[string]func(*rig, *disk){
		"no link":                        func(r *rig, d *disk) { r.must(os.Remove(filepath.Join(r.links("n1"), linkPrefix+d.name))) },
		"device shorter than the volume": func(r *rig, d *disk) { d.publish[DefaultName+keyVolumeSize] = fmt.Sprint(2 * gib) },
		"another volume's device": func(r *rig, d *disk) {
			other := r.nodes["n1"].create("pvc-other", writer(""))
			r.must(other.attach())
			to, err := os.Readlink(filepath.Join(r.links("n1"), linkPrefix+"pvc-other"))
			r.must(err)
			link := filepath.Join(r.links("n1"), linkPrefix+d.name)
			r.must(os.Remove(link))
			r.must(os.Symlink(to, link))
		},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, r *rig) {
				d := r.nodes["n1"].create("pvc-a", writer(""))
				r.must(d.attach())
				spoil(r, d)
				done := make(chan error, 1)
				go func() { done <- d.stage() }()
				r.wantCode(r.hurry(done), codes.Unavailable, "did not come within")
				if r.count("mkfs.ext4") != 0 {
					t.Error("formatted")
				}
			})
		})
	}
}

// hurry makes time fly until done delivers.
func (r *rig) hurry(done <-chan error) error {
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(5 * time.Millisecond):
			r.lab.Clock.(*lab.Clock).Advance(time.Second)
		}
	}
}

// A mkfs that fails half way leaves backup superblocks and no primary one: with the
// mark it is formatted again, without it the same bytes are somebody's data.
func TestHalfAFilesystem(t *testing.T) {
	r := newRig(t, false)
	d := r.used("pvc-a", "ext4")
	d.scribble(0, make([]byte, 4096))
	d.refused(codes.FailedPrecondition, "not blank")
	d.scribble(markOffset(gib), formatMark{"11111111-2222-3333-4444-555555555555", "ext4"}.block())
	d.refused(codes.FailedPrecondition, "not blank") // another volume's mark says nothing about this one
	d.scribble(markOffset(gib), formatMark{VolumeID(d.id), "ext4"}.block())
	d.up()
	d.write("new")
	d.verify("new")
	d.down()
}

// A mark beside a filesystem: erased if the filesystem is whole and was never used,
// not believed if it was used, and a reason to format again if it is not whole.
func TestMarkBesideFilesystem(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			r := newRig(t, false)
			mark := func(d *disk) { d.scribble(markOffset(gib), formatMark{VolumeID(d.id), FSType(fs)}.block()) }
			marked := func(d *disk) bool { return strings.HasPrefix(d.bytesAt(markOffset(gib), markSize), markMagic) }
			mkfs := func(d *disk) {
				if out, err := exec.Command("mkfs."+fs, "-q", d.image()).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			n := r.nodes["n1"]
			whole := n.create("pvc-whole", writer(fs))
			mkfs(whole)
			mark(whole)
			whole.up()
			whole.down()
			if r.count("mkfs."+fs) != 0 || marked(whole) {
				t.Errorf("whole: formatted %d times, marked %t", r.count("mkfs."+fs), marked(whole))
			}
			broken := n.create("pvc-broken", writer(fs))
			mkfs(broken)
			mark(broken)
			broken.scribble(4096, bytes.Repeat([]byte{0xff}, 8192))
			broken.up()
			broken.down()
			if r.count("mkfs."+fs) != 1 || marked(broken) {
				t.Errorf("broken: formatted %d times, marked %t", r.count("mkfs."+fs), marked(broken))
			}
			used := n.create("pvc-used", writer(fs))
			used.up()
			for i := range 100 {
				r.must(os.WriteFile(filepath.Join(used.target, fmt.Sprint(i)), nil, 0o600))
			}
			used.write("precious")
			used.down()
			mark(used)
			used.up()
			used.verify("precious")
			used.down()
			if r.count("mkfs."+fs) != 2 || !marked(used) {
				t.Errorf("used: formatted %d times, marked %t", r.count("mkfs."+fs), marked(used))
			}
		})
	}
}

func TestDirtyFilesystemIsRepaired(t *testing.T) {
	r := newRig(t, false)
	d := r.used("pvc-a", "ext4")
	// Free block counts that are wrong are what e2fsck -p mends; the clean flag is taken away so that it looks.
	super := []byte(d.bytesAt(1024, 1024))
	if out, err := exec.Command("debugfs", "-w", "-R", "ssv state 0", d.image()).CombinedOutput(); err != nil {
		t.Skipf("debugfs: %v %s", err, out)
	}
	if bytes.Equal(super, []byte(d.bytesAt(1024, 1024))) {
		t.Fatal("the superblock is unchanged")
	}
	d.intact()
	if out, err := exec.Command("debugfs", "-w", "-R", "ssv state 2", d.image()).CombinedOutput(); err != nil {
		t.Fatalf("debugfs: %v %s", err, out)
	}
	out, err := exec.Command("debugfs", "-w", "-R", "clri <2>", d.image()).CombinedOutput() // the root directory is gone
	if err != nil {
		t.Fatalf("debugfs: %v %s", err, out)
	}
	d.refused(codes.Internal, "run e2fsck on it by hand")
}

func TestReadOnlyStageWritesNothing(t *testing.T) {
	r := newRig(t, false)
	d := r.nodes["n1"].create("pvc-a", writer("ext4", "ro"))
	d.refused(codes.FailedPrecondition, "is to be mounted read-only")
	d.cap = writer("ext4")
	d.up()
	d.write("precious")
	d.down()
	d.cap = writer("ext4", "ro")
	d.up()
	d.verify("precious")
	if err := os.WriteFile(filepath.Join(d.target, "f"), nil, 0o600); err == nil {
		t.Error("could write")
	}
	d.down()
}
