package lab

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var call = Call{Component: "kubelet", Node: "n1", Kind: KindCSI, Op: "NodeStageVolume", Volume: "pvc-1"}

// outcome does one call and tells whether the work was done.
func outcome(f *Faults, ctx context.Context, c Call) (done bool, err error) {
	err = f.Do(ctx, c, func(context.Context) error { done = true; return nil })
	return done, err
}

func add(t *testing.T, f *Faults, r Rule) *Handle {
	t.Helper()
	h, err := f.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestActions(t *testing.T) {
	for _, c := range []struct {
		action Action
		done   bool
		fault  bool
	}{{Fail, false, true}, {LateOK, true, true}, {Lost, true, true}} {
		t.Run(string(c.action), func(t *testing.T) {
			f := New(Options{}).Faults
			h := add(t, f, Rule{Op: "NodeStageVolume", Action: c.action, Code: "Internal", Times: 1})
			done, err := outcome(f, t.Context(), call)
			fault := AsError(fmt.Errorf("wrapped: %w", err))
			if done != c.done || (fault != nil) != c.fault || fault.Action != c.action || fault.Code != "Internal" {
				t.Errorf("done %v, fault %+v", done, fault)
			}
			if done, err := outcome(f, t.Context(), call); !done || err != nil {
				t.Errorf("after the last time: done %v, %v", done, err)
			}
			if h.Fired() != 1 {
				t.Errorf("fired %d times", h.Fired())
			}
		})
	}
}

func TestLateOKKeepsTheWorksOwnError(t *testing.T) {
	f := New(Options{}).Faults
	add(t, f, Rule{Action: LateOK})
	own := errors.New("own")
	if err := f.Do(t.Context(), call, func(context.Context) error { return own }); err != own {
		t.Errorf("got %v", err)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want bool
	}{
		{Rule{}, true},
		{Rule{Kind: KindCSI, Component: "kubelet", Node: "n*", Op: "Node*", Volume: "pvc-1"}, true},
		{Rule{Kind: KindAPI}, false},
		{Rule{Node: "n2"}, false},
		{Rule{Volume: "pvc-2"}, false},
		{Rule{Namespace: "default"}, false},
	} {
		f := New(Options{}).Faults
		c.rule.Action = Fail
		add(t, f, c.rule)
		if _, err := outcome(f, t.Context(), call); (err != nil) != c.want {
			t.Errorf("%+v: matched %v", c.rule, err != nil)
		}
	}
	f := New(Options{}).Faults
	add(t, f, Rule{Op: "POST /v2/*", Action: Fail})
	if _, err := outcome(f, t.Context(), Call{Kind: KindCloud, Op: "POST /v2/volumes/{id}/actions"}); err == nil {
		t.Error("* does not cross a slash of a URL")
	}
}

func TestSkipAndOrder(t *testing.T) {
	f := New(Options{}).Faults
	add(t, f, Rule{Action: Fail, Code: "A", Skip: 1, Times: 1})
	add(t, f, Rule{Action: Fail, Code: "B"})
	var codes string
	for range 3 {
		_, err := outcome(f, t.Context(), call)
		codes += AsError(err).Code
	}
	if codes != "BAB" {
		t.Errorf("got %s", codes)
	}
}

func TestAddRefuses(t *testing.T) {
	f := New(Options{}).Faults
	for _, r := range []Rule{{}, {Action: "explode"}, {Action: Delay}, {Action: Fail, Op: "["}} {
		if _, err := f.Add(r); err == nil {
			t.Errorf("took %+v", r)
		}
	}
}

func TestPauseHangDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{})
		result := make(chan error, 1)
		start := func(ctx context.Context) {
			go func() { _, err := outcome(l.Faults, ctx, call); result <- err }()
			synctest.Wait()
			if len(result) != 0 {
				t.Fatal("the call was not held")
			}
		}
		h := add(t, l.Faults, Rule{Action: Pause})
		start(t.Context())
		h.Release()
		if err := <-result; err != nil {
			t.Errorf("released: %v", err)
		}
		h.Remove()

		h = add(t, l.Faults, Rule{Action: Hang})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start(ctx)
		if err := <-result; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hung: %v", err)
		}
		h.Remove()

		add(t, l.Faults, Rule{Action: Delay, Delay: time.Hour})
		start(t.Context())
		l.Clock.(*Clock).Advance(time.Hour)
		if err := <-result; err != nil {
			t.Errorf("delayed: %v", err)
		}
	})
}

func TestWaitFired(t *testing.T) {
	f := New(Options{}).Faults
	h := add(t, f, Rule{Action: Fail})
	go outcome(f, t.Context(), call)
	if err := h.WaitFired(t.Context(), 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.WaitFired(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestKillAtAPointRunsNoErrorPath(t *testing.T) {
	l := New(Options{})
	p := Point{Component: "kubelet", Name: "between"}
	add(t, l.Faults, Rule{Kind: KindPoint, Op: p.String(), Action: Kill, Times: 1})
	c := l.Component(t.Context(), "kubelet", "n1")
	after := false
	c.Go(func() {
		c.Point(p, "pvc-1")
		after = true
	})
	c.Wait()
	if after || !c.Killed() || !errors.Is(context.Cause(c.Context()), ErrKilled) {
		t.Errorf("after %v, killed %v", after, c.Killed())
	}
	// Another goroutine of the dead component ends at its next point; a new life does not.
	c.Go(func() {
		c.Point(Point{"kubelet", "elsewhere"}, "")
		after = true
	})
	c.Wait()
	if after {
		t.Error("a dead component went on")
	}
	next := l.Component(t.Context(), "kubelet", "n1")
	next.Go(func() { next.Point(p, "pvc-1"); after = true })
	next.Stop()
	if !after {
		t.Error("the next life did not pass the point")
	}
}
