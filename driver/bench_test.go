package driver

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkVolume is what the driver adds to a volume's way to a pod and back.
func BenchmarkVolume(b *testing.B) {
	for _, sim := range []bool{true, false} {
		b.Run(map[bool]string{true: "sim", false: "loop"}[sim], func(b *testing.B) {
			r := newRig(b, sim)
			n := r.nodes["n1"]
			var took [7]time.Duration
			i := 0
			for b.Loop() {
				i++
				var d *disk
				for k, step := range []func() error{
					func() error { d = n.create(fmt.Sprintf("pvc-%d", i), writer("")); return nil },
					func() error { return d.attach() }, func() error { return d.stage() }, func() error { return d.pod() },
					func() error { return d.unpod() }, func() error { return d.unstage() }, func() error { return d.detach() },
				} {
					start := time.Now()
					r.must(step())
					took[k] += time.Since(start)
				}
				r.must(d.delete())
			}
			for k, name := range []string{"create", "attach", "stage", "publish", "unpublish", "unstage", "detach"} {
				b.ReportMetric(float64(took[k].Microseconds())/1000/float64(i), "ms/"+name)
			}
		})
	}
}
