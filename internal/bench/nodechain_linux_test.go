package bench

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"drydock.dev/drydock/internal/cluster"
)

// podWatch hears of the node's pods when its kubelet does: its watch is opened as the
// kubelet's is, for the same pods, in the same encoding, on a connection of its own.
type podWatch struct {
	mu      sync.Mutex
	added   map[string]time.Time // guarded by mu: when a pod's ADDED came
	running map[string]time.Time // guarded by mu: when it was first seen running
	changed chan struct{}        // guarded by mu
}

// watchPods begins to watch; what it returns with it ends that.
func watchPods(ctx context.Context, b *testing.B, c *cluster.Cluster) (*podWatch, func()) {
	cfg := c.RESTConfig("bench")
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(cfg)
	fatal(b, err)
	pods, onNode := client.CoreV1().Pods(""), "spec.nodeName=n1"
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: onNode})
	fatal(b, err)
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: onNode, ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	fatal(b, err)
	p := &podWatch{added: map[string]time.Time{}, running: map[string]time.Time{}, changed: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range w.ResultChan() {
			p.note(e, time.Now())
		}
	})
	return p, func() { w.Stop(); wg.Wait() }
}

func (p *podWatch) note(e watch.Event, at time.Time) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Type == watch.Added {
		p.added[pod.Name] = at
	}
	if _, known := p.running[pod.Name]; !known && pod.Status.Phase == corev1.PodRunning {
		p.running[pod.Name] = at
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait blocks until a pod runs, and says when it was added and when it ran.
func (p *podWatch) wait(ctx context.Context, b *testing.B, name string) (added, running time.Time) {
	b.Helper()
	for {
		p.mu.Lock()
		added, running = p.added[name], p.running[name]
		changed := p.changed
		p.mu.Unlock()
		if !running.IsZero() {
			return added, running
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.Fatalf("pod %s does not run in time", name)
		}
	}
}

// chain is how long each step took from the step before, for every pod. Only "first" is
// held against a target; the other steps say where the time of a whole pod goes.
type chain struct {
	answered []time.Duration // from asking for the pod to the API's answer
	event    []time.Duration // from asking to the event at a watcher
	first    []time.Duration // from the event to the first call because of it, of any method
	staged   []time.Duration // from the first call to NodeStageVolume
	publish  []time.Duration // from there to NodePublishVolume
	running  []time.Duration // from there until a watcher sees the pod running
	whole    []time.Duration // from asking until then
}

// add enters one pod. The calls are those about it, as they came in.
func (c *chain) add(b *testing.B, asked, answered, added, running time.Time, calls []call) {
	b.Helper()
	at := func(method string) time.Time {
		i := slices.IndexFunc(calls, func(c call) bool { return c.method == method })
		if i < 0 {
			b.Fatalf("the driver was not called to %s", method)
		}
		return calls[i].at
	}
	staged, published := at("NodeStageVolume"), at("NodePublishVolume")
	c.answered = append(c.answered, answered.Sub(asked))
	c.event = append(c.event, added.Sub(asked))
	c.first = append(c.first, calls[0].at.Sub(added))
	c.staged = append(c.staged, staged.Sub(calls[0].at))
	c.publish = append(c.publish, published.Sub(staged))
	c.running = append(c.running, running.Sub(published))
	c.whole = append(c.whole, running.Sub(asked))
}

// log prints every step.
func (c *chain) log(b *testing.B) {
	for _, step := range []struct {
		what  string
		times []time.Duration
	}{
		{"asked for -> answered", c.answered}, {"asked for -> event at a watcher", c.event}, {"event -> first call", c.first},
		{"first call -> NodeStage", c.staged}, {"NodeStage -> NodePublish", c.publish}, {"NodePublish -> seen running", c.running},
		{"asked for -> seen running", c.whole},
	} {
		p50, p99 := quantiles(step.times)
		b.Logf("%-32s p50 %s, p99 %s", step.what, ms(p50), ms(p99))
	}
}

// quantiles sorts the times.
func quantiles(times []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}
