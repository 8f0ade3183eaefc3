package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const benchNamespace = "bench"

// sampleName is an object that is always there.
const sampleName = "sample"

// prepare makes the namespace for all that follows, and the sample in it.
func prepare(b *testing.B, s *side) {
	b.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}
	if _, err := s.client(b, asJSON).CoreV1().Namespaces().Create(b.Context(), ns, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := s.client(b, asJSON).CoreV1().ConfigMaps(benchNamespace).Create(b.Context(), item(sampleName), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// item is an object of about a kilobyte, as pods and claims are.
func item(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}}, Data: map[string]string{"k": strings.Repeat("v", 700)}}
}

// creates makes the objects with so many clients, and returns the rate and the times.
func creates(b *testing.B, c kubernetes.Interface, names []string, clients int) (float64, []time.Duration) {
	b.Helper()
	times := make([]time.Duration, len(names))
	begin := time.Now()
	together(b, clients, len(names), func(i int) error {
		t := time.Now()
		_, err := c.CoreV1().ConfigMaps(benchNamespace).Create(b.Context(), item(names[i]), metav1.CreateOptions{})
		times[i] = time.Since(t)
		return err
	})
	return float64(len(names)) / time.Since(begin).Seconds(), times
}

// together shares n pieces of work among so many workers.
func together(b *testing.B, workers, n int, do func(int) error) {
	b.Helper()
	var wg sync.WaitGroup
	var at atomic.Int64
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := at.Add(1) - 1; i < int64(n) && errs[w] == nil; i = at.Add(1) - 1 {
				errs[w] = do(int(i))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func lists(b *testing.B, c kubernetes.Interface, n int) []time.Duration {
	b.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		begin := time.Now()
		if _, err := c.CoreV1().ConfigMaps(benchNamespace).List(b.Context(), metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(begin)
	}
	return times
}

// conflicts has 16 clients count in one object, each retrying on conflicts: none may be lost.
func conflicts(b *testing.B, s *side) {
	b.Helper()
	maps := s.client(b, asProtobuf).CoreV1().ConfigMaps(benchNamespace)
	name := s.next(1)[0]
	if _, err := maps.Create(b.Context(), item(name), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	const count = 200
	var refused atomic.Int64
	begin := time.Now()
	together(b, 16, count, func(int) error {
		for {
			m, err := maps.Get(b.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			m.Data["n"] += "."
			if _, err = maps.Update(b.Context(), m, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				return err
			}
			refused.Add(1)
		}
	})
	m, err := maps.Get(b.Context(), name, metav1.GetOptions{})
	if err != nil || len(m.Data["n"]) != count {
		b.Fatalf("%s: %d updates of %d arrived: %v", s.name, len(m.Data["n"]), count, err)
	}
	b.Logf("%s: 16 clients count to %d in one object: %s, %d conflicts", s.name, count, ms(time.Since(begin)), refused.Load())
}

// arrivals is how long after the beginning of each create its event was with each watch.
func arrivals(b *testing.B, s *side, media string, watches, events int) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	maps := s.client(b, media).CoreV1().ConfigMaps(benchNamespace)
	l, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	arrived := make(chan time.Time, watches)
	for range watches {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for range w.ResultChan() {
				arrived <- time.Now()
			}
		}()
	}
	var times []time.Duration
	for _, name := range s.next(events) {
		begin := time.Now()
		if _, err := maps.Create(ctx, item(name), metav1.CreateOptions{}); err != nil {
			b.Fatal(fmt.Errorf("%s: %w", s.name, err))
		}
		for range watches {
			times = append(times, (<-arrived).Sub(begin))
		}
	}
	return times
}
