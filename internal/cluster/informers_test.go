package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/host"
)

// TestInformersOutliveARestart keeps informers of default settings on every kind that the
// cluster serves, stops it and starts it again at the same address: the informers of all
// kinds sync, and what they tell of one kind has no gap and no repeat.
func TestInformersOutliveARestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := filepath.Join(shortDir(t), "s")
	c := begin(t, Options{State: dir, Devices: host.Sim})
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Layout.Kubeconfig())
	must(t, err)
	cfg.QPS = -1
	client := kubernetes.NewForConfigOrDie(cfg)

	watched := map[schema.GroupVersionResource]bool{}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerGroupsAndResources()
	must(t, err)
	every := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(cfg), 0)
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		must(t, err)
		for _, r := range l.APIResources {
			for _, v := range r.Verbs {
				if v == "watch" {
					every.ForResource(gv.WithResource(r.Name)).Informer()
					watched[gv.WithResource(r.Name)] = true
				}
			}
		}
	}
	if len(watched) < 20 {
		t.Fatalf("only %d kinds can be watched", len(watched))
	}
	every.Start(ctx.Done())
	for gvr, ok := range every.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Errorf("the informer of %s did not sync", gvr)
		}
	}

	seen := &record{want: make(chan struct{}, 1)}
	typed := informers.NewSharedInformerFactory(client, 0)
	typed.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen.note(t, "", o.(*corev1.ConfigMap)) },
		UpdateFunc: func(old, o any) { seen.note(t, old.(*corev1.ConfigMap).ResourceVersion, o.(*corev1.ConfigMap)) },
	})
	typed.Start(ctx.Done())
	typed.WaitForCacheSync(ctx.Done())

	m, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counter"}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
	must(t, err)
	count := func(from, to int) {
		for n := from; n <= to; n++ {
			m.Data["n"] = strconv.Itoa(n)
			m, err = client.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
			must(t, err)
		}
	}
	count(1, 50)
	must(t, seen.wait(ctx, 50))
	addr := c.Addr
	must(t, c.Close())
	begin(t, Options{State: dir, Listen: addr, Devices: host.Sim})
	count(51, 100)
	must(t, seen.wait(ctx, 100))
	for gvr := range watched {
		if !every.ForResource(gvr).Informer().HasSynced() {
			t.Errorf("the informer of %s is not in sync", gvr)
		}
	}
}

// record follows the counter through the events of an informer.
type record struct {
	mu   sync.Mutex
	n    int
	rv   string
	want chan struct{}
}

// note checks that each event continues the one before.
func (r *record) note(t *testing.T, from string, m *corev1.ConfigMap) {
	if m.Name != "counter" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := strconv.Atoi(m.Data["n"])
	switch {
	case from == "" && r.rv != "":
		t.Errorf("the counter was added twice, at %d", n)
	case from != r.rv:
		t.Errorf("the update to %d starts at revision %s, the last event was of %s", n, from, r.rv)
	case m.ResourceVersion == r.rv && n == r.n:
		// a relist that found nothing new is told as an update to the same revision
	case n <= r.n && r.rv != "":
		t.Errorf("the counter went from %d to %d", r.n, n)
	}
	r.n, r.rv = n, m.ResourceVersion
	select {
	case r.want <- struct{}{}:
	default:
	}
}

func (r *record) wait(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		have := r.n
		r.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-r.want:
		case <-ctx.Done():
			return fmt.Errorf("the informer has seen %d of %d updates: %w", have, n, ctx.Err())
		}
	}
}
