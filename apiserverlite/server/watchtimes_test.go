package server

import (
	crand "crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/apiserverlite/storage"
)

func TestAgenda(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name      string
		limit     time.Duration
		bookmarks bool
		want      []time.Duration // since the start; a zero is a bookmark's own time
	}{
		{"only an end", time.Hour, false, []time.Duration{time.Hour}},
		{"bookmarks, a last one, the end", 2 * bookmarkEvery, true, []time.Duration{0, 2*bookmarkEvery - bookmarkAhead, 2 * bookmarkEvery}},
		{"too short for a last bookmark", 2 * bookmarkAhead, true, []time.Duration{2 * bookmarkAhead}},
		{"a last bookmark alone", 10 * time.Second, true, []time.Duration{10*time.Second - bookmarkAhead, 10 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAgenda(start, c.limit, c.bookmarks)
			now := start
			for i, want := range c.want {
				if a.due(now) {
					t.Fatalf("due after %s already", now.Sub(start))
				}
				now = now.Add(a.wait())
				if !a.due(now) || a.over != (i == len(c.want)-1) {
					t.Fatalf("after %s: over is %v", now.Sub(start), a.over)
				}
				if want == 0 {
					want = a.every
				}
				if got := now.Sub(start); got != want {
					t.Fatalf("number %d is due after %s, not %s", i, got, want)
				}
			}
		})
	}
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := make(chan struct{}, 1)
		s := stall{wall: clock.RealClock{}, cut: func() { cut <- struct{}{} }}
		defer s.stop()
		quick := func() error { return nil }
		for range 5 { // the alarm of one write does not mean a later one
			if err := s.during(quick); err != nil {
				t.Fatal(err)
			}
			time.Sleep(watchStall / 2)
		}
		if err := s.during(quick); err != nil {
			t.Fatal(err)
		}
		time.Sleep(watchStall / 2) // half of a slow write's time is over when the alarm comes
		slow := func() error { time.Sleep(watchStall - time.Second); return nil }
		if err := s.during(slow); err != nil || len(cut) != 0 {
			t.Fatalf("a write that came to its end was cut off: %v, %d", err, len(cut))
		}
		began := time.Now()
		stuck := func() error { <-cut; return errors.New("cut off") }
		if err := s.during(stuck); err == nil || time.Since(began) > 2*watchStall {
			t.Fatalf("a write without end went on for %s", time.Since(began))
		}
		time.Sleep(3 * watchStall)
		if len(cut) != 0 {
			t.Fatal("cut off without a write")
		}
	})
}

// deaf is the connection of a client that asks and does not read.
type deaf struct {
	http.ResponseWriter
	cut chan struct{}
}

func (d *deaf) Write([]byte) (int, error) {
	<-d.cut
	return 0, os.ErrDeadlineExceeded
}

func (d *deaf) SetWriteDeadline(time.Time) error {
	close(d.cut)
	return nil
}

// TestLongAnswerUnread: an answer that nobody reads is given up. It may be one piece, many, or compressed.
func TestLongAnswerUnread(t *testing.T) {
	half := make([]byte, mostPlain+1)
	for name, parts := range map[string][][]byte{"one piece": {half}, "pieces": {half, half}} {
		for _, accept := range []string{"", "gzip"} {
			t.Run(name+accept, func(t *testing.T) {
				if _, err := crand.Read(half); err != nil { // so that it stays long
					t.Fatal(err)
				}
				synctest.Test(t, func(t *testing.T) {
					r := httptest.NewRequest(http.MethodGet, "/", nil)
					r.Header.Set("Accept-Encoding", accept)
					began := time.Now()
					(&Server{wall: clock.RealClock{}}).send(&deaf{httptest.NewRecorder(), make(chan struct{})}, r, http.StatusOK, typeJSON, parts...)
					if took := time.Since(began); took != watchStall {
						t.Fatalf("given up after %s", took)
					}
				})
			})
		}
	}
}

// TestSharedFrames has watches of every form see one event: its bytes are the same as if nobody had shared them.
func TestSharedFrames(t *testing.T) {
	f := start(t, "", newTestRegistry())
	maps := f.typed(t).CoreV1().ConfigMaps("default")
	w, err := f.store.Watch(corev1.Resource("configmaps"), f.store.Revision(), storage.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	evs, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ev := evs[0]
	for _, m := range []media{mediaJSON, mediaProtobuf} {
		for _, as := range []storage.EventType{storage.Added, storage.Deleted} {
			x := &exchange{s: f.Server, res: f.byGVR[corev1.SchemeGroupVersion.WithResource("configmaps")], out: output{media: m}}
			own := frames{x: x}
			own.event(as, ev.Entry)
			one, two := frames{x: x}, frames{x: x}
			one.shared(ev, as, ev.Entry)
			two.shared(ev, as, ev.Entry)
			two.shared(ev, as, ev.Entry)
			if want := own.buf.String(); own.err != nil || string(one.one) != want || one.buf.Len() != 0 || two.buf.String() != want+want || two.one != nil {
				t.Fatalf("%v: shared %q, %q and %q, own %q", m, one.one, one.buf.String(), two.buf.String(), want)
			}
		}
	}
}
