package server

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"drydock.dev/drydock/internal/lab"
)

func eventOf(name string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Type: "Normal", Reason: "R", Message: name,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"}}
}

// startAt is a server with the real kinds whose clock stands still.
func startAt(t *testing.T, path string, clock *clocktesting.FakeClock) *fixture {
	t.Helper()
	r, err := realRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, path, Config{Registry: r, Lab: lab.New(lab.Options{Clock: clock})})
}

func TestEventsExpire(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	path := tempDB(t)
	f := startAt(t, path, clock)
	c := f.typed(t).CoreV1().Events("default")
	create := func(names ...string) {
		t.Helper()
		for _, n := range names {
			if _, err := c.Create(ctx, eventOf(n), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) *corev1.Event {
		t.Helper()
		ev, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended before %q", want)
		}
		o := ev.Object.(*corev1.Event)
		if got := fmt.Sprintf("%s %s", ev.Type, o.Name); got != want {
			t.Fatalf("event %q, want %q", got, want)
		}
		return o
	}
	create("a", "b")
	next("ADDED a")
	b := next("ADDED b")
	clock.Step(40 * time.Minute)
	b.Count, b.LastTimestamp = 2, metav1.NewTime(clock.Now())
	if _, err := c.Update(ctx, b, metav1.UpdateOptions{}); err != nil { // begins its life anew
		t.Fatal(err)
	}
	next("MODIFIED b")
	create("c")
	next("ADDED c")
	clock.Step(25 * time.Minute)
	if gone := next(string(watch.Deleted) + " a"); gone.ResourceVersion <= b.ResourceVersion {
		t.Errorf("the deletion has revision %s, which is not its own", gone.ResourceVersion)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the expired event: %v", err)
	}
	w.Stop()
	f.stop()

	// It survives a restart: c was written 25 minutes ago.
	f = startAt(t, path, clock)
	c = f.typed(t).CoreV1().Events("default")
	if list, err = c.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Fatalf("after the restart: %v %v", list, err)
	}
	if w, err = c.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=c"}); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	clock.Step(34 * time.Minute)
	if _, err := c.Get(ctx, "c", metav1.GetOptions{}); err != nil {
		t.Fatalf("59 minutes old: %v", err)
	}
	clock.Step(2 * time.Minute)
	next("DELETED c")
}
