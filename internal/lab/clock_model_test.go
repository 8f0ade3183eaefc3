package lab

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

// TestClockAgainstModel makes, stops, resets and waits for timers while the clock is advanced
// and real time passes, and compares with due times in a list.
func TestClockAgainstModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		start := time.Duration(rapid.IntRange(0, 3).Draw(r, "start")) * time.Hour
		// synctest wants a testing.T of its own, so a failure in the bubble is carried out of it.
		var wrong string
		synctest.Test(t, func(*testing.T) {
			began := time.Now()
			c := NewClockAt(start)
			type entry struct {
				timer clock.Timer
				due   time.Time // zero when it is not armed
			}
			var timers []*entry
			advanced := start
			look := func() {
				synctest.Wait()
				now := began.Add(time.Since(began) + advanced)
				if d := c.Now().Sub(now); d != 0 {
					wrong = "the clock is off by " + d.String()
				}
				for _, e := range timers {
					fired := false
					select {
					case <-e.timer.C():
						fired = true
					default:
					}
					want := !e.due.IsZero() && !e.due.After(now)
					if fired != want {
						wrong = "a timer due at " + e.due.String() + " at " + now.String() + ": fired is not as due"
					}
					if want {
						e.due = time.Time{}
					}
				}
			}
			steps := rapid.IntRange(1, 25).Draw(r, "steps")
			for range steps {
				if wrong != "" {
					break
				}
				d := time.Duration(rapid.IntRange(1, 600).Draw(r, "seconds")) * time.Second
				var e *entry
				if len(timers) > 0 {
					e = timers[rapid.IntRange(0, len(timers)-1).Draw(r, "timer")]
				}
				switch op := rapid.SampledFrom([]string{"new", "stop", "reset", "advance", "sleep"}).Draw(r, "op"); {
				case op == "new" || e == nil && op != "advance" && op != "sleep":
					timers = append(timers, &entry{timer: c.NewTimer(d), due: c.Now().Add(d)})
				case op == "stop":
					if e.timer.Stop() != !e.due.IsZero() {
						wrong = "Stop is wrong about whether the timer was armed"
					}
					e.due = time.Time{}
				case op == "reset":
					if e.timer.Reset(d) != !e.due.IsZero() {
						wrong = "Reset is wrong about whether the timer was armed"
					}
					e.due = c.Now().Add(d)
				case op == "advance":
					c.Advance(d)
					advanced += d
				case op == "sleep":
					time.Sleep(d)
				}
				look()
			}
			for _, e := range timers {
				e.timer.Stop()
			}
		})
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

func TestSkewedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right := NewClockAt(time.Hour)
		wrong := Skew(right)
		timer := wrong.NewTimer(5 * time.Minute)
		wrong.Set(-10 * time.Minute)
		if d := right.Now().Sub(wrong.Now()); d != 10*time.Minute {
			t.Errorf("it is behind by %s", d)
		}
		right.Advance(6 * time.Minute)
		<-timer.C()
		wrong.Set(0)
		if !wrong.Now().Equal(right.Now()) {
			t.Error("a clock that was set right is not")
		}
	})
}
