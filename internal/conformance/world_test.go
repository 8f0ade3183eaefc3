package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

// config is how the tests reach the one cluster that they share. Set once, before any test runs.
var config *rest.Config

// elsewhere names the kubeconfig of another API server, without controllers, that the tests are to ask instead:
// internal/interop/peer has one of upstream's, to see that they ask for what upstream gives.
var elsewhere = os.Getenv("DRYDOCK_CONFORMANCE_OF")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if elsewhere != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", elsewhere); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		config.QPS, config.UserAgent = -1, "conformance"
		return m.Run()
	}
	dir, err := os.MkdirTemp("/tmp", "ddc")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{State: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Devices: host.Sim, Log: zerolog.Nop()})
	if err == nil {
		err = c.WaitReady(ctx)
	}
	if err == nil {
		config, err = clientcmd.BuildConfigFromFlags("", c.Layout.Kubeconfig())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the cluster:", err)
		return 1
	}
	config.QPS, config.UserAgent = -1, "conformance"
	code := m.Run()
	if err := c.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the cluster:", err)
		code = 1
	}
	return code
}

// patience is what one test may take on a busy machine.
const patience = 40 * time.Second

// world is what one test has: clients, and a namespace that is its own.
type world struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	dyn    dynamic.Interface
	rest   rest.Interface // any path of the API, as it is
	ns     string
}

var namespaces atomic.Int64

// newWorld makes the test run beside the others.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	client := kubernetes.NewForConfigOrDie(config)
	w := &world{t: t, ctx: ctx, client: client, dyn: dynamic.NewForConfigOrDie(config), rest: client.CoreV1().RESTClient(),
		ns: fmt.Sprintf("conformance-%d", namespaces.Add(1))}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}, metav1.CreateOptions{})
	w.must(err)
	if elsewhere != "" {
		_, err := client.CoreV1().ServiceAccounts(w.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		w.must(err)
		_, err = client.CoreV1().ConfigMaps(w.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}, metav1.CreateOptions{})
		w.must(err)
	}
	await(w, core("serviceaccounts"), w.ns, "default", "to be made", func(a *corev1.ServiceAccount) bool { return a != nil })
	return w
}

// unique is a name for an object that has no namespace.
func (w *world) unique(name string) string { return name + "-" + w.ns }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// refused fails the test unless err is of the kind that is tells, and says words.
func (w *world) refused(err error, is func(error) bool, words ...string) {
	w.t.Helper()
	if err == nil || !is(err) {
		w.t.Fatalf("not refused as it should be: %v", err)
	}
	for _, s := range words {
		if !strings.Contains(err.Error(), s) {
			w.t.Errorf("the refusal lacks %q: %v", s, err)
		}
	}
}

func core(resource string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(resource)
}

// at is a kind's client in a namespace, or without one where namespace is empty.
func (w *world) at(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.dyn.Resource(r)
	}
	return w.dyn.Resource(r).Namespace(namespace)
}

// await waits until done says so of the object, nil standing for its absence, and returns it then.
func await[T any](w *world, r schema.GroupVersionResource, namespace, name, what string, done func(*T) bool) *T {
	w.t.Helper()
	var last *T
	stream, err := w.at(r, namespace).Watch(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, AllowWatchBookmarks: true,
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	w.must(err)
	defer stream.Stop()
	synced := false
	for e := range stream.ResultChan() {
		switch e.Type {
		case watch.Deleted:
			last = nil
		case watch.Added, watch.Modified:
			last = new(T)
			w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(e.Object.(*unstructured.Unstructured).Object, last))
		case watch.Bookmark:
			synced = true
		default:
			w.t.Fatalf("watch %s %s: %+v", r.Resource, name, e.Object)
		}
		if (synced || last != nil) && done(last) {
			return last
		}
	}
	w.t.Fatalf("waited in vain for %s %s %s; last seen: %+v", r.Resource, name, what, last)
	return nil
}

// gone waits until the object is no more.
func (w *world) gone(r schema.GroupVersionResource, namespace, name string) {
	w.t.Helper()
	await(w, r, namespace, name, "to be gone", func(o *unstructured.Unstructured) bool { return o == nil })
}

// object reads a manifest.
func (w *world) object(manifest string) *unstructured.Unstructured {
	w.t.Helper()
	var o unstructured.Unstructured
	w.must(yaml.Unmarshal([]byte(manifest), &o.Object))
	return &o
}

// pod is one with a single container, of the labels given as "key=value".
func pod(name string, labels ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled(labels...)}, Spec: podSpec()}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "c", Image: "registry.test/pause:1"}}}
}

func labelled(pairs ...string) map[string]string {
	out := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		out[k] = v
	}
	return out
}

func (w *world) createPod(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	made, err := w.client.CoreV1().Pods(w.ns).Create(w.ctx, p, metav1.CreateOptions{})
	w.must(err)
	return made
}

// running waits until the pod runs and is ready.
func (w *world) running(name string) *corev1.Pod {
	w.t.Helper()
	return await(w, core("pods"), w.ns, name, "to be ready", func(p *corev1.Pod) bool { return p != nil && ready(p) })
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// eventually asks again until it is so. For what no watch tells: discovery, or how an object that is as it was is shown.
func (w *world) eventually(what string, so func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// get is a body that the server gives for a path; accept may be empty.
func (w *world) get(path, accept string) string {
	w.t.Helper()
	q := w.rest.Get().RequestURI(path)
	if accept == "" {
		accept = "application/json"
	}
	b, err := q.SetHeader("Accept", accept).DoRaw(w.ctx)
	if err != nil {
		w.t.Fatalf("get %s: %v\n%.300s", path, err, b)
	}
	return string(b)
}
