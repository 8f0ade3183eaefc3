package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/host"
)

// TestManyWatchesShareAConnection holds 600 watches on one HTTP/2 connection, and works on it besides.
func TestManyWatchesShareAConnection(t *testing.T) {
	const watches = 600
	c := begin(t, Options{Devices: host.Sim, API: APIOptions{Only: true, Durability: "memory"}})
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Layout.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int32
	cfg.QPS = -1
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	maps := client.CoreV1().ConfigMaps("default")
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []watch.Interface
	for i := range watches {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer w.Stop()
		all = append(all, w)
	}
	const changes = 5
	for i := range changes {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}}
		if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for n, w := range all {
		wg.Go(func() {
			for i := range changes {
				ev, open := <-w.ResultChan()
				if !open {
					t.Errorf("watch %d ended before event %d", n, i)
					return
				}
				if m, ok := ev.Object.(*corev1.ConfigMap); !ok || ev.Type != watch.Added || m.Name != fmt.Sprint("m", i) {
					t.Errorf("watch %d: event %d is %s %v", n, i, ev.Type, ev.Object)
				}
			}
		})
	}
	wg.Wait()
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}
