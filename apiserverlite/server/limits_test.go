package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFairQueueTakesTurns has one flow with a hundred requests and one with a single one.
func TestFairQueueTakesTurns(t *testing.T) {
	q := newFairQueue(1, 100)
	if err := q.enter(ctx, "busy"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	queue := func(flow string) {
		n := q.waiting()
		wg.Go(func() {
			if err := q.enter(ctx, flow); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, flow)
			mu.Unlock()
			q.leave()
		})
		for q.waiting() == n {
			runtime.Gosched()
		}
	}
	for range 100 {
		queue("busy")
	}
	if err := q.enter(ctx, "busy"); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the flow is full: %v", err)
	}
	queue("small")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := q.enter(gone, "gone"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a client that has gone: %v", err)
	}
	q.leave()
	wg.Wait()
	if order[0] != "busy" || order[1] != "small" {
		t.Fatalf("the small flow's turn is second: %v", order[:3])
	}
	if q.free != 1 || len(q.flows) != 0 || q.turn.Len() != 0 {
		t.Fatalf("left behind: %+v", q)
	}
}

// TestListStorm lists thousands of objects from many clients, while a watch and small requests go on.
func TestListStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("a storm takes seconds")
	}
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	data := map[string]string{"k": strings.Repeat("x", 2000)}
	for i := range 2000 {
		if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%04d", i)}, Data: data}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := c.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=small", ResourceVersion: f.store.Revision().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	storm, calm := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range 50 {
		lister := f.as(t, fmt.Sprintf("storm%d", i%2)).CoreV1().ConfigMaps("default")
		wg.Go(func() {
			for storm.Err() == nil {
				_, _ = lister.List(storm, metav1.ListOptions{}) // how the last one ends does not matter
			}
		})
	}
	worst := time.Duration(0)
	for range 20 {
		begin := time.Now()
		if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-w.ResultChan()
		if err := c.Delete(ctx, "small", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		<-w.ResultChan()
		worst = max(worst, time.Since(begin))
	}
	calm()
	wg.Wait()
	t.Logf("in the storm, a create, a delete and their events took at most %s", worst)
	if worst > 20*time.Second {
		t.Errorf("small requests starve: %s", worst)
	}
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func TestAuditLog(t *testing.T) {
	var log lockedBuffer
	f := startWith(t, "", Config{Registry: newTestRegistry(), Audit: &log})
	c := f.typed(t).CoreV1().ConfigMaps("default")
	w, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "not-in-the-log"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-w.ResultChan() // the stream is flushed through the recorder
	w.Stop()
	if _, err := c.Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	f.Server.Close()
	f.http.Close()
	var got []string
	for l := range strings.Lines(log.b.String()) {
		var e auditEvent
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		if e.User.Username != "kubernetes-admin" || e.AuditID == "" || e.ObjectRef == nil || e.StageTimestamp.IsZero() {
			t.Errorf("%s", l)
			continue
		}
		got = append(got, fmt.Sprintf("%s %s %s/%s %d", e.Stage, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Code))
	}
	for _, want := range []string{"ResponseStarted watch configmaps/ 200", "ResponseComplete create configmaps/ 201", "ResponseComplete get configmaps/none 404", "ResponseComplete watch configmaps/ 200"} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(log.b.String(), "not-in-the-log") {
		t.Error("an object's data is in the log")
	}
}
