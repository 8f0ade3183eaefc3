package fakecloud_test

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"drydock.dev/drydock/fakecloud"
)

func TestDelayText(t *testing.T) {
	for _, c := range []struct {
		text string
		want fakecloud.Delay
	}{
		{"0s", fakecloud.Delay{}},
		{"300ms", fakecloud.Delay{Min: 300 * time.Millisecond}},
		{"200ms..500ms", fakecloud.Delay{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond}},
		{"normal(2s,500ms)", fakecloud.Delay{Shape: fakecloud.Normal, Mean: 2 * time.Second, Spread: 500 * time.Millisecond}},
		{"exponential(2s)", fakecloud.Delay{Shape: fakecloud.Exponential, Mean: 2 * time.Second}},
		{"exponential(2s) 1s..30s", fakecloud.Delay{Shape: fakecloud.Exponential, Mean: 2 * time.Second, Min: time.Second, Max: 30 * time.Second}},
		{"normal(2s,1s) 1s..", fakecloud.Delay{Shape: fakecloud.Normal, Mean: 2 * time.Second, Spread: time.Second, Min: time.Second}},
	} {
		got, err := fakecloud.ParseDelay(c.text)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%q reads as %+v (%v) and is written %q", c.text, got, err, got)
		}
	}
	for _, bad := range []string{"", "x", "-1s", "2s..1s", "1s..", "normal(2s)", "normal(2s,1s", "exponential(1s,1s)", "gamma(1s)", "exponential(0s)", "normal(1s,1s) 5s", "exponential(1s) 3s..2s"} {
		if d, err := fakecloud.ParseDelay(bad); fakecloud.KindOf(err) != fakecloud.Invalid || err == nil {
			t.Errorf("%q reads as %+v, %v", bad, d, err)
		}
	}
}

// FuzzDelay: whatever can be read is written so that it reads the same.
func FuzzDelay(f *testing.F) {
	f.Add("exponential(2s) 1s..30s")
	f.Add("200ms..500ms")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := fakecloud.ParseDelay(text)
		if err != nil {
			return
		}
		again, err := fakecloud.ParseDelay(d.String())
		if err != nil || again != d {
			t.Errorf("%q reads as %+v, is written %q and then reads as %+v (%v)", text, d, d, again, err)
		}
	})
}

// runs starts n attaches with that seed and tells how long each took.
func runs(t *testing.T, cfg fakecloud.Config, n int) (took []time.Duration) {
	clock := clocktesting.NewFakeClock(time.Now())
	r := newRigOn(t, "sim", cfg, clock)
	defer func() { r.end() }()
	ctx := context.Background()
	v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
	r.must(err)
	d, err := r.cloud.EnsureDroplet(ctx, "n1")
	r.must(err)
	for i := range n {
		kind := []fakecloud.ActionType{fakecloud.AttachVolume, fakecloud.DetachVolume}[i%2]
		a, err := r.cloud.Start(ctx, fakecloud.Request{Type: kind, Volume: v.ID, Droplet: d})
		r.must(err)
		for !clock.HasWaiters() {
			runtime.Gosched()
		}
		for clock.HasWaiters() {
			clock.Step(10 * time.Second)
		}
		a, err = r.cloud.Wait(ctx, a.ID)
		r.must(err)
		took = append(took, a.Ended.Sub(a.Started))
	}
	return took
}

func TestSeed(t *testing.T) {
	slow := fakecloud.Delay{Shape: fakecloud.Exponential, Mean: time.Hour, Min: time.Minute, Max: 4 * time.Hour}
	cfg := fakecloud.Config{Seed: 7, Latency: fakecloud.Latency{Attach: slow, Detach: slow}}
	first, again := runs(t, cfg, 6), runs(t, cfg, 6)
	if !slices.Equal(first, again) {
		t.Errorf("one seed gives %v and %v", first, again)
	}
	cfg.Seed = 8
	if other := runs(t, cfg, 6); slices.Equal(first, other) {
		t.Errorf("two seeds give %v", other)
	}
}

// TestRestartInTheMiddle: an action goes on after a restart for what is left of its delay, not longer and not shorter.
func TestRestartInTheMiddle(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		clock := clocktesting.NewFakeClock(time.Now())
		r := newRigOn(t, kind, fakecloud.Config{Latency: fakecloud.Latency{Attach: fakecloud.Delay{Min: time.Minute}}}, clock)
		defer func() { r.end() }()
		ctx := context.Background()
		v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
		r.must(err)
		d, err := r.cloud.EnsureDroplet(ctx, "n1")
		r.must(err)
		a, err := r.cloud.Start(ctx, fakecloud.Request{Type: fakecloud.AttachVolume, Volume: v.ID, Droplet: d})
		r.must(err)
		clock.Step(40 * time.Second)
		r.cloud.Component().Kill()
		r.must(r.cloud.Close())
		r.open()
		for !clock.HasWaiters() {
			runtime.Gosched()
		}
		clock.Step(19 * time.Second)
		if a, err = r.cloud.Action(a.ID); err != nil || a.Status != fakecloud.InProgress {
			t.Errorf("after 59 s: %+v, %v", a, err)
		}
		clock.Step(time.Second)
		if a, err = r.cloud.Wait(ctx, a.ID); err != nil || a.Status != fakecloud.Completed {
			t.Errorf("after 60 s: %+v, %v", a, err)
		}
		r.agrees()
	})
}

func TestAdjust(t *testing.T) {
	r := newRig(t, "sim", fakecloud.Config{Limits: fakecloud.Limits{Volumes: 5}})
	defer func() { r.end() }()
	ctx := context.Background()
	adjust := func(patch string) fakecloud.Settings {
		t.Helper()
		s, err := r.cloud.Adjust(ctx, []byte(patch))
		r.must(err)
		return s
	}
	s := adjust(`{"latency":{"attach":"normal(2s,1s)"},"names":"lenient","limits":{"snapshot_interval":"10m","rate":{"enforce":true}}}`)
	if s.Names != fakecloud.NamesLenient || s.Latency.Attach.Mean != 2*time.Second || s.Limits.SnapshotInterval != 10*time.Minute ||
		!s.Limits.Rate.Enforce || s.Limits.Rate.Hourly != fakecloud.DefaultHourly || s.Limits.Volumes != 5 {
		t.Errorf("adjusted to %+v", s)
	}
	s = adjust(`{"names":null,"limits":{"volumes":3,"rate":null},"rules":{"delete_attached":true}}`)
	if s.Names != fakecloud.NamesStrict || s.Limits.Rate.Enforce || s.Limits.Volumes != 3 || s.Limits.SnapshotInterval != 10*time.Minute || !s.Rules.DeleteAttached {
		t.Errorf("then to %+v", s)
	}
	for _, bad := range []string{`[]`, `null`, `{`, `{"nope":1}`, `{"limits":{"nope":1}}`, `{"names":"loud"}`, `{"latency":{"attach":"soon"}}`, `{"limits":{"min_size_gib":9,"max_size_gib":8}}`, `{"limits":{"snapshot_interval":"-1s"}}`} {
		if _, err := r.cloud.Adjust(ctx, []byte(bad)); fakecloud.KindOf(err) != fakecloud.Invalid || err == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if now := r.cloud.Settings(); now != s {
		t.Errorf("a refused change had an effect: %+v", now)
	}
	// What was adjusted outlives the cloud; what was not follows its Config.
	r.must(r.cloud.Close())
	r.cfg.Limits.Volumes, r.cfg.Limits.CapacityGiB = 50, 77
	r.open()
	if now := r.cloud.Settings(); now.Limits.Volumes != 3 || now.Limits.CapacityGiB != 77 || now.Limits.SnapshotInterval != 10*time.Minute {
		t.Errorf("after a restart: %+v", now)
	}
	// What is shown can be given back.
	b, err := json.Marshal(r.cloud.Settings())
	r.must(err)
	if now := adjust(string(b)); now != r.cloud.Settings() || now.Limits.Volumes != 3 {
		t.Errorf("given back: %+v", now)
	}
	r.must(r.cloud.ResetSettings(ctx))
	if now := r.cloud.Settings(); now.Limits.Volumes != 50 || now.Rules.DeleteAttached {
		t.Errorf("reset: %+v", now)
	}
}

func TestLoosenedRules(t *testing.T) {
	kinds(t, func(t *testing.T, kind string) {
		r := newRig(t, kind, fakecloud.Config{Rules: fakecloud.Rules{AnyRegion: true, LenientResize: true, DeleteAttached: true}})
		defer func() { r.end() }()
		ctx := context.Background()
		n1, err := r.cloud.EnsureDroplet(ctx, "n1")
		r.must(err)
		v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "ams3", SizeGiB: 2})
		r.must(err)
		for _, q := range []fakecloud.Request{{Type: fakecloud.AttachVolume, Droplet: n1}, {Type: fakecloud.ResizeVolume, SizeGiB: 1}} {
			q.Volume = v.ID
			a, err := r.cloud.Start(ctx, q)
			r.must(err)
			if a, err = r.cloud.Wait(ctx, a.ID); err != nil || a.Status != fakecloud.Completed {
				t.Errorf("%+v, %v", a, err)
			}
		}
		if v, err = r.cloud.Volume(v.ID); err != nil || v.SizeGiB != 2 || v.Droplet != n1 {
			t.Errorf("volume %+v, %v", v, err)
		}
		r.agrees()
		r.must(r.cloud.DeleteVolume(ctx, v.ID))
		r.agrees()
	})
}
