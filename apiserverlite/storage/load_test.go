package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

// TestWatchersSeeAll runs 20 writers that update 500 times each under 200 watches: every watch
// sees every event once and in order.
func TestWatchersSeeAll(t *testing.T) {
	const writers, updates, watches = 20, 500, 200
	s := mustOpen(t, Config{Path: tempPath(t), RingEvents: writers*updates + writers})
	var wg sync.WaitGroup
	fail := make(chan error, watches+writers)
	for i := range watches {
		o := WatchOptions{Queue: writers*updates + writers}
		total := writers * (updates + 1)
		if i%4 == 3 { // every fourth watches one object
			o.Namespace, o.Name = "x", fmt.Sprint(i%writers)
			total = updates + 1
		}
		_, w, err := s.WatchNow(configmaps, o)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer w.Stop()
			last, n := Revision(0), 0
			current := map[string]Revision{}
			for n < total {
				evs, err := w.Next(context.Background())
				if err != nil {
					fail <- err
					return
				}
				for _, ev := range evs {
					path := ev.Entry.Path()
					var prev Revision
					if ev.Prev != nil {
						prev = ev.Prev.Revision
					}
					if ev.Revision <= last || current[path] != prev {
						fail <- fmt.Errorf("%s at %d after %d, on top of %d instead of %d", path, ev.Revision, last, prev, current[path])
						return
					}
					last, current[path] = ev.Revision, ev.Revision
					n++
				}
			}
			if n != total {
				fail <- fmt.Errorf("%d events, want %d", n, total)
			}
		})
	}
	for i := range writers {
		wg.Go(func() {
			name := fmt.Sprint(i)
			var rev Revision
			for n := range updates + 1 {
				es, err := s.Write(context.Background(), Op{Key: key("x", name), Object: configMap("x", name, fmt.Sprint(n)), Expect: rev})
				if err != nil {
					fail <- err
					return
				}
				rev = es[0].Revision
			}
		})
	}
	wg.Wait()
	close(fail)
	for err := range fail {
		t.Error(err)
	}
}

func TestSlowWatchIsEnded(t *testing.T) {
	s := mustOpen(t, Config{Durability: Memory})
	_, slow, err := s.WatchNow(configmaps, WatchOptions{Queue: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Stop()
	_, other, err := s.WatchNow(configmaps, WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	var rev Revision
	for i := range 10 {
		rev = put(t, s, "x", "a", fmt.Sprint(i), rev).Revision
	}
	if evs, err := slow.Take(); len(evs) != 0 || !errors.Is(err, ErrSlow) {
		t.Fatalf("slow watch: %d events, %v", len(evs), err)
	}
	if evs, err := other.Take(); len(evs) != 10 || err != nil {
		t.Fatalf("other watch: %d events, %v", len(evs), err)
	}
	if got, ok := other.Progress(); !ok || got != s.Revision() {
		t.Fatalf("progress %d %v", got, ok)
	}
}

func TestRingIsBounded(t *testing.T) {
	s := mustOpen(t, Config{Durability: Memory, RingEvents: 100})
	var rev Revision
	var revs []Revision
	for i := range 500 {
		rev = put(t, s, "x", "a", fmt.Sprint(i), rev).Revision
		revs = append(revs, rev)
	}
	if _, err := s.Watch(configmaps, revs[398], WatchOptions{}); !errors.Is(err, ErrExpired) {
		t.Fatalf("watch of a dropped event: %v", err)
	}
	w, err := s.Watch(configmaps, revs[399], WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if evs, _ := w.Take(); len(evs) != 100 || evs[0].Revision != revs[400] {
		t.Fatalf("%d events", len(evs))
	}
	small := mustOpen(t, Config{Durability: Memory, RingBytes: 50 << 10})
	rev = 0
	for i := range 500 {
		rev = put(t, small, "x", "a", fmt.Sprint(i), rev).Revision
	}
	if small.hub.bytes > 50<<10 {
		t.Fatalf("the ring weighs %d", small.hub.bytes)
	}
}

func TestLeft(t *testing.T) {
	s := mustOpen(t, Config{Durability: Memory})
	_, w, err := s.WatchNow(configmaps, WatchOptions{Namespace: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	put(t, s, "y", "b", "elsewhere", 0)
	a := put(t, s, "x", "a", "old", 0)
	b := put(t, s, "x", "a", "new", a.Revision)
	evs, err := w.Take()
	if err != nil || len(evs) != 2 {
		t.Fatalf("%d events: %v", len(evs), err)
	}
	cm := evs[1].Left().Object.(*corev1.ConfigMap)
	if cm.Data["v"] != "old" || cm.ResourceVersion != b.Revision.String() {
		t.Fatalf("left: %+v", cm)
	}
	if old := a.Object.(*corev1.ConfigMap); old.ResourceVersion != a.Revision.String() {
		t.Fatal("the old state was changed")
	}
}
