package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/lab"
)

// The mark has a place that no mkfs writes to, on devices of all sizes.
func TestMarkSurvivesMkfs(t *testing.T) {
	needsRoot(t)
	for _, fs := range []FSType{"ext4", "xfs", "ext3"} {
		for _, size := range []int64{1, 3, 17, 100} {
			if fs == "ext3" && size > 1 { // has no lazy inode tables, and takes its time
				continue
			}
			path := filepath.Join(t.TempDir(), "disk")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			d := &device{volume: volume{id: "0f"}, path: path, file: f, bytes: size * gib}
			if err := f.Truncate(d.bytes); err != nil {
				t.Fatal(err)
			}
			m := kernelMachine{ops{lab: lab.New(lab.Options{})}}
			ctx := t.Context()
			if err := m.mark(ctx, d, fs); err != nil {
				t.Fatal(err)
			}
			if err := m.format(ctx, d, fs); err != nil {
				t.Fatal(err)
			}
			if got, err := readMark(f, d.bytes, d.id); err != nil || got != fs {
				t.Errorf("%s of %d GiB: mark %q, %v", fs, size, got, err)
			}
			s, err := readSuperblock(f, fs)
			if err != nil || s.bytes != d.bytes || !s.fresh {
				t.Errorf("%s of %d GiB: superblock %+v, %v", fs, size, s, err)
			}
			if err := m.unmark(ctx, d); err != nil {
				t.Fatal(err)
			}
			if ok, err := m.sound(ctx, d, fs); !ok || err != nil {
				t.Errorf("%s of %d GiB is not sound: %v", fs, size, err)
			}
			if got, _ := readMark(f, d.bytes, d.id); got != "" {
				t.Error("the mark is still there")
			}
			f.Close()
		}
	}
}

// mkfs dies at some moment. The next try finishes the job, on any node, and what it
// makes is sound.
func TestMkfsCutShort(t *testing.T) {
	r := newRig(t, false)
	n1, n2 := r.nodes["n1"], r.addNode("n2")
	for _, fs := range []string{"ext4", "xfs"} {
		real, err := exec.LookPath("mkfs." + fs)
		if err != nil {
			t.Fatal(err)
		}
		cut := 0
		for i := range 5 {
			name := fmt.Sprintf("pvc-%s-%d", fs, i)
			t.Run(name, func(t *testing.T) {
				d := n1.create(name, writer(fs))
				r.must(d.attach())
				r.fakeTool(t, "mkfs."+fs, fmt.Sprintf("exec timeout -s KILL %.4f %s \"$@\"", 0.0005+0.0016*float64(i), real))
				err := d.stage()
				if err == nil {
					r.must(d.unstage())
				} else {
					cut++
				}
				t.Setenv("PATH", strings.SplitN(os.Getenv("PATH"), ":", 2)[1])
				r.must(d.detach())
				e := d.on(n2)
				e.up()
				e.write("x")
				e.down()
				m := kernelMachine{n2.ops()}
				if ok, err := m.sound(t.Context(), &device{path: d.image()}, FSType(fs)); !ok || err != nil {
					t.Errorf("not sound: %v", err)
				}
				if mark := d.bytesAt(markOffset(gib), markSize); strings.HasPrefix(mark, markMagic) {
					t.Error("the mark was left")
				}
				r.must(d.delete())
			})
		}
		t.Logf("%s: %d of 5 were cut short", fs, cut)
		if cut == 0 {
			t.Errorf("mkfs.%s was never cut short; the test tests nothing", fs)
		}
	}
}

func (n *testNode) ops() ops { return ops{lab: n.r.lab, component: n.life} }
