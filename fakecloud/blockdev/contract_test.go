package blockdev_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

const mib = 1 << 20

// rig is one backend in a directory of its own.
type rig struct {
	*testing.T
	blockdev.Backend
	lab *lab.Lab
	dir string
	ctx context.Context
}

func (r *rig) options() blockdev.Options {
	return blockdev.Options{Lab: r.lab, Links: func(d string) string { return filepath.Join(r.dir, "nodes", d) }}
}

func (r *rig) open(kind string) {
	r.Helper()
	var err error
	if kind == "loop" {
		r.Backend, err = blockdev.NewLoop(filepath.Join(r.dir, "cloud"), r.options())
	} else {
		r.Backend, err = blockdev.NewSim(filepath.Join(r.dir, "cloud"), r.options())
	}
	r.must(err)
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func newRig(t *testing.T, kind string) *rig {
	t.Helper()
	if kind == "loop" {
		needRoot(t)
	}
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{T: t, lab: lab.New(lab.Options{}), dir: dir, ctx: t.Context()}
	r.open(kind)
	t.Cleanup(func() {
		r.Close()
		if inv := r.inventory(); len(inv.Devices)+len(inv.Links) > 0 {
			t.Errorf("after Close: %+v", inv)
		}
	})
	return r
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("loop devices need root, and CI must not skip them")
	}
	t.Skip("loop devices need root")
}

func both(t *testing.T, test func(*rig)) {
	for _, kind := range []string{"sim", "loop"} {
		t.Run(kind, func(t *testing.T) { test(newRig(t, kind)) })
	}
}

var (
	vol      = blockdev.Volume{ID: "11111111-0000-4000-8000-000000000001", Name: "pvc-1"}
	snap     = blockdev.SnapshotID("22222222-0000-4000-8000-000000000001")
	n1       = blockdev.Target{Droplet: "n1"}
	n2       = blockdev.Target{Droplet: "n2"}
	droplets = []string{"n1", "n2"}
)

func (r *rig) link(d string) string {
	return filepath.Join(r.dir, "nodes", d, blockdev.LinkPrefix+vol.Name)
}

// write puts random bytes through the link; the function it returns checks them.
func (r *rig) write(path string, off int64) (check func(path string)) {
	r.Helper()
	data := make([]byte, mib)
	_, _ = rand.Read(data)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	r.must(err)
	_, err = f.WriteAt(data, off)
	r.must(errors.Join(err, f.Close()))
	return func(path string) {
		r.Helper()
		f, err := os.Open(path)
		r.must(err)
		defer f.Close()
		got := make([]byte, mib)
		if _, err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, data) {
			r.Errorf("the data at %d of %s has changed (%v)", off, path, err)
		}
	}
}

func (r *rig) size(path string) int64 {
	r.Helper()
	f, err := os.Open(path)
	r.must(err)
	defer f.Close()
	n, err := f.Seek(0, 2)
	r.must(err)
	return n
}

func TestDataSurvives(t *testing.T) {
	both(t, func(r *rig) {
		kind := r.Kind()
		r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 64 * mib}))
		_, err := r.Attach(r.ctx, vol, n1)
		r.must(err)
		if n := r.size(r.link("n1")); n != 64*mib {
			r.Errorf("the device has %d bytes", n)
		}
		check := r.write(r.link("n1"), 5*mib)
		r.must(r.Grow(r.ctx, vol, 64*mib, 96*mib))
		if n := r.size(r.link("n1")); n != 96*mib {
			r.Errorf("the grown device has %d bytes", n)
		}
		end := r.write(r.link("n1"), 95*mib)
		r.must(r.Detach(r.ctx, vol))
		if _, err := os.Lstat(r.link("n1")); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("the link after the detach: %v", err)
		}
		r.must(r.Close())
		r.open(kind)
		_, err = r.Attach(r.ctx, vol, n2)
		r.must(err)
		check(r.link("n2"))
		end(r.link("n2"))

		bytes, err := r.Snapshot(r.ctx, vol, snap, nil)
		r.must(err)
		if bytes < 2*mib || bytes > 4*mib {
			r.Errorf("a snapshot of 2 MiB of data occupies %d bytes", bytes)
		}
		r.write(r.link("n2"), 5*mib) // the snapshot does not follow
		copied := blockdev.Volume{ID: "33333333-0000-4000-8000-000000000001", Name: "pvc-2"}
		r.must(r.Create(r.ctx, copied, blockdev.Image{Size: 128 * mib, From: snap}))
		r.must(r.DeleteSnapshot(r.ctx, snap))
		device, err := r.Attach(r.ctx, copied, n1)
		r.must(err)
		check(device)
		end(device)
		if n := r.size(device); n != 128*mib {
			r.Errorf("the restored device has %d bytes", n)
		}
		r.must(r.Detach(r.ctx, copied))
		r.must(r.Delete(r.ctx, copied))
	})
}

// TestProgress: a copy tells how far it is, of the data alone, and other volumes go on meanwhile.
func TestProgress(t *testing.T) {
	both(t, func(r *rig) {
		r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 512 * mib}))
		device, err := r.Attach(r.ctx, vol, n1)
		r.must(err)
		for i := range int64(4) {
			r.write(device, i*100*mib)
		}
		other := blockdev.Volume{ID: "other", Name: "other"}
		r.must(r.Create(r.ctx, other, blockdev.Image{Size: 16 * mib}))
		check := func(what string, done, total, before int64) {
			if total < 4*mib || total > 6*mib || done <= before || done > total {
				r.Errorf("%s: %d of %d bytes after %d", what, done, total, before)
			}
		}
		var done, total int64
		_, err = r.Snapshot(r.ctx, vol, snap, func(d, n int64) {
			if done == 0 { // in the middle of the copy
				_, err := r.Attach(r.ctx, other, n1)
				r.must(errors.Join(err, r.Detach(r.ctx, other)))
			}
			check("snapshot", d, n, done)
			done, total = d, n
		})
		r.must(err)
		if done != total {
			r.Errorf("the snapshot ended at %d of %d bytes", done, total)
		}
		for what, img := range map[string]blockdev.Image{"restore": {Size: 512 * mib, From: snap}, "clone": {Size: 512 * mib, Clone: vol}} {
			done = 0
			img.Progress = func(d, n int64) {
				check(what, d, n, done)
				done, total = d, n
			}
			r.must(r.Create(r.ctx, blockdev.Volume{ID: blockdev.VolumeID(what), Name: what}, img))
			if done != total {
				r.Errorf("the %s ended at %d of %d bytes", what, done, total)
			}
		}
		// Two clones of one source, from two sides, and one that fails.
		if err := r.Create(r.ctx, blockdev.Volume{ID: "none", Name: "none"}, blockdev.Image{Size: mib, Clone: blockdev.Volume{ID: "missing"}}); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("a clone of nothing: %v", err)
		}
		for _, f := range r.inventory().Volumes {
			if f.ID == "none" {
				r.Error("a failed clone left an image")
			}
		}
	})
}

// TestShared: two droplets see one device; it goes with the last of them.
func TestShared(t *testing.T) {
	both(t, func(r *rig) {
		r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 64 * mib}))
		first, err := r.Attach(r.ctx, vol, n1)
		r.must(err)
		shared := blockdev.Target{Droplet: "n2", Shared: true}
		second, err := r.Attach(r.ctx, vol, shared)
		r.must(err)
		if first != second {
			r.Errorf("two devices for one volume: %s and %s", first, second)
		}
		if _, err := r.Attach(r.ctx, vol, blockdev.Target{Droplet: "n3", Shared: true, ReadOnly: true}); !errors.Is(err, blockdev.ErrAttached) {
			r.Errorf("a read-only share of a device that can be written: %v", err)
		}
		check := r.write(r.link("n1"), 5*mib)
		check(r.link("n2"))
		r.must(r.Grow(r.ctx, vol, 64*mib, 96*mib))
		r.must(r.Release(r.ctx, vol, "n1"))
		r.must(r.Release(r.ctx, vol, "n1"))
		if inv := r.inventory(); len(inv.Links) != 1 || len(inv.Devices) != 1 || inv.Devices[0].Droplet != "n2" {
			r.Errorf("after one release: %+v", inv)
		}
		check(r.link("n2"))
		r.must(r.Release(r.ctx, vol, "n2"))
		if inv := r.inventory(); len(inv.Links)+len(inv.Devices) > 0 {
			r.Errorf("after the last release: %+v", inv)
		}
	})
}

// TestReadOnlyGrows: nobody can write a read-only device; the cloud resizes it all the same.
func TestReadOnlyGrows(t *testing.T) {
	both(t, func(r *rig) {
		r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib}))
		device, err := r.Attach(r.ctx, vol, blockdev.Target{Droplet: "n1", ReadOnly: true})
		r.must(err)
		r.must(r.Grow(r.ctx, vol, 16*mib, 32*mib))
		if n := r.size(device); n != 32*mib {
			r.Errorf("the device has %d bytes", n)
		}
		_, err = r.Snapshot(r.ctx, vol, snap, nil)
		r.must(err)
		r.must(r.Detach(r.ctx, vol))
		r.must(r.Grow(r.ctx, vol, 32*mib, 48*mib))
		_, err = r.Attach(r.ctx, vol, n1)
		r.must(err)
		r.write(r.link("n1"), 40*mib)
	})
}

func TestRepeatedAndRefused(t *testing.T) {
	both(t, func(r *rig) {
		r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib}))
		if err := r.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib}); !errors.Is(err, fs.ErrExist) {
			r.Errorf("the second create: %v", err)
		}
		first, err := r.Attach(r.ctx, vol, n1)
		r.must(err)
		r.must(os.Remove(r.link("n1")))
		again, err := r.Attach(r.ctx, vol, n1)
		r.must(err)
		if target, err := os.Readlink(r.link("n1")); err != nil || target != first || again != first {
			r.Errorf("the second attach gives %s, its link %s (%v), the first %s", again, target, err, first)
		}
		if _, err := r.Attach(r.ctx, vol, n2); !errors.Is(err, blockdev.ErrElsewhere) {
			r.Errorf("attach to another droplet: %v", err)
		}
		if err := r.Delete(r.ctx, vol); !errors.Is(err, blockdev.ErrAttached) {
			r.Errorf("delete while attached: %v", err)
		}
		r.must(r.Grow(r.ctx, vol, 16*mib, 8*mib))
		if n := r.size(first); n != 16*mib {
			r.Errorf("a smaller size cut the device to %d", n)
		}
		r.must(r.Detach(r.ctx, vol))
		r.must(r.Detach(r.ctx, vol))
		r.must(r.Delete(r.ctx, vol))
		r.must(r.Delete(r.ctx, vol))
		if _, err := r.Attach(r.ctx, vol, n1); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("attach without an image: %v", err)
		}
		for _, id := range []blockdev.VolumeID{"", "../x", "a/b", ".hidden"} {
			if err := r.Create(r.ctx, blockdev.Volume{ID: id, Name: "x"}, blockdev.Image{Size: mib}); err == nil {
				r.Errorf("id %q is taken for a file name", id)
			}
		}
	})
}

// inventory waits until nobody else holds a detached device: a process beside us
// that looks for a free one opens ours for a moment.
func (r *rig) inventory() blockdev.Inventory {
	r.Helper()
	inv, err := r.Inventory(context.Background(), droplets)
	for end := time.Now().Add(time.Minute); err == nil && foreign(inv) && time.Now().Before(end); {
		runtime.Gosched()
		inv, err = r.Inventory(context.Background(), droplets)
	}
	r.must(err)
	for i := range inv.Devices {
		inv.Devices[i].Path = "" // which of the free ones it is does not matter
	}
	for i := range inv.Links {
		inv.Links[i].Target = ""
	}
	return inv
}

// TestFailuresLeaveNothing lets each kernel operation fail, before and after its
// work, and compares what exists with what existed.
func TestFailuresLeaveNothing(t *testing.T) {
	steps := []struct {
		op      string
		prepare func(*rig)
		do      func(*rig) error
		after   bool // also try errors for work that was done; without, the work counts
	}{
		{"truncate", nil, func(r *rig) error { return r.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib}) }, true},
		{"loop-attach", created, func(r *rig) error { _, err := r.Attach(r.ctx, vol, n1); return err }, true},
		{"link", created, func(r *rig) error { _, err := r.Attach(r.ctx, vol, n1); return err }, true},
		{"unlink", attached, func(r *rig) error { return r.Detach(r.ctx, vol) }, false},
		{"loop-detach", attached, func(r *rig) error { return r.Detach(r.ctx, vol) }, false},
		{"truncate", attached, func(r *rig) error { return r.Grow(r.ctx, vol, 16*mib, 32*mib) }, true},
		{"loop-resize", attached, func(r *rig) error { return r.Grow(r.ctx, vol, 16*mib, 32*mib) }, false},
		{"delete", created, func(r *rig) error { return r.Delete(r.ctx, vol) }, false},
		{"copy", attached, func(r *rig) error { _, err := r.Snapshot(r.ctx, vol, snap, nil); return err }, true},
	}
	for _, s := range steps {
		t.Run(s.op, func(t *testing.T) {
			both(t, func(r *rig) {
				if s.prepare != nil {
					s.prepare(r)
				}
				before := r.inventory()
				actions := []lab.Action{lab.Fail}
				if s.after {
					actions = append(actions, lab.LateOK)
				}
				for _, action := range actions {
					h, err := r.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: s.op, Volume: vol.Name, Action: action, Code: "ENOSPC", Times: 1})
					r.must(err)
					want := map[lab.Action]error{lab.Fail: syscall.ENOSPC, lab.LateOK: syscall.ETIMEDOUT}[action]
					if err := s.do(r); !errors.Is(err, want) || h.Fired() != 1 {
						r.Errorf("%s: got %v after %d faults, want %v", action, err, h.Fired(), want)
					}
					h.Remove()
					if d := cmp.Diff(before, r.inventory()); d != "" {
						r.Errorf("%s left something (-before +after):\n%s", action, d)
					}
				}
				r.must(s.do(r))
			})
		})
	}
}

func foreign(inv blockdev.Inventory) bool {
	return slices.ContainsFunc(inv.Devices, func(d blockdev.Device) bool { return d.Droplet == "" })
}

func created(r *rig) { r.must(r.Create(r.ctx, vol, blockdev.Image{Size: 16 * mib})) }

func attached(r *rig) {
	created(r)
	_, err := r.Attach(r.ctx, vol, n1)
	r.must(err)
}

// TestKilled ends the component at each point and does the work again.
func TestKilled(t *testing.T) {
	for _, point := range blockdev.Points() {
		t.Run(point.Name, func(t *testing.T) {
			both(t, func(r *rig) {
				_, err := r.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: point.String(), Action: lab.Kill, Times: 1})
				r.must(err)
				killed := false
				for range 2 {
					life := r.lab.Component(context.Background(), "cloud", "")
					life.Go(func() {
						ctx := life.Context()
						_ = r.Create(ctx, vol, blockdev.Image{Size: 512 * mib, Filesystem: "ext4"})
						_, err := r.Attach(ctx, vol, n1)
						err = errors.Join(err, r.Grow(ctx, vol, 512*mib, 513*mib), r.Detach(ctx, vol))
						if err != nil {
							t.Error(err)
						}
					})
					life.Wait()
					killed = killed || life.Killed()
					life.Stop()
					if point.Name == "after the device is attached, before its link" && life.Killed() {
						if inv := r.inventory(); len(inv.Devices)+len(inv.Links) > 0 {
							t.Errorf("a killed attach left %+v", inv)
						}
					}
				}
				if !killed {
					t.Error("the point was not reached")
				}
				if inv := r.inventory(); len(inv.Devices)+len(inv.Links) > 0 || inv.Volumes[0].Size != 513*mib {
					t.Errorf("at the end there is %+v", inv)
				}
			})
		})
	}
}

func TestSweep(t *testing.T) {
	both(t, func(r *rig) {
		attached(r)
		stale := filepath.Join(r.dir, "nodes/n1", blockdev.LinkPrefix+"old")
		r.must(os.Symlink("/dev/loop0", stale))
		r.must(os.Symlink("/dev/loop0", stale+".drydock-tmp"))
		other := filepath.Join(r.dir, "nodes/n1/ata-disk")
		r.must(os.Symlink("/dev/loop0", other))
		if inv := r.inventory(); len(inv.Links) != 3 {
			r.Errorf("links: %+v", inv.Links)
		}
		r.must(r.Sweep(r.ctx, droplets))
		if inv := r.inventory(); len(inv.Links) != 1 || inv.Links[0].Path != r.link("n1") || len(inv.Devices) != 1 {
			r.Errorf("after the sweep: %+v", inv)
		}
		if _, err := os.Lstat(other); err != nil {
			r.Errorf("a link of somebody else is gone: %v", err)
		}
	})
}
