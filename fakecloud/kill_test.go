package fakecloud_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

// story drives a volume through everything that has a point in it. It can be told
// again from the start: what is done already is left alone.
func (r *rig) story(ctx context.Context) error {
	n1, err := r.cloud.EnsureDroplet(ctx, "n1")
	if err != nil {
		return err
	}
	v, err := r.cloud.VolumeByName("v", "nyc3")
	if err != nil {
		if v, err = r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1, FilesystemType: "ext4"}); err != nil {
			return err
		}
	}
	act := func(q fakecloud.Request) error {
		q.Volume, q.Droplet = v.ID, n1
		a, err := r.cloud.Start(ctx, q)
		if err == nil {
			a, err = r.cloud.Wait(ctx, a.ID)
		}
		if err == nil && a.Status != fakecloud.Completed {
			err = fmt.Errorf("action %+v", a)
		}
		return err
	}
	if v.Droplet == 0 {
		if err := act(fakecloud.Request{Type: fakecloud.AttachVolume}); err != nil {
			return err
		}
	}
	if v.SizeGiB == 1 {
		if err := act(fakecloud.Request{Type: fakecloud.ResizeVolume, SizeGiB: 2}); err != nil {
			return err
		}
	}
	if all, _ := r.cloud.Snapshots(fakecloud.SnapshotFilter{}, fakecloud.Page{}); len(all) == 0 {
		s, err := r.cloud.CreateSnapshot(ctx, fakecloud.NewSnapshot{Volume: v.ID, Name: "s"})
		if err != nil {
			return err
		}
		if err := r.cloud.DeleteSnapshot(ctx, s.ID); err != nil {
			return err
		}
	}
	if err := act(fakecloud.Request{Type: fakecloud.DetachVolume}); err != nil {
		return err
	}
	if err := act(fakecloud.Request{Type: fakecloud.AttachVolume}); err != nil {
		return err
	}
	if err := r.cloud.DeleteDroplet(ctx, n1); err != nil {
		return err
	}
	if _, err := r.cloud.Wait(ctx, r.actions()[0].ID); err != nil {
		return err
	}
	return r.cloud.DeleteVolume(ctx, v.ID)
}

// TestKillPoints kills the cloud at every point in turn, opens it again and finds
// everything in agreement.
func TestKillPoints(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		for _, p := range fakecloud.Points() {
			t.Run(p.Name, func(t *testing.T) {
				r := newRig(t, kind, fakecloud.Config{})
				defer r.end()
				if p.Name == "after the devices are attached at start, before the actions go on" {
					t.Skip("reached at Open: TestKilledAtStart")
				}
				_, err := r.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
				r.must(err)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = r.story(context.Background())
				}()
				<-done
				if !r.cloud.Component().Killed() {
					t.Fatal("the point was not reached")
				}
				r.must(r.cloud.Close())
				r.open()
				r.settled()
				r.agrees()
				for _, a := range r.actions() {
					if a.Status == fakecloud.Errored {
						t.Errorf("action %+v", a)
					}
				}
			})
		}
	})
}

func TestKilledAtStart(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		r := newRig(t, kind, fakecloud.Config{})
		defer func() { r.end() }()
		ctx := context.Background()
		n1, err := r.cloud.EnsureDroplet(ctx, "n1")
		r.must(err)
		v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
		r.must(err)
		// The cloud dies with the attach recorded and not begun.
		_, err = r.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: "cloud: after the action is recorded*", Action: lab.Kill, Times: 1})
		r.must(err)
		a, err := r.cloud.Start(ctx, fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: n1})
		r.must(err)
		<-r.cloud.Component().Context().Done()
		r.must(r.cloud.Close())
		_, err = r.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: "cloud: after the devices are attached at start*", Action: lab.Kill, Times: 1})
		r.must(err)
		if _, err := fakecloud.Open(ctx, r.cfg); err == nil {
			t.Fatal("a cloud killed at its start is open")
		}
		r.open()
		if a, err = r.cloud.Wait(ctx, a.ID); err != nil || a.Status != fakecloud.Completed {
			t.Errorf("the action: %+v, %v", a, err)
		}
		r.agrees()
	})
}

// TestLostDatabase: a new database knows no image, and must not cost them all.
func TestLostDatabase(t *testing.T) {
	r := newRig(t, "sim", fakecloud.Config{})
	defer func() { r.end() }()
	ctx := context.Background()
	_, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
	r.must(err)
	r.must(r.cloud.Close())
	aside := r.cfg.DB + ".aside"
	r.must(os.Rename(r.cfg.DB, aside))
	for range 2 {
		c, err := fakecloud.Open(ctx, r.cfg)
		if err == nil {
			c.Close()
			t.Fatal("a cloud with images and no database is open")
		}
		if !strings.Contains(err.Error(), "cloud.db is missing or empty, and there are images") {
			t.Error(err)
		}
	}
	r.must(os.Rename(aside, r.cfg.DB))
	r.open()
	r.agrees()
}

// TestAttachedAtStart: what was attached has its device and link again after the
// machine lost them, and stale links are gone.
func TestAttachedAtStart(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		r := newRig(t, kind, fakecloud.Config{})
		defer func() { r.end() }()
		ctx := context.Background()
		n1, err := r.cloud.EnsureDroplet(ctx, "n1")
		r.must(err)
		for i := range 5 {
			v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: fmt.Sprintf("v%d", i), Region: "nyc3", SizeGiB: 1})
			r.must(err)
			a, err := r.cloud.Start(ctx, fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: n1})
			r.must(err)
			_, err = r.cloud.Wait(ctx, a.ID)
			r.must(err)
		}
		r.must(r.cloud.Close())
		r.must(r.devices.Close())
		r.reboot(kind)
		r.open()
		r.agrees()
		d, err := r.cloud.Droplet(n1)
		r.must(err)
		if len(d.Volumes) != 5 {
			t.Errorf("droplet %+v", d)
		}

		// A device that cannot come back is no longer promised.
		r.must(r.cloud.Close())
		r.must(r.devices.Close())
		r.reboot(kind)
		h, err := r.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "loop-attach", Volume: "v3", Action: lab.Fail, Code: "EIO"})
		r.must(err)
		r.open()
		h.Remove()
		r.agrees()
		if v, err := r.cloud.VolumeByName("v3", "nyc3"); err != nil || v.Droplet != 0 {
			t.Errorf("volume %+v, %v", v, err)
		}
	})
}
