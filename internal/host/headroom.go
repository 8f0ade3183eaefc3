package host

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// headroom is how much garbage may gather between two collections.
const headroom = 96 << 20

// Percentages of what is alive, as in GOGC. As much as Go's own always; the upper bound is
// for a program that has hardly anything alive yet.
const (
	leastPercent = 100
	mostPercent  = 400
)

// KeepHeadroom lets the same amount of garbage gather whatever is alive, where Go would let
// as much gather as there is data: for the few megabytes of a small cluster that is a
// collection every few volumes, and a quarter of the processor's time. Data that outgrow the
// headroom are treated as Go does. A GOGC in the environment is left as it is.
func KeepHeadroom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	(&tuner{}).tune()
}

// tuner is woken by each collection.
type tuner struct{ percent atomic.Int64 }

type beat struct{ *tuner }

func (t *tuner) tune() {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	var alive uint64
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			alive += s.Value.Uint64()
		}
	}
	if p := percentFor(alive); p != t.percent.Swap(p) { // it stops the program for a moment
		debug.SetGCPercent(int(p))
	}
	runtime.SetFinalizer(&beat{t}, func(b *beat) { b.tune() })
}

// percentFor is headroom in per cent of what is alive, in coarse steps.
func percentFor(alive uint64) int64 {
	p := int64(100 * headroom / max(alive, 1))
	return min(max(p-p%25, leastPercent), mostPercent)
}
