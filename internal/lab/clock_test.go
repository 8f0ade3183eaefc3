package lab

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAdvanceFiresWhatBecameDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		begin := c.Now()
		short, long := c.NewTimer(5*time.Minute), c.NewTimer(time.Hour)
		c.Advance(6 * time.Minute)
		if at := <-short.C(); at.Sub(begin) < 6*time.Minute {
			t.Errorf("the timer fired at %s", at.Sub(begin))
		}
		synctest.Wait()
		select {
		case <-long.C():
			t.Error("a timer fired that was not due")
		default:
		}
		if !long.Stop() {
			t.Error("Stop says that the timer had fired")
		}
		if got := c.Now().Sub(begin); got < 6*time.Minute || got > 6*time.Minute+time.Second {
			t.Errorf("the clock moved by %s", got)
		}
	})
}

func TestTimerLaterThanAdvanceStillRunsInRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		begin := time.Now()
		timer := c.NewTimer(10 * time.Minute)
		c.Advance(4 * time.Minute)
		<-timer.C()
		if real := time.Since(begin); real != 6*time.Minute {
			t.Errorf("fired after %s of real time, want 6m", real)
		}
	})
}

func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		k := c.NewTicker(time.Minute)
		for range 3 {
			<-k.C()
		}
		c.Advance(10 * time.Minute)
		<-k.C()
		synctest.Wait()
		select {
		case <-k.C():
			t.Error("one Advance gave two ticks")
		default:
		}
		k.Stop()
		c.Advance(time.Hour)
		synctest.Wait()
		select {
		case <-k.C():
			t.Error("a stopped ticker ticked")
		default:
		}
	})
}

func TestResetAndAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		fired := make(chan struct{}, 1)
		f := c.AfterFunc(time.Minute, func() { fired <- struct{}{} })
		if !f.Reset(time.Hour) {
			t.Error("Reset says that the timer was not armed")
		}
		c.Advance(2 * time.Minute)
		synctest.Wait()
		if len(fired) != 0 {
			t.Error("fired at the old time")
		}
		c.Advance(time.Hour)
		<-fired
	})
}

// TestResetBeatsAnExpiryUnderWay: what of the time before a Reset comes late does not count for the time after it.
func TestResetBeatsAnExpiryUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		begin := c.Now()
		tm := c.NewTimer(time.Minute).(*timer)
		time.Sleep(time.Minute)
		synctest.Wait()
		tm.Reset(time.Hour)
		tm.expire() // of the first minute
		if at := <-tm.C(); at.Sub(begin) != time.Hour+time.Minute {
			t.Errorf("it fired after %s", at.Sub(begin))
		}
	})
}
