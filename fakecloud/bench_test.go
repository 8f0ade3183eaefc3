package fakecloud_test

import (
	"context"
	"fmt"
	"testing"

	"drydock.dev/drydock/fakecloud"
)

// BenchmarkCreate makes volumes.
func BenchmarkCreate(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, r *rig) {
		i := 0
		for b.Loop() {
			i++
			_, err := r.cloud.CreateVolume(context.Background(), fakecloud.NewVolume{Name: fmt.Sprintf("v%d", i), Region: "nyc3", SizeGiB: 1})
			r.must(err)
		}
	})
}

// BenchmarkAttachDetach attaches a volume and detaches it again, from request to completion.
func BenchmarkAttachDetach(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, r *rig) {
		ctx := context.Background()
		v, err := r.cloud.CreateVolume(ctx, fakecloud.NewVolume{Name: "v", Region: "nyc3", SizeGiB: 1})
		r.must(err)
		d, err := r.cloud.EnsureDroplet(ctx, "n1")
		r.must(err)
		for b.Loop() {
			for _, t := range []fakecloud.ActionType{fakecloud.AttachVolume, fakecloud.DetachVolume} {
				a, err := r.cloud.Start(ctx, fakecloud.Request{Type: t, Volume: v.ID, Droplet: d})
				r.must(err)
				if a, err = r.cloud.Wait(ctx, a.ID); err != nil || a.Status != fakecloud.Completed {
					b.Fatalf("%+v, %v", a, err)
				}
			}
		}
	})
}

func benchmarkKinds(b *testing.B, bench func(*testing.B, *rig)) {
	for _, kind := range []string{"sim", "loop"} {
		b.Run(kind, func(b *testing.B) {
			if why := privileged(kind); why != "" {
				b.Skip(why)
			}
			r := newRig(b, kind, fakecloud.Config{})
			defer r.end()
			bench(b, r)
		})
	}
}
