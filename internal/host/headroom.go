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

// What is worth a collection of everything to give it back: some megabytes, and a part of what is alive, which
// is what the collection costs by.
const (
	worthBytes = 16 << 20
	worthShare = 4
)

// GiveBack returns memory that holds nothing alive to the machine, if that is worth the work. Afterwards
// so much more than what is alive is resident, at most.
func GiveBack() {
	live, more := resident()
	if more >= max(worthBytes, live/worthShare) {
		debug.FreeOSMemory()
	}
}

// GiveBackStart returns what only the start needed: its garbage, and the pages of the program's file it went through.
// The start leaves more garbage than an idle cluster makes in an hour.
func GiveBackStart() error {
	debug.FreeOSMemory()
	return dropProgram()
}

// resident tells how much of the heap was alive at the last collection, and how much more of it the machine holds for us.
func resident() (live, more uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	sizes := make([]uint64, len(samples))
	var all uint64
	for i, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			sizes[i] = s.Value.Uint64()
		}
		if i > 0 {
			all += sizes[i]
		}
	}
	live = sizes[0]
	return live, all - min(live, all)
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
