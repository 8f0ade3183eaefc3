package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// requests notes the requests that a client makes.
type requests struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string // guarded by mu
}

func (r *requests) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, q.URL.Path+"?"+q.URL.RawQuery)
	r.mu.Unlock()
	return r.next.RoundTrip(q)
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}

// TestInformersSyncByOneWatch holds typed, dynamic and metadata informers to the same content, which each
// gets by one watch with initial events and no list; while the clients' List is a list.
func TestInformersSyncByOneWatch(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		maps{w}.make(fmt.Sprint("m", i), "a")
	}
	noted := &requests{}
	cfg := rest.CopyConfig(config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { noted.next = next; return noted })
	hc, err := rest.HTTPClientFor(cfg)
	w.must(err)
	typed, err := kubernetes.NewForConfigAndClient(cfg, hc)
	w.must(err)
	dyn, err := dynamic.NewForConfigAndClient(cfg, hc)
	w.must(err)
	md, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), hc)
	w.must(err)
	selected := func(o *metav1.ListOptions) { o.LabelSelector = "watch=a" }
	gvr := core("configmaps")
	all := map[string]cache.SharedIndexInformer{
		"typed":    informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(w.ns), informers.WithTweakListOptions(selected)).Core().V1().ConfigMaps().Informer(),
		"dynamic":  dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, w.ns, selected).ForResource(gvr).Informer(),
		"metadata": metadatainformer.NewFilteredSharedInformerFactory(md, 0, w.ns, selected).ForResource(gvr).Informer(),
	}
	for name, informer := range all {
		changed := make(chan string, 100)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) {
			m, err := meta.Accessor(o)
			if err == nil {
				changed <- m.GetName() + m.GetAnnotations()[name]
			}
		}})
		w.must(err)
		var running sync.WaitGroup
		running.Go(func() { informer.RunWithContext(w.ctx) })
		t.Cleanup(running.Wait)
		if !cache.WaitForCacheSync(w.ctx.Done(), informer.HasSynced) {
			t.Fatalf("the %s informer did not sync", name)
		}
		if n := len(informer.GetStore().ListKeys()); n != 5 {
			t.Errorf("the %s informer has %v", name, informer.GetStore().ListKeys())
		}
		if seen := noted.take(); len(seen) != 1 || !strings.Contains(seen[0], "sendInitialEvents=true") {
			t.Errorf("the %s informer asked %q", name, seen)
		}
		maps{w}.patch("m3", `{"metadata":{"annotations":{"`+name+`":"changed"}}}`)
		select {
		case got := <-changed:
			if got != "m3changed" {
				t.Errorf("the %s informer told of %s", name, got)
			}
		case <-time.After(patience):
			t.Fatalf("the %s informer told of no change", name)
		}
	}
	list, err := typed.CoreV1().ConfigMaps(w.ns).List(w.ctx, metav1.ListOptions{LabelSelector: "watch=a"})
	w.must(err)
	ul, err := dyn.Resource(gvr).Namespace(w.ns).List(w.ctx, metav1.ListOptions{LabelSelector: "watch=a"})
	w.must(err)
	ml, err := md.Resource(gvr).Namespace(w.ns).List(w.ctx, metav1.ListOptions{LabelSelector: "watch=a"})
	w.must(err)
	if len(list.Items) != 5 || len(ul.Items) != 5 || len(ml.Items) != 5 {
		t.Errorf("lists of %d, %d, %d", len(list.Items), len(ul.Items), len(ml.Items))
	}
	if o := ml.Items[0]; o.UID == "" || o.Labels["watch"] != "a" {
		t.Errorf("metadata: %+v", o)
	}
	for _, q := range noted.take() {
		if strings.Contains(q, "watch=true") {
			t.Errorf("a list was a watch: %s", q)
		}
	}
}
