package fakecloud_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// TestMain keeps the model test short by default; -rapid.checks=N makes it thorough.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("25")
	}
	goleak.VerifyTestMain(m)
}

// tb is what both testing and rapid give.
type tb interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Logf(string, ...any)
}

// rig is a cloud that can be closed, killed and opened again on the same files.
type rig struct {
	tb
	dir     string
	lab     *lab.Lab
	devices blockdev.Backend
	cloud   *fakecloud.Cloud
	cfg     fakecloud.Config
}

func newRig(t tb, kind string, cfg fakecloud.Config) *rig {
	t.Helper()
	return newRigOn(t, kind, cfg, nil)
}

// newRigOn is newRig on a clock of the test's own.
func newRigOn(t tb, kind string, cfg fakecloud.Config, c clock.WithTickerAndDelayedExecution) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	r := &rig{tb: t, dir: dir, lab: lab.New(lab.Options{Clock: c})}
	r.must(err)
	r.reboot(kind)
	cfg.DB, cfg.Devices, cfg.Lab, cfg.Log = filepath.Join(dir, "cloud.db"), r.devices, r.lab, zerolog.Nop()
	r.cfg = cfg
	r.open()
	return r
}

// reboot makes the block devices anew on the rig's files.
func (r *rig) reboot(kind string) {
	r.Helper()
	var err error
	o := blockdev.Options{Lab: r.lab, Links: func(d string) string { return filepath.Join(r.dir, "nodes", d) }}
	if kind == "loop" {
		r.devices, err = blockdev.NewLoop(filepath.Join(r.dir, "cloud"), o)
	} else {
		r.devices, err = blockdev.NewSim(filepath.Join(r.dir, "cloud"), o)
	}
	r.must(err)
	r.cfg.Devices = r.devices
}

func (r *rig) open() {
	r.Helper()
	var err error
	r.cloud, err = fakecloud.Open(context.Background(), r.cfg)
	r.must(err)
}

func (r *rig) end() {
	r.cloud.Close()
	r.devices.Close()
	os.RemoveAll(r.dir)
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v", err)
	}
}

func kinds(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range []string{"sim", "loop"} {
		t.Run(kind, func(t *testing.T) {
			if why := privileged(kind); why != "" {
				if os.Getenv("CI") == "true" {
					t.Fatal(why + ", and CI must not skip them")
				}
				t.Skip(why)
			}
			test(t, kind)
		})
	}
}

// privileged says why a kind of devices cannot be used here, or nothing.
func privileged(kind string) string {
	if kind == "loop" && os.Geteuid() != 0 {
		return "loop devices need root"
	}
	return ""
}

// settled waits until no action is in progress.
func (r *rig) settled() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, a := range r.actions() {
		if a.Status != fakecloud.InProgress {
			continue
		}
		if end, err := r.cloud.Wait(ctx, a.ID); err != nil || end.Status == fakecloud.InProgress {
			r.Fatalf("action %+v does not end: %v", a, err)
		}
	}
}

func (r *rig) actions() (all []fakecloud.Action) {
	for n := 1; ; n++ {
		page, total := r.cloud.Actions(fakecloud.ActionFilter{}, fakecloud.Page{Number: n, Size: 200})
		all = append(all, page...)
		if len(all) >= total || len(page) == 0 {
			return all
		}
	}
}

// agrees checks what must hold at every moment: records with each other, and
// records with images, devices and links.
func (r *rig) agrees() {
	r.Helper()
	left, err := r.cloud.Leftovers(context.Background())
	// A process beside us that looks for a free loop device keeps ours for a moment.
	passing := func(l fakecloud.Leftover) bool { return strings.Contains(l.Why, "another process") }
	for end := time.Now().Add(time.Minute); err == nil && slices.ContainsFunc(left, passing) && time.Now().Before(end); {
		runtime.Gosched()
		left, err = r.cloud.Leftovers(context.Background())
	}
	r.must(err)
	for _, l := range left {
		r.Errorf("left over: %s", l)
	}
	volumes, _ := r.cloud.Volumes(fakecloud.VolumeFilter{}, fakecloud.Page{Size: 200})
	droplets, _ := r.cloud.Droplets(fakecloud.DropletFilter{}, fakecloud.Page{Size: 200})
	on := map[fakecloud.VolumeID]fakecloud.DropletID{}
	known := map[fakecloud.DropletID]bool{}
	for _, d := range droplets {
		known[d.ID] = true
		for _, v := range d.Volumes {
			on[v] = d.ID
		}
	}
	for _, v := range volumes {
		if v.Droplet != on[v.ID] && known[v.Droplet] {
			r.Errorf("volume %s says droplet %d, the droplets say %d", v.Name, v.Droplet, on[v.ID])
		}
	}
}
