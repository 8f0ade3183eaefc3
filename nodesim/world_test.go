package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

const (
	driverName = "blk.sim.example.com"
	nodeName   = "n1"
	namespace  = "default"
)

// world is one node with an API, a driver and an attach controller. Kubelets come and go in it.
type world struct {
	t       *testing.T
	name    string // of the node
	ctx     context.Context
	root    string
	client  *fake.Clientset
	lab     *lab.Lab
	mounter *mount.FakeMounter
	guest   *guest
	selinux volumeplugin.SELinuxMode
	health  bool        // kubelets ask how volumes are
	full    atomic.Bool // nothing can be attached any more
	log     zerolog.Logger
	close   func()

	watches *watchCount

	node *Node
	comp *lab.Component
	done chan struct{}

	met      atomic.Int64 // how often kubelets had told the driver of its registration when the last one began
	patience atomic.Int64 // until when that one is given time to do so, in Unix nanoseconds; zero once it has ended
	others   []*world     // whose kubelets share the time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newBareWorld(t)
	w.guest = newGuest(driverName, nodeName, w.mounter)
	w.guest.start(t, KubeletRoot(w.root))
	stop := w.runAttachController()
	closeBare := w.close
	w.close = sync.OnceFunc(func() {
		w.stopKubelet()
		w.guest.stop()
		stop()
		closeBare()
	})
	t.Cleanup(w.close)
	return w
}

// newBareWorld has an API, and nothing that acts in it.
func newBareWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	w := &world{t: t, name: nodeName, ctx: ctx, root: root, client: newClient(), lab: lab.New(lab.Options{}), mounter: mount.NewFakeMounter(nil),
		watches: &watchCount{n: map[string]int{}, changed: make(chan struct{})}, log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	if os.Getenv("NODESIM_LOG") != "" {
		w.log = w.log.Level(zerolog.DebugLevel)
	}
	w.countWatches()
	w.serveTokens()
	w.close = func() { cancel(); os.RemoveAll(root) }
	return w
}

// watchCount counts the watches that were begun on an API.
type watchCount struct {
	mu      sync.Mutex
	n       map[string]int // guarded by mu: by resource
	changed chan struct{}  // guarded by mu
}

// kubelets is how many watches kubelets have begun, and what closes at the next one.
func (c *watchCount) kubelets() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n["pods"] + c.n["nodes"] + c.n["csidrivers"], c.changed
}

// countWatches lets startKubelet know when a kubelet watches.
//
// It also lets a watch begin where its informer's list was made, as resource versions do: the tracker knows none, and an
// informer hands on what it has listed before it watches. A quick kubelet deletes a pod in between, and would never hear of it.
func (w *world) countWatches() {
	c, began := w.watches, &lists{watches: map[string]*kept{}}
	w.client.PrependReactor("list", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		l, ok := a.(ktesting.ListActionImpl)
		if !ok || l.ListOptions.ResourceVersion != "0" {
			return false, nil, nil // not an informer's
		}
		i, err := w.client.Tracker().Watch(l.GetResource(), l.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		began.swap(l.GetResource().String()+l.ListOptions.FieldSelector, keep(i))
		return false, nil, nil
	})
	w.client.PrependWatchReactor("*", func(a ktesting.Action) (bool, watch.Interface, error) {
		gvr, ns := a.GetResource(), a.GetNamespace()
		var i watch.Interface
		var err error
		if k := began.swap(gvr.String()+a.(ktesting.WatchActionImpl).ListOptions.FieldSelector, nil); k != nil {
			i = k
		} else {
			i, err = w.client.Tracker().Watch(gvr, ns)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n[gvr.Resource]++
		close(c.changed)
		c.changed = make(chan struct{})
		return true, i, err
	})
	w.t.Cleanup(began.stop)
}

// lists are watches that began with a list and that nobody has asked for yet.
type lists struct {
	mu      sync.Mutex
	watches map[string]*kept // guarded by mu
}

// swap takes what is there and leaves another, or nothing. A new list ends the watch of one that came to nothing.
func (l *lists) swap(key string, k *kept) *kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.watches[key]
	delete(l.watches, key)
	if k == nil {
		return old
	}
	if old != nil {
		old.Stop()
	}
	l.watches[key] = k
	return nil
}

func (l *lists) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.watches {
		k.Stop()
	}
}

// kept is a watch whose events wait, however many, until somebody takes them.
type kept struct {
	out  chan watch.Event
	stop func()
}

func keep(src watch.Interface) *kept {
	done := make(chan struct{})
	k := &kept{out: make(chan watch.Event), stop: sync.OnceFunc(func() { close(done) })}
	go func() {
		defer close(k.out)
		defer src.Stop()
		var queue []watch.Event
		for {
			var out chan watch.Event
			var first watch.Event
			if len(queue) > 0 {
				out, first = k.out, queue[0]
			}
			select {
			case ev, ok := <-src.ResultChan():
				if !ok {
					return
				}
				queue = append(queue, ev)
			case out <- first:
				queue = queue[1:]
			case <-done:
				return
			}
		}
	}()
	return k
}

func (k *kept) ResultChan() <-chan watch.Event { return k.out }
func (k *kept) Stop()                          { k.stop() }

// newClient is the plain tracker: the one that manages fields takes tens of milliseconds for a write.
func newClient() *fake.Clientset {
	return fake.NewSimpleClientset() //nolint:staticcheck // SA1019: no field management is wanted
}

// serveTokens answers token requests, which the tracker cannot.
func (w *world) serveTokens() {
	w.client.PrependReactor("create", "serviceaccounts", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "token" {
			return false, nil, nil
		}
		r := a.(ktesting.CreateAction).GetObject().DeepCopyObject().(*authv1.TokenRequest)
		r.Status.Token = "token-for-" + r.Spec.BoundObjectRef.Name
		return true, r, nil
	})
}

// startKubelet begins a kubelet's life and waits until it watches.
func (w *world) startKubelet() {
	w.t.Helper()
	if w.guest != nil {
		w.met.Store(int64(w.guest.toldCount(true) + w.guest.toldCount(false)))
		w.patience.Store(time.Now().Add(meetingTime).UnixNano())
	}
	before, _ := w.watches.kubelets()
	w.comp = w.lab.Component(context.Background(), "kubelet", w.name)
	n, err := newNode(Config{Name: w.name, Root: w.root, Lab: w.lab, Component: w.comp, Mounter: w.mounter, Simulated: true, SELinux: w.selinux, VolumeHealth: w.health, Log: w.log}, w.client)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	w.node, w.done = n, done
	comp := w.comp
	until := w.patience.Load()
	go func() {
		defer close(done)
		defer w.patience.CompareAndSwap(until, 0)
		if err := n.Run(comp.Context()); err != nil {
			w.t.Errorf("run: %v", err)
		}
	}()
	for {
		now, changed := w.watches.kubelets()
		if now >= before+3 {
			return
		}
		select {
		case <-changed:
		case <-w.comp.Context().Done():
			return
		case <-w.ctx.Done():
			w.t.Fatal("the kubelet does not watch")
		}
	}
}

func (w *world) stopKubelet() {
	if w.comp != nil {
		w.comp.Stop()
		<-w.done
		w.comp = nil
	}
}

func (w *world) killKubelet() {
	w.comp.Kill()
	<-w.done
	w.comp = nil
}

// addVolume makes a bound claim and its PV of this driver. Change may alter the PV.
func (w *world) addVolume(claim, handle string, change ...func(*v1.PersistentVolume)) {
	w.t.Helper()
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: namespace, Name: claim, UID: types.UID("claim-" + claim)},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle, FSType: "ext4"}},
		},
	}
	for _, f := range change {
		f(pv)
	}
	pvc := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim, UID: types.UID("claim-" + claim)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: pv.Name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: pv.Spec.Capacity},
	}
	w.must(w.client.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{}))
	w.must(w.client.CoreV1().PersistentVolumeClaims(namespace).Create(w.ctx, pvc, metav1.CreateOptions{}))
}

func (w *world) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pod returns a pod on the node that mounts these claims.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app", Image: "busybox"}}},
	}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "vol-" + c, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "vol-" + c, MountPath: "/" + c})
	}
	return p
}

func (w *world) createPod(p *v1.Pod) {
	w.t.Helper()
	w.must(w.client.CoreV1().Pods(namespace).Create(w.ctx, p, metav1.CreateOptions{}))
}

// deletePod begins a graceful deletion: the kubelet ends it.
func (w *world) deletePod(name string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	w.must(p, err)
	now, grace := metav1.Now(), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	w.must(w.client.CoreV1().Pods(namespace).Update(w.ctx, p, metav1.UpdateOptions{}))
}

func (w *world) forceDelete(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods(namespace).Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// watchUntil blocks until ok of the objects of a kind, which is asked after each change.
func (w *world) watchUntil(what string, gvr string, ok func() bool) {
	w.t.Helper()
	if err := w.tryUntil(gvr, ok, w.ctx.Done()); err != nil {
		w.t.Fatalf("%s: %v\n%s", what, err, w.describe())
	}
}

func (w *world) tryUntil(gvr string, ok func() bool, stop <-chan struct{}) error {
	i, err := w.watchOf(gvr)
	if err != nil {
		return err
	}
	defer i.Stop()
	for !ok() {
		select {
		case <-i.ResultChan():
		case <-stop:
			return fmt.Errorf("did not happen in time")
		}
	}
	return nil
}

func (w *world) watchOf(kind string) (watch.Interface, error) {
	switch kind {
	case "pods":
		return w.client.Tracker().Watch(v1.SchemeGroupVersion.WithResource("pods"), namespace)
	case "events":
		return w.client.Tracker().Watch(v1.SchemeGroupVersion.WithResource("events"), namespace)
	case "csinodes":
		return w.client.Tracker().Watch(storagev1.SchemeGroupVersion.WithResource("csinodes"), "")
	}
	return w.client.Tracker().Watch(v1.SchemeGroupVersion.WithResource("nodes"), "")
}

func (w *world) podPhase(name string) v1.PodPhase {
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return p.Status.Phase
}

func (w *world) waitRunning(names ...string) {
	w.t.Helper()
	for _, n := range names {
		w.watchUntil("pod "+n+" running", "pods", func() bool { return w.podPhase(n) == v1.PodRunning })
	}
}

func (w *world) waitGone(names ...string) {
	w.t.Helper()
	for _, n := range names {
		w.watchUntil("pod "+n+" gone", "pods", func() bool { return w.podPhase(n) == "" })
	}
}

func (w *world) nodeObject() *v1.Node {
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return &v1.Node{}
	}
	return n
}

// waitDetached waits until the node neither uses nor has any volume.
func (w *world) waitDetached() {
	w.t.Helper()
	w.watchUntil("all volumes detached", "nodes", func() bool {
		n := w.nodeObject()
		return len(n.Status.VolumesInUse) == 0 && len(n.Status.VolumesAttached) == 0
	})
}

func (w *world) waitEvent(text string) v1.Event {
	w.t.Helper()
	var hit v1.Event
	w.watchUntil("event "+text, "events", func() bool {
		for _, e := range w.events() {
			if strings.Contains(e.Reason+": "+e.Message, text) {
				hit = e
				return true
			}
		}
		return false
	})
	return hit
}

func (w *world) events() []v1.Event {
	l, err := w.client.CoreV1().Events(namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return l.Items
}

// files lists what is below the kubelet's root, without sockets.
func (w *world) files() []string {
	root := KubeletRoot(w.root)
	var out []string
	filepath.Walk(root, func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode()&os.ModeSocket == 0 {
			rel, _ := filepath.Rel(root, path)
			out = append(out, rel)
		}
		return nil
	})
	return out
}

func (w *world) leftovers() []string {
	var out []string
	for _, f := range w.files() {
		if strings.HasPrefix(f, "pods/") || strings.HasPrefix(f, "plugins/kubernetes.io/flexvolume/") && strings.Contains(f, "/mounts/") ||
			strings.HasPrefix(f, "plugins/kubernetes.io/csi/") &&
				!slices.Contains([]string{"plugins/kubernetes.io/csi/" + driverName, "plugins/kubernetes.io/csi/volumeDevices",
					"plugins/kubernetes.io/csi/volumeDevices/staging", "plugins/kubernetes.io/csi/volumeDevices/publish"}, f) {
			out = append(out, f)
		}
	}
	mps, _ := w.mounter.List()
	for _, m := range mps {
		out = append(out, "mount "+m.Path)
	}
	return out
}

// checkClean waits until directories and mounts are gone: housekeeping follows the pod's end.
func (w *world) checkClean() {
	w.t.Helper()
	w.waitDetached()
	deadline := time.Now().Add(time.Minute)
	for len(w.leftovers()) > 0 {
		if time.Now().After(deadline) {
			w.t.Fatalf("left behind:\n%s\n%s", strings.Join(w.leftovers(), "\n"), w.describe())
		}
		w.pause()
	}
}

// pause between two looks at the directories, whose removal nothing announces.
func (w *world) pause() { <-time.After(2 * time.Millisecond) }

func (w *world) describe() string {
	state, _ := json.MarshalIndent(w.node.State(), "", " ")
	n := w.nodeObject()
	return fmt.Sprintf("calls: %s\nin use: %v attached: %v\nstate: %s\npods: %s\nevents: %v", strings.Join(w.guest.log(), ", "),
		n.Status.VolumesInUse, n.Status.VolumesAttached, state, w.podLines(), w.eventLines())
}

// podLines are the pods that the API has, and those that the kubelet knows and how far it is with them.
func (w *world) podLines() string {
	var out []string
	if l, err := w.client.CoreV1().Pods(namespace).List(w.ctx, metav1.ListOptions{}); err == nil {
		for _, p := range l.Items {
			out = append(out, fmt.Sprintf("%s in the API, to be deleted: %v", p.Name, p.DeletionTimestamp != nil))
		}
	}
	w.node.mu.Lock()
	l := w.node.life
	w.node.mu.Unlock()
	if l == nil {
		return strings.Join(append(out, "no kubelet lives"), "; ")
	}
	out = append(out, fmt.Sprintf("pods known: %v, volumes: %v", l.pods.Ready(), l.volumes.Ready()))
	l.pods.mu.RLock()
	defer l.pods.mu.RUnlock()
	for uid, e := range l.pods.pods {
		out = append(out, fmt.Sprintf("%s known, assigned %v, phase %v", uid, e.assigned, e.phase))
	}
	return strings.Join(out, "; ")
}

func (w *world) eventLines() []string {
	var out []string
	for _, e := range w.events() {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

func uniqueName(handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^" + handle)
}

func attachmentName(handle string) string { return csi.AttachmentName(handle, driverName, nodeName) }

// path is where a pod finds one of its own volumes.
func (w *world) path(p *v1.Pod, volume string) string {
	w.t.Helper()
	path, err := w.node.PodVolumePath(p, volume, "pv-"+strings.TrimPrefix(volume, "vol-"))
	w.must(path, err)
	return path
}

// advance moves the lab's clock.
func advance(w *world, d time.Duration) { w.lab.Clock.(*lab.Clock).Advance(d) }

// hurry makes the lab's time pass forty times as fast, so that pauses are short.
func (w *world) hurry() { w.hurryBy(40) }

// hurryBy makes the lab's time pass so many times as fast. What waits for an answer
// waits less, too: with much going on at once, a few times is all that it bears. While
// a kubelet and its driver meet time does not hurry: GetInfo may take no longer than a
// second, and with each that does the pause before the next is longer.
func (w *world) hurryBy(times int) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(5 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if w.meeting() {
					continue
				}
				advance(w, time.Duration(times)*5*time.Millisecond)
			case <-done:
				return
			}
		}
	})
	stop := w.close
	w.close = sync.OnceFunc(func() { close(done); wg.Wait(); stop() })
	w.t.Cleanup(w.close)
}

// meetingTime is what a kubelet and its driver get to meet, however busy the machine is.
const meetingTime = 10 * time.Second

// meeting tells whether a kubelet has begun that has not yet told the driver of its registration.
func (w *world) meeting() bool {
	if slices.ContainsFunc(w.others, (*world).meeting) {
		return true
	}
	if w.guest == nil {
		return false
	}
	return time.Now().UnixNano() < w.patience.Load() && int64(w.guest.toldCount(true)+w.guest.toldCount(false)) == w.met.Load()
}
