package journal

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cached runs a cache until the test ends.
func cached(t *testing.T, o cache.Options) cache.Cache {
	t.Helper()
	o.Scheme = scheme.Scheme
	c, err := cache.New(config, o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	return c
}

func listed(t *testing.T, c client.Reader, opts ...client.ListOption) []string {
	t.Helper()
	var l corev1.ConfigMapList
	must(t, c.List(t.Context(), &l, opts...))
	var names []string
	for _, m := range l.Items {
		if m.Name != "kube-root-ca.crt" {
			names = append(names, m.Namespace+"/"+m.Name)
		}
	}
	return names
}

// TestCaches: of one namespace of several, by labels, with an index and a transformer, and of metadata alone.
func TestCaches(t *testing.T) {
	c, ctx := direct(t), t.Context()
	in, out := namespace(t, c), namespace(t, c)
	for _, ns := range []string{in, out} {
		for _, colour := range []string{"red", "blue"} {
			must(t, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: colour, Labels: map[string]string{"colour": colour}}, Data: map[string]string{"secret": colour}}))
		}
	}
	red := cached(t, cache.Options{
		DefaultNamespaces: map[string]cache.Config{in: {}},
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Label: labels.SelectorFromSet(labels.Set{"colour": "red"}),
			Transform: func(o any) (any, error) {
				if m, ok := o.(*corev1.ConfigMap); ok {
					m.Data = nil
				}
				return o, nil
			},
		}},
	})
	if got := listed(t, red); len(got) != 1 || got[0] != in+"/red" {
		t.Errorf("the cache of one namespace and colour has %v", got)
	}
	var m corev1.ConfigMap
	must(t, red.Get(ctx, client.ObjectKey{Namespace: in, Name: "red"}, &m))
	if m.Data != nil {
		t.Errorf("not transformed: %v", m.Data)
	}

	all := cached(t, cache.Options{DefaultNamespaces: map[string]cache.Config{in: {}, out: {}}})
	must(t, all.IndexField(ctx, &corev1.ConfigMap{}, "data.secret", func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["secret"]} }))
	if got := listed(t, all, client.MatchingFields{"data.secret": "blue"}, client.InNamespace(out)); len(got) != 1 || got[0] != out+"/blue" {
		t.Errorf("by the index: %v", got)
	}
	if got := listed(t, all, client.MatchingFields{"data.secret": "blue"}); len(got) != 2 {
		t.Errorf("by the index in all namespaces: %v", got)
	}

	part := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	inf, err := all.GetInformer(ctx, part)
	must(t, err)
	seen := make(chan string, 100)
	_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(o any) {
			if m, ok := o.(*metav1.PartialObjectMetadata); ok && m.Namespace == out {
				seen <- m.Name
			}
		}})
	must(t, err)
	must(t, all.Get(ctx, client.ObjectKey{Namespace: out, Name: "red"}, part))
	if part.Labels["colour"] != "red" {
		t.Errorf("%+v", part)
	}
	must(t, c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: out, Name: "red"}}))
	select {
	case name := <-seen:
		if name != "red" {
			t.Errorf("%s was deleted", name)
		}
	case <-time.After(time.Minute):
		t.Error("the deletion was not told")
	}
}

// TestOwnedObjectIsMadeAgain: its controller is asked when it goes.
func TestOwnedObjectIsMadeAgain(t *testing.T) {
	c, ctx := direct(t), t.Context()
	ns := namespace(t, c)
	m, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme.Scheme, Metrics: metrics.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}}})
	must(t, err)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
	asked := make(chan struct{}, 1000)
	must(t, ctrl.NewControllerManagedBy(m).Named("owner").For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		if r.Name != owner.Name {
			return reconcile.Result{}, nil
		}
		asked <- struct{}{}
		var o corev1.ConfigMap
		if err := m.GetClient().Get(ctx, r.NamespacedName, &o); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owned"}}
		_, err := ctrl.CreateOrUpdate(ctx, m.GetClient(), s, func() error {
			s.StringData = map[string]string{"k": "v"}
			return ctrl.SetControllerReference(&o, s, m.GetScheme())
		})
		return reconcile.Result{}, err
	})))
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Start(run) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	w, err := c.Watch(ctx, &corev1.SecretList{}, client.InNamespace(ns))
	must(t, err)
	defer w.Stop()
	must(t, c.Create(ctx, owner))
	made := 0
	for limit := time.After(time.Minute); made < 2; {
		select {
		case ev := <-w.ResultChan():
			s, ok := ev.Object.(*corev1.Secret)
			if !ok {
				t.Fatalf("%+v", ev.Object)
			}
			if ev.Type != "ADDED" {
				continue
			}
			if ref := metav1.GetControllerOf(s); ref == nil || ref.UID != owner.UID || string(s.Data["k"]) != "v" {
				t.Fatalf("%+v", s)
			}
			if made++; made == 1 {
				must(t, c.Delete(ctx, s)) // the controller makes it again
			}
		case <-limit:
			t.Fatalf("made %d times after %d questions", made, len(asked))
		}
	}
}
