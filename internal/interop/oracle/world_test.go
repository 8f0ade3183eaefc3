package oracle

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/apiserverlite/controllers/attachdetach"
	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim"
)

const (
	nodeName  = "n1"
	namespace = "default"
)

// start begins a life of a kubelet in a world, and returns what kills it.
type start func(*testing.T, *world) (stop func())

// world is one node with an API, a driver and an attach/detach controller. Kubelets of one kind come and go in it.
type world struct {
	t       *testing.T
	ctx     context.Context
	config  *rest.Config
	client  kubernetes.Interface
	lab     *lab.Lab
	dir     string // the node's
	root    string // the kubelet's
	mounter *mount.FakeMounter
	driver  *driver

	kubelet  start
	lives    int
	stop     func()
	told     int               // of the driver's calls, how many are in the transcript
	names    map[string]string // of pods, by UID
	said     map[string]bool   // events in the transcript
	recorded []string          // the transcript
}

func newWorld(t *testing.T, kubelet start, s scenario) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ddo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dir: dir, root: nodesim.KubeletRoot(dir), lab: lab.New(lab.Options{}), mounter: mount.NewFakeMounter(nil),
		kubelet: kubelet, names: map[string]string{}, said: map[string]bool{}}
	w.serveAPI(s.spec)
	w.driver = serveDriver(t, w.root, w.mounter)
	w.driver.unstaged = s.unstaged
	t.Cleanup(w.kill)
	return w
}

// serveAPI serves drydock's API with its attach/detach controller, and plays the attacher.
func (w *world) serveAPI(change func(*storagev1.CSIDriverSpec)) {
	reg, err := registry.NewWith(registry.Options{Clock: w.lab.Clock})
	w.must(err)
	store, err := storage.Open(storage.Config{Durability: storage.Memory, Clock: w.lab.Clock})
	w.must(err)
	w.t.Cleanup(func() { store.Close() })
	srv, err := server.New(server.Config{Store: store, Registry: reg, Lab: w.lab, Log: zerolog.Nop()})
	w.must(err)
	w.t.Cleanup(func() { srv.Close() })
	http := httptest.NewServer(srv.Handler())
	w.t.Cleanup(http.Close)
	w.config = &rest.Config{Host: http.URL, QPS: -1}
	w.client, err = kubernetes.NewForConfig(w.config)
	w.must(err)
	required, info := true, true
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &required, PodInfoOnMount: &info,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}}
	if change != nil {
		change(&d.Spec)
	}
	_, err = w.client.StorageV1().CSIDrivers().Create(w.ctx, d, metav1.CreateOptions{})
	w.must(err)

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	without := slices.DeleteFunc(controllers.Names(), func(n string) bool { return n == attachdetach.Name })
	wg.Go(func() {
		if err := controllers.Run(ctx, controllers.Config{Client: w.client, Lab: w.lab, Log: zerolog.Nop(), Without: without}); err != nil {
			w.t.Errorf("run controllers: %v", err)
		}
	})
	attachments := informers.NewSharedInformerFactory(w.client, 0)
	attach := func(o any) { w.attach(ctx, o.(*storagev1.VolumeAttachment)) }
	_, err = attachments.Storage().V1().VolumeAttachments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: attach, UpdateFunc: func(_, o any) { attach(o) }})
	w.must(err)
	attachments.Start(ctx.Done())
	w.t.Cleanup(func() { cancel(); wg.Wait(); attachments.Shutdown() })
}

// attach does what the attacher does, at once.
func (w *world) attach(ctx context.Context, a *storagev1.VolumeAttachment) {
	if a.Status.Attached || a.DeletionTimestamp != nil {
		return
	}
	a = a.DeepCopy()
	a.Status.Attached, a.Status.AttachmentMetadata = true, map[string]string{"disk": "sdz"}
	w.client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
}

// startNodesim begins a life of drydock's kubelet.
func startNodesim(t *testing.T, w *world) (stop func()) {
	t.Helper()
	comp := w.lab.Component(context.Background(), "kubelet", nodeName)
	log := zerolog.Nop()
	if os.Getenv("ORACLE_LOG") != "" {
		log = zerolog.New(zerolog.NewTestWriter(t))
	}
	n, err := nodesim.New(nodesim.Config{Name: nodeName, Root: w.dir, RESTConfig: w.config, Lab: w.lab, Component: comp, Mounter: w.mounter, Simulated: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(comp.Context()); err != nil {
			t.Errorf("run nodesim: %v", err)
		}
	}()
	return func() { comp.Kill(); <-done }
}

// begin starts a kubelet.
func (w *world) begin() {
	w.t.Helper()
	w.stop = w.kubelet(w.t, w)
	w.lives++
	w.until("the driver on the node", func() bool {
		n, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
		return err == nil && len(n.Spec.Drivers) == 1
	})
}

// kill ends the kubelet, if there is one.
func (w *world) kill() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// reboot takes away what does not outlive a machine.
func (w *world) reboot() {
	w.kill()
	mps, _ := w.mounter.List()
	for _, m := range slices.Clone(mps) {
		w.must(w.mounter.Unmount(m.Path))
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// addVolume makes a bound claim and its PV. Change may alter both.
func (w *world) addVolume(claim string, change ...func(*v1.PersistentVolume, *v1.PersistentVolumeClaim)) {
	w.t.Helper()
	filesystem, class := v1.PersistentVolumeFilesystem, ""
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pvc := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + claim, AccessModes: modes, VolumeMode: &filesystem, StorageClassName: &class,
			Resources: v1.VolumeResourceRequirements{Requests: size}},
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
		Spec: v1.PersistentVolumeSpec{Capacity: size, AccessModes: modes, VolumeMode: &filesystem,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol-" + claim, FSType: "ext4",
				VolumeAttributes: map[string]string{"tier": "gold"}}}},
	}
	for _, f := range change {
		f(pv, pvc)
	}
	made, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Create(w.ctx, pvc, metav1.CreateOptions{})
	w.must(err)
	pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: claim, UID: made.UID}
	_, err = w.client.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{})
	w.must(err)
	made.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: modes, Capacity: size}
	_, err = w.client.CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
	w.must(err)
}

// createPod makes a pod on the node with one container that mounts the claims. Change may alter it.
func (w *world) createPod(name string, claims []string, change ...func(*v1.Pod)) {
	w.t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.PodSpec{NodeName: nodeName, AutomountServiceAccountToken: new(bool), Containers: []v1.Container{{Name: "app", Image: "busybox"}}}}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "v-" + c, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "v-" + c, MountPath: "/" + c})
	}
	for _, f := range change {
		f(p)
	}
	made, err := w.client.CoreV1().Pods(namespace).Create(w.ctx, p, metav1.CreateOptions{})
	w.must(err)
	w.names[string(made.UID)] = "UID(" + name + ")"
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	w.must(w.client.CoreV1().Pods(namespace).Delete(w.ctx, name, metav1.DeleteOptions{}))
}

func (w *world) forceDelete(name string) {
	w.t.Helper()
	zero := int64(0)
	w.must(w.client.CoreV1().Pods(namespace).Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

func (w *world) awaitCalls(method string, times int) {
	w.t.Helper()
	w.must(w.driver.await(w.ctx, method, times))
}

// until looks at the world until ok: of some things that are waited for nothing tells.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%s did not happen; there is:\n%s", what, lines(w.look()))
		}
	}
}

func (w *world) awaitRunning(name string) {
	w.t.Helper()
	w.until("pod "+name+" running", func() bool {
		p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
		return err == nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
	})
}

func (w *world) awaitGone(name string) {
	w.t.Helper()
	w.until("pod "+name+" gone", func() bool {
		_, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
		return err != nil
	})
}

// awaitIdle waits until the node neither uses nor has a volume.
func (w *world) awaitIdle() {
	w.t.Helper()
	w.until("all volumes detached", func() bool {
		n, err := w.client.CoreV1().Nodes().Get(w.ctx, nodeName, metav1.GetOptions{})
		return err == nil && len(n.Status.VolumesInUse) == 0 && len(n.Status.VolumesAttached) == 0
	})
}

// path is below the kubelet's root.
func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.root}, elem...)...)
}
