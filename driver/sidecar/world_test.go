package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

func TestMain(m *testing.M) {
	level, err := zerolog.ParseLevel(os.Getenv("DRYDOCK_TEST_LOG"))
	if err != nil || level == zerolog.NoLevel {
		level = zerolog.Disabled
	}
	RouteKlog(zerolog.New(os.Stderr).Level(level))
	os.Exit(m.Run())
}

// upstreamLeaks are the goroutines that a provisioner leaves behind: the event
// broadcaster that external-provisioner makes in NewCSIProvisioner and keeps to itself.
var upstreamLeaks = []goleak.Option{
	goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*Broadcaster).loop"),
	goleak.IgnoreAnyFunction("k8s.io/client-go/tools/record.(*eventBroadcasterImpl).StartEventWatcher.func1"),
}

// noLeaks fails the test if goroutines that it started are left at its end. It comes first in a test.
func noLeaks(t *testing.T) {
	t.Helper()
	before := append([]goleak.Option{goleak.IgnoreCurrent()}, upstreamLeaks...)
	t.Cleanup(func() { goleak.VerifyNone(t, before...) })
}

// world is an API server and a driver, with nothing else acting on them.
type world struct {
	t      *testing.T
	lab    *lab.Lab
	driver *tinyDriver
	socket string
	config *rest.Config
	client kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, lab: lab.New(lab.Options{}), driver: &tinyDriver{}, socket: filepath.Join(tempDir(t), "csi.sock")}
	serveDriver(t, w.socket, w.driver)

	reg, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.Config{Durability: storage.Memory})
	if err != nil {
		t.Fatal(err)
	}
	api, err := server.New(server.Config{Store: store, Registry: reg, Lab: w.lab, Log: zerolog.Nop(), Version: "0.1"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(api.Handler())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		api.Close()
		h.CloseClientConnections()
		h.Close()
		store.Close()
	})
	w.config = &rest.Config{Host: h.URL, Transport: transport, QPS: -1}
	w.client = kubernetes.NewForConfigOrDie(w.config)
	w.seed()
	return w
}

// seed makes a node with the driver, and two classes.
func (w *world) seed() {
	w.t.Helper()
	ctx := w.t.Context()
	_, err1 := w.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"region": "here"}}}, metav1.CreateOptions{})
	_, err2 := w.client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: testDriver, NodeID: "droplet-1", TopologyKeys: []string{"region"}}}}}, metav1.CreateOptions{})
	var errs []error
	for name, mode := range map[string]storagev1.VolumeBindingMode{"now": storagev1.VolumeBindingImmediate, "later": storagev1.VolumeBindingWaitForFirstConsumer} {
		_, err := w.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: testDriver, VolumeBindingMode: &mode}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, err1, err2)...); err != nil {
		w.t.Fatal(err)
	}
}

// run starts a sidecar and gives the function that stops it and waits.
func (w *world) run(kind string, sidecar func(context.Context, Config) error, change ...func(*Config)) (stop func()) {
	w.t.Helper()
	c := w.lab.Component(context.Background(), kind, "")
	started := make(chan struct{}, 16)
	log := zerolog.Nop()
	if os.Getenv("DRYDOCK_TEST_LOG") != "" {
		log = zerolog.New(zerolog.NewTestWriter(w.t))
	}
	cfg := Config{RESTConfig: w.config, Address: w.socket, DriverName: testDriver, Component: c, Log: log,
		RetryStart: 10 * time.Millisecond, Started: func() { started <- struct{}{} }}
	for _, f := range change {
		f(&cfg)
	}
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- sidecar(c.Context(), cfg) }()
	select {
	case <-started:
		w.t.Logf("%s started in %s", kind, time.Since(began).Round(time.Millisecond))
	case err := <-done:
		w.t.Fatalf("%s ended: %v", kind, err)
	case <-time.After(2 * time.Minute):
		w.t.Fatalf("%s did not start", kind)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		c.Kill()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", kind, err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// claim makes a claim as the PV controller leaves it for an external provisioner.
func (w *world) claim(name, class string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	a := map[string]string{"volume.kubernetes.io/storage-provisioner": testDriver}
	for k, v := range annotations {
		a[k] = v
	}
	c, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: a},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// until reads events of a watch until one fits.
func until[T any](t *testing.T, w watch.Interface, err error, fits func(watch.EventType, T) bool) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	var last any
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			last = e.Object
			if o, ok := e.Object.(T); ok && fits(e.Type, o) {
				return o
			}
		case <-limit.C:
			t.Fatalf("waited in vain; last seen: %+v", last)
		}
	}
}

// volume waits for the PV of a claim.
func (w *world) volume(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.t.Helper()
	i, err := w.client.CoreV1().PersistentVolumes().Watch(w.t.Context(), metav1.ListOptions{})
	return until(w.t, i, err, func(_ watch.EventType, pv *corev1.PersistentVolume) bool { return pv.Name == "pvc-"+string(c.UID) })
}

func (w *world) attach(pv, name string) {
	w.t.Helper()
	_, err := w.client.StorageV1().VolumeAttachments().Create(w.t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: testDriver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) attachment(fits func(watch.EventType, *storagev1.VolumeAttachment) bool) *storagev1.VolumeAttachment {
	w.t.Helper()
	i, err := w.client.StorageV1().VolumeAttachments().Watch(w.t.Context(), metav1.ListOptions{})
	return until(w.t, i, err, fits)
}

func (d *tinyDriver) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.volumes[id] != nil
}

func (w *world) nolog() zerolog.Logger { return zerolog.Nop() }

func id(pv *corev1.PersistentVolume) string { return fmt.Sprintf("id-%s", pv.Name) }
