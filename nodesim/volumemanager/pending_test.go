package volumemanager

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func TestBackOff(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := newPending(clock, func(UniqueName, types.UID) {})
	k := key{"v", "p"}
	for _, pause := range []time.Duration{
		500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 122 * time.Second, 122 * time.Second,
	} {
		if err := p.start(k, "", "a"); err != nil {
			t.Fatal(err)
		}
		if err := p.start(k, "", "a"); !errors.Is(err, errRunning) {
			t.Fatalf("a second start: %v", err)
		}
		clock.SetTime(clock.Now().Add(time.Minute)) // the pause counts from the end of the run
		p.end(k, errors.New("x"))
		if over, next := p.expired(); len(over) > 0 || next != pause+time.Millisecond {
			t.Fatalf("over for %v, next in %s, want %s", over, next, pause)
		}
		clock.SetTime(clock.Now().Add(pause))
		if err := p.start(k, "", "a"); !errors.Is(err, errPaused) {
			t.Fatalf("start within %s: %v", pause, err)
		}
		clock.SetTime(clock.Now().Add(time.Millisecond))
		if over, next := p.expired(); len(over) != 1 || over[0] != k.volume || next != 0 {
			t.Fatalf("over for %v, next in %s", over, next)
		}
	}
	if err := p.start(k, "", "a"); err != nil {
		t.Fatal(err)
	}
	p.end(k, errors.New("x"))
	if err := p.start(k, "", "b"); err != nil {
		t.Errorf("another operation has no pause: %v", err)
	}
	p.end(k, errors.New("x"))
	if _, next := p.expired(); next != firstPause+time.Millisecond {
		t.Errorf("the pause began at %s, want a fresh one", next)
	}
	p.end(k, nil)
}

// TestTurns has two operations of one volume fail, as a mount for one pod and an unmount from another do while the driver is
// away. Each cuts the other's pause short, but they must not take turns as fast as the processor can.
func TestTurns(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := newPending(clock, func(UniqueName, types.UID) {})
	runs := map[string]int{}
	const steps = 2000
	for range steps {
		for name, k := range map[string]key{"mount": {"v", ""}, "unmount": {"v", "p"}} {
			if err := p.start(k, "p", name); err == nil {
				runs[name]++
				p.end(k, errors.New("the driver is away"))
			} else if !errors.Is(err, errPaused) && !errors.Is(err, errTurn) {
				t.Fatal(err)
			}
		}
		clock.SetTime(clock.Now().Add(time.Millisecond))
	}
	if most := steps/100 + 2; runs["mount"]+runs["unmount"] > most || min(runs["mount"], runs["unmount"]) < 5 {
		t.Errorf("in two seconds they ran %v", runs)
	}
}

// TestClockSetBack: the end of a pause is told again to who has to wait again.
func TestClockSetBack(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := newPending(clock, func(UniqueName, types.UID) {})
	k := key{"v", "p"}
	fatal := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	fatal(p.start(k, "", "a"))
	p.end(k, errors.New("x"))
	clock.SetTime(clock.Now().Add(time.Second))
	p.expired()
	clock.SetTime(clock.Now().Add(-time.Second))
	if err := p.start(k, "", "a"); !errors.Is(err, errPaused) {
		t.Fatalf("start in the pause: %v", err)
	}
	if _, next := p.expired(); next != firstPause+time.Millisecond {
		t.Errorf("nobody hears of the pause's end: next in %s", next)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if over, _ := p.expired(); len(over) != 1 {
		t.Errorf("over for %v", over)
	}
	fatal(p.start(k, "", "a"))
}

// TestOneOperationForAKey runs random operations and holds them against the plain rule.
func TestOneOperationForAKey(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
		p := newPending(clock, func(UniqueName, types.UID) {})
		running := map[key]bool{}
		keys := rapid.Custom(func(rt *rapid.T) key {
			return key{UniqueName(rapid.SampledFrom([]string{"v", "w"}).Draw(rt, "volume")), types.UID(rapid.SampledFrom([]string{"", "p", "q"}).Draw(rt, "pod"))}
		})
		rt.Repeat(map[string]func(*rapid.T){
			"start": func(rt *rapid.T) {
				k := keys.Draw(rt, "key")
				conflict := false
				for r := range running {
					conflict = conflict || r.matches(k)
				}
				if p.running(k) != conflict {
					rt.Fatalf("running(%v) is %v, want %v", k, p.running(k), conflict)
				}
				err := p.start(k, k.pod, fmt.Sprint(rapid.IntRange(0, 1).Draw(rt, "name")))
				if conflict != errors.Is(err, errRunning) {
					rt.Fatalf("start %v beside %v: %v", k, running, err)
				}
				if err == nil {
					running[k] = true
				}
			},
			"end": func(rt *rapid.T) {
				for k := range running {
					delete(running, k)
					if rapid.Bool().Draw(rt, "ok") {
						p.end(k, nil)
					} else {
						p.end(k, errors.New("x"))
					}
					return
				}
			},
			"time": func(rt *rapid.T) {
				clock.SetTime(clock.Now().Add(time.Duration(rapid.IntRange(1, 200000).Draw(rt, "ms")) * time.Millisecond))
			},
			"": func(rt *rapid.T) {
				for a := range running {
					for b := range running {
						if a != b && a.matches(b) {
							rt.Fatalf("%v and %v run at once", a, b)
						}
					}
				}
			},
		})
	})
}
