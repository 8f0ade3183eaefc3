package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestOneTraceForAVolume(t *testing.T) {
	l := New(Options{})
	ctx, stage := l.Timeline.Start(t.Context(), SpanOptions{Op: "NodeStageVolume", Volume: "handle", Component: "kubelet", Node: "n1"})
	_, mkfs := l.Timeline.Start(ctx, SpanOptions{Op: "mkfs.ext4", Volume: "handle"})
	mkfs.Set("bytes", "1")
	mkfs.End("", nil)
	l.Timeline.Alias("handle", "pvc-1")
	stage.End("Internal", errors.New("no"))
	_, late := l.Timeline.Start(t.Context(), SpanOptions{Op: "NodePublishVolume", Volume: "handle"})
	late.End("OK", nil)

	got := l.Timeline.Spans()
	if len(got) != 3 {
		t.Fatalf("got %d spans", len(got))
	}
	for _, s := range got {
		if s.Volume != "pvc-1" || s.TraceID != got[0].TraceID || s.End.IsZero() {
			t.Errorf("span %+v", s)
		}
	}
	if got[1].ParentID != got[0].ID || got[1].Attrs["bytes"] != "1" || got[0].Code != "Internal" || got[0].Error != "no" || got[0].Node != "n1" {
		t.Errorf("got %+v", got)
	}
}

// TestNothingIsKeptForEver: what is known of volumes is bounded as the spans are.
func TestNothingIsKeptForEver(t *testing.T) {
	l := New(Options{Spans: 10})
	tl := l.Timeline
	for i := range 100 {
		handle, name := fmt.Sprint("handle-", i), fmt.Sprint("pvc-", i)
		_, a := tl.Start(t.Context(), SpanOptions{Op: "a", Volume: handle})
		tl.Alias(handle, name)
		tl.Alias(handle, name)
		_, b := tl.Start(t.Context(), SpanOptions{Op: "b", Volume: handle})
		a.End("", nil)
		b.End("", nil)
	}
	for i, s := range tl.Spans() {
		if want := fmt.Sprint("pvc-", 95+i/2); s.Volume != want || s.End.IsZero() {
			t.Errorf("span %d is of %s, want one of %s that has ended", i, s.Volume, want)
		}
	}
	if n := []int{len(tl.order), len(tl.spans), len(tl.aliases), len(tl.handles), len(tl.volumes)}; !slices.Equal(n, []int{10, 10, 10, 10, 5}) {
		t.Errorf("spans in order, spans, aliases, handles, volumes: %v", n)
	}
}

func TestSubscribersMissNothingOrAreTold(t *testing.T) {
	l := New(Options{Spans: 10})
	before, sub := l.Timeline.Subscribe(100)
	if len(before) != 0 {
		t.Fatalf("recorded before the start: %v", before)
	}
	_, slow := l.Timeline.Subscribe(1)
	for range 20 {
		_, s := l.Timeline.Start(context.Background(), SpanOptions{Op: "x"})
		s.End("", nil)
	}
	sub.Close()
	var rev uint64
	n := 0
	for s := range sub.C {
		if s.Rev != rev+1 {
			t.Fatalf("revision %d after %d", s.Rev, rev)
		}
		rev, n = s.Rev, n+1
	}
	if n != 40 {
		t.Errorf("got %d changes, want 40", n)
	}
	n = 0
	for range slow.C {
		n++
	}
	if n != 1 {
		t.Errorf("the slow subscriber got %d changes before it was closed", n)
	}
	if got := l.Timeline.Spans(); len(got) != 10 {
		t.Errorf("%d spans are kept, the bound is 10", len(got))
	}
}

func TestNoTimelineRecordsNothing(t *testing.T) {
	var tl *Timeline
	_, s := tl.Start(t.Context(), SpanOptions{})
	s.Set("a", "b")
	s.End("", nil)
	tl.Alias("a", "b")
}
