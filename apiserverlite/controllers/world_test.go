package controllers_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

const (
	driver = "csi.drydock.dev"
	region = "nyc3"
)

// world is an API with controllers on it, and the parts of a cluster that they talk to, played by the test.
type world struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	meta   metadata.Interface
	lab    *lab.Lab
	log    zerolog.Logger
	close  func()
}

// newAPI makes the real server, its state in memory. The caller closes both.
func newAPI(t *testing.T) (*lab.Lab, *storage.Store, *server.Server) {
	t.Helper()
	l := lab.New(lab.Options{})
	reg, err := registry.NewWith(registry.Options{Clock: l.Clock})
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.Config{Durability: storage.Memory, Clock: l.Clock})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(server.Config{Store: store, Registry: reg, Lab: l, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return l, store, srv
}

// newWorld stands on the real server over HTTP, its state in memory.
func newWorld(t *testing.T) *world {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, before)
		}
	})
	l, store, srv := newAPI(t)
	http := httptest.NewServer(srv.Handler())
	cfg := &rest.Config{Host: http.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + ",application/json"}}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	metaClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(&rest.Config{Host: http.URL, QPS: -1}), hc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w := &world{t: t, ctx: ctx, client: client, meta: metaClient, lab: l, log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	w.close = func() {
		cancel()
		hc.CloseIdleConnections()
		srv.Close()
		http.Close()
		store.Close()
	}
	t.Cleanup(w.close)
	return w
}

// start runs the controllers and the played parts; the returned function stops them and waits.
func (w *world) start(parts ...func(context.Context)) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, append(parts, func(ctx context.Context) {
		c := w.lab.Component(ctx, "controllers", "")
		if err := controllers.Run(ctx, controllers.Config{Client: w.client, Metadata: w.meta, Lab: w.lab, Component: c, Log: w.log}); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})...)
	stop = func() { cancel(); wait() }
	w.t.Cleanup(stop)
	return stop
}

// play runs parts until ctx ends; the returned function waits for their ends.
func (w *world) play(ctx context.Context, parts ...func(context.Context)) (wait func()) {
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			p(ctx)
		})
	}
	return wg.Wait
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until watches objects of one kind until one of them satisfies done.
func until[T runtime.Object](w *world, what string, list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch watchFunc, done func(T) bool) T {
	w.t.Helper()
	var found T
	ok := false
	each(w.ctx, list, watch, func(o runtime.Object, gone bool) bool {
		if x, is := o.(T); is && !gone && done(x) {
			found, ok = x, true
		}
		return ok
	})
	if !ok {
		w.dump()
		w.t.Fatalf("waited in vain: %s", what)
	}
	return found
}

func (w *world) pod(name string, done func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	c := w.client.CoreV1().Pods("default")
	return until(w, "pod "+name, lister(c.List), c.Watch, func(p *corev1.Pod) bool { return p.Name == name && done(p) })
}

func (w *world) claim(name string, done func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	c := w.client.CoreV1().PersistentVolumeClaims("default")
	return until(w, "claim "+name, lister(c.List), c.Watch, func(p *corev1.PersistentVolumeClaim) bool { return p.Name == name && done(p) })
}

func (w *world) node(name string, done func(*corev1.Node) bool) *corev1.Node {
	w.t.Helper()
	c := w.client.CoreV1().Nodes()
	return until(w, "node "+name, lister(c.List), c.Watch, func(n *corev1.Node) bool { return n.Name == name && done(n) })
}

// attached waits until a node's volumesAttached lists just these.
func (w *world) attached(node string, volumes ...corev1.UniqueVolumeName) {
	w.t.Helper()
	w.node(node, func(n *corev1.Node) bool {
		return slices.EqualFunc(n.Status.VolumesAttached, volumes, func(a corev1.AttachedVolume, v corev1.UniqueVolumeName) bool { return a.Name == v })
	})
}

func (w *world) volume(name string, done func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	w.t.Helper()
	c := w.client.CoreV1().PersistentVolumes()
	return until(w, "volume "+name, lister(c.List), c.Watch, func(v *corev1.PersistentVolume) bool { return v.Name == name && done(v) })
}

// event waits for an event with that reason about an object of that name.
func (w *world) event(name, reason string) *corev1.Event {
	w.t.Helper()
	c := w.client.CoreV1().Events("")
	return until(w, "event "+reason+" of "+name, lister(c.List), c.Watch, func(e *corev1.Event) bool { return e.InvolvedObject.Name == name && e.Reason == reason })
}

func (w *world) addNode(name string, limit int32) {
	w.t.Helper()
	_, err := w.client.CoreV1().Nodes().Create(w.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region, corev1.LabelHostname: name},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.client.StorageV1().CSINodes().Create(w.ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: name, TopologyKeys: []string{"region"},
			Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}},
	}, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) addClass(name string, mode storagev1.VolumeBindingMode) {
	w.t.Helper()
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &mode,
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
	}, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) addVolume(v *corev1.PersistentVolume) {
	w.t.Helper()
	_, err := w.client.CoreV1().PersistentVolumes().Create(w.ctx, v, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) addClaim(name, class string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	c, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, claim(name, class), metav1.CreateOptions{})
	w.check(err)
	return c
}

func claim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

func (w *world) addPod(name string, claims ...string) *corev1.Pod {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods("default").Create(w.ctx, pod(name, claims...), metav1.CreateOptions{})
	w.check(err)
	return p
}

func pod(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: c, MountPath: "/" + c})
	}
	return p
}
