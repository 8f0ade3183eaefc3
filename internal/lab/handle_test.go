package lab

import (
	"context"
	"errors"
	"testing"
)

func (f *Faults) try(op string) bool {
	return f.Do(context.Background(), Call{Kind: KindCSI, Op: op}, func(context.Context) error { return nil }) != nil
}

// TestPercentIsRepeatable: which calls are hit follows from the seed, also when counting goes on in another process.
func TestPercentIsRepeatable(t *testing.T) {
	hits := func(r Rule, calls int) (out []int) {
		f := New(Options{}).Faults
		h, err := f.Add(r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range calls {
			if f.try("NodeStageVolume") {
				out = append(out, r.Seen+i)
			}
		}
		if got := h.Tally(); got.Seen != r.Seen+calls || got.Fired != r.Fired+len(out) {
			t.Errorf("%+v after %d calls and %d hits", got, calls, len(out))
		}
		return out
	}
	rule := Rule{Action: Fail, Percent: 30, Seed: 7}
	whole := hits(rule, 200)
	if len(whole) < 30 || len(whole) > 90 {
		t.Errorf("%d of 200 calls at 30 percent", len(whole))
	}
	first := hits(rule, 80)
	rule.Seen, rule.Fired = 80, len(first)
	again := append(first, hits(rule, 120)...)
	for i := range max(len(whole), len(again)) {
		if i >= len(whole) || i >= len(again) || whole[i] != again[i] {
			t.Fatalf("in one go %v, with a break %v", whole, again)
		}
	}
	if other := hits(Rule{Action: Fail, Percent: 30, Seed: 8}, 200); len(other) == len(whole) && other[0] == whole[0] && other[1] == whole[1] && other[2] == whole[2] {
		t.Error("another seed hits the same calls")
	}
}

func TestCountingGoesOn(t *testing.T) {
	f := New(Options{}).Faults
	h, err := f.Add(Rule{ID: "mine", Action: Fail, Skip: 2, Times: 3, Seen: 3, Fired: 1})
	if err != nil {
		t.Fatal(err)
	}
	var hit []bool
	for range 4 {
		hit = append(hit, f.try("X"))
	}
	if hit[0] != true || hit[1] != true || hit[2] != false || h.Fired() != 3 || h.ID != "mine" {
		t.Errorf("hits %v, %s fired %d", hit, h.ID, h.Fired())
	}
	if c := h.Tally(); c.Call.Op != "X" || c.Last.IsZero() || c.First.After(c.Last) {
		t.Errorf("%+v", c)
	}
}

func TestSubscribersHearOfEveryChange(t *testing.T) {
	f := New(Options{}).Faults
	changed, stop := f.Subscribe()
	defer stop()
	heard := func(what string, do func()) {
		t.Helper()
		do()
		select {
		case <-changed:
		default:
			t.Errorf("nothing was heard of %s", what)
		}
	}
	var h *Handle
	heard("a new rule", func() { h, _ = f.Add(Rule{Kind: KindCSI, Action: Pause}) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- f.Do(ctx, Call{Kind: KindCSI, Op: "X"}, func(context.Context) error { return nil })
	}()
	for h.Tally().Held == 0 {
		<-changed
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for h.Tally().Held != 0 {
		<-changed
	}
	heard("a release", h.Release)
	heard("a removal", h.Remove)
	if !h.Gone() {
		t.Error("it is not gone")
	}
}

// TestHangEndsWithItsRule: a call breaks off, the kernel goes on.
func TestHangEndsWithItsRule(t *testing.T) {
	for kind, worked := range map[Kind]bool{KindCSI: false, KindAPI: false, KindCloud: false, KindKernel: true} {
		f := New(Options{}).Faults
		h, err := f.Add(Rule{Kind: kind, Action: Hang})
		if err != nil {
			t.Fatal(err)
		}
		done, did := make(chan error), false
		go func() {
			done <- f.Do(t.Context(), Call{Kind: kind}, func(context.Context) error { did = true; return nil })
		}()
		if err := h.WaitFired(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		h.Remove()
		err = <-done
		if fault := AsError(err); did != worked || worked != (err == nil) || !worked && (fault == nil || fault.Action != Hang) {
			t.Errorf("%s: done %v, %v", kind, did, err)
		}
	}
}
