package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/lab"
)

func TestProgressTellsEachStepOnce(t *testing.T) {
	w, p := newWorld(t), NewProgress()
	var told []string
	poll := func() {
		for _, s := range p.Next(w.life()) {
			told = append(told, fmt.Sprintf("%s %s %s", s.Label, s.State, s.Duration()))
		}
	}
	w.claim()
	poll()
	w.pod("web")
	w.provisioning()
	for range 2 {
		w.call("CreateVolume", "provisioner", "", w.pvName(), 2*time.Millisecond, "Internal", "no")
		poll()
		poll()
	}
	w.call("CreateVolume", "provisioner", "", w.pvName(), 2*time.Millisecond, "OK", "")
	w.volume()
	poll()
	w.bind()
	w.use("web", "n1")
	poll()
	poll()
	w.down("web", "n1")
	poll()
	want := []string{
		"claim created done 0s",
		"volume created in the cloud failed 2ms",
		"volume created in the cloud failed 4ms",
		"volume created in the cloud done 6ms",
		"bound done 0s", "scheduled done 6ms", "attached done 20ms", "device ready done 1ms", "formatted done 25ms", "staged done 32ms",
		"published done 1ms", "running done 1ms",
		"unpublished done 1ms", "unstaged done 7ms", "detached done 9ms",
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Error(d)
	}
}

// TestSpansInAnyOrder: the record does not depend on the order in which spans come,
// on repeats, or on whether they come under the handle or the PV's name.
func TestSpansInAnyOrder(t *testing.T) {
	ops := []string{"CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "mkfs.xfs", "wait for device"}
	rapid.Check(t, func(r *rapid.T) {
		start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		build := func(feed func(w *world)) Life {
			w := newWorld(t)
			w.clock = clocktesting.NewFakeClock(start)
			w.tr = NewTracker(w.clock)
			w.claim()
			w.pod("web")
			w.schedule("web", "n1")
			feed(w)
			w.volume()
			w.bind()
			return w.life()
		}
		var spans []lab.Span
		at := start
		for i := range rapid.IntRange(1, 12).Draw(r, "spans") {
			op := rapid.SampledFrom(ops).Draw(r, "op")
			s := lab.Span{ID: fmt.Sprint(i), Op: op, Component: "kubelet", Node: "n1", Volume: handle, Start: at}
			if strings.HasPrefix(op, "C") {
				s.Node = ""
			}
			if op == "CreateVolume" || rapid.Bool().Draw(r, "by name") {
				s.Volume = fmt.Sprintf("pvc-u-%d", start.UnixNano())
			}
			begun := s
			at = at.Add(time.Millisecond)
			s.End = at
			if rapid.Bool().Draw(r, "fails") {
				s.Code, s.Error = "Internal", "no"
			}
			spans = append(spans, begun, s)
		}
		want := build(func(w *world) {
			for _, s := range spans {
				w.tr.Span(s)
			}
		})
		shuffled := rapid.Permutation(spans).Draw(r, "order")
		shuffled = append(shuffled, rapid.SliceOfN(rapid.SampledFrom(spans), 0, 5).Draw(r, "repeats")...)
		got := build(func(w *world) {
			for _, s := range shuffled {
				w.tr.Span(s)
			}
		})
		if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Try{})); d != "" {
			r.Fatal(d)
		}
		for _, s := range got.Steps() {
			if s.Millis < 0 || (s.State == Failed) != (s.Error != "") {
				r.Fatalf("%+v", s)
			}
		}
		if !slices.IsSortedFunc(got.Provision[1].Tries, func(a, b Try) int { return a.Start.Compare(b.Start) }) {
			r.Fatal("tries are not in order")
		}
	})
}
