package host

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for alive, want := range map[uint64]int64{
		0: 400, 1 << 20: 400, 24 << 20: 400, 32 << 20: 300, 40 << 20: 225, 96 << 20: 100, 97 << 20: 100, 10 << 30: 100,
	} {
		if got := percentFor(alive); got != want {
			t.Errorf("%d bytes alive: %d %%, want %d %%", alive, got, want)
		}
	}
}

// TestKeepHeadroom: the percentage falls as data grow, and rises again when they are gone. It is the process's, hence a process.
func TestKeepHeadroom(t *testing.T) {
	if os.Getenv("HEADROOM_TEST") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKeepHeadroom$", "-test.v")
		cmd.Env = append(os.Environ(), "HEADROOM_TEST=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	KeepHeadroom()
	is := func(want int) {
		t.Helper()
		got := 0
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			runtime.GC() // the finalizer that follows it is another goroutine's
			got = debug.SetGCPercent(mostPercent)
			debug.SetGCPercent(got)
			if got == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("collects at %d %%, want %d %%", got, want)
	}
	is(mostPercent)
	data := make([]byte, 2*headroom)
	is(leastPercent)
	runtime.KeepAlive(data)
	data = nil
	is(mostPercent)
}

// sink keeps what a test makes on the heap.
var sink []byte

// TestGiveBack: what lies about after a burst goes back to the machine, and where little does nothing is collected.
func TestGiveBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // none but ours
	collected := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumGC
	}
	debug.FreeOSMemory()
	sink = make([]byte, 4<<20)
	sink = nil
	before := collected()
	GiveBack()
	if n := collected() - before; n != 0 {
		t.Errorf("%d collections for 4 MiB", n)
	}
	for range 64 {
		sink = make([]byte, 1<<20)
	}
	sink = nil
	if _, more := resident(); more < 60<<20 {
		t.Fatalf("64 MiB of garbage count as %d bytes", more)
	}
	GiveBack()
	if _, more := resident(); more >= worthBytes {
		t.Errorf("%d bytes are held that nobody uses", more)
	}
}
