package oracle

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
)

// The shell's pauses. The volume manager's own loops take 100 ms.
const (
	statusPeriod = 20 * time.Millisecond
	syncRetry    = time.Second
)

// shell is what of a kubelet surrounds the real volume manager: the pods' workers and the node's status.
type shell struct {
	ctx      context.Context
	client   kubernetes.Interface
	root     string
	volumes  volumemanager.VolumeManager
	recorder record.EventRecorder
	wg       sync.WaitGroup

	mu      sync.Mutex
	synced  bool                   // guarded by mu: every pod of the API was told
	workers map[types.UID]*podWork // guarded by mu
}

// podWork is where a pod's worker is.
type podWork struct {
	pod      *v1.Pod
	deleted  chan struct{} // closes when the pod is to end
	changed  chan struct{} // of its spec or annotations
	ending   bool
	stopped  bool // its containers have ended
	assigned bool // the API has it
}

// startUpstream begins a life of the real kubelet's volume manager. A first life in a world makes the driver known.
func startUpstream(t *testing.T, w *world) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &shell{ctx: ctx, client: w.client, root: w.root, workers: map[types.UID]*podWork{}}
	events := record.NewBroadcaster(record.WithContext(ctx))
	recorder := events.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: nodeName})
	s.recorder = recorder
	events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: w.client.CoreV1().Events("")})
	s.registerNode(t)

	h := &host{ctx: ctx, root: w.root, client: w.client, mounter: w.mounter, factory: informers.NewSharedInformerFactory(w.client, 0), recorder: recorder}
	plugins := &volume.VolumePluginMgr{}
	if err := plugins.InitPlugins(csi.ProbeVolumePlugins(), nil, h); err != nil {
		t.Fatal(err)
	}
	s.volumes = volumemanager.NewVolumeManager(true, nodeName, s, s, w.client, plugins, w.mounter, hostutil.NewHostUtil(), h.GetPodsDir(), recorder,
		blockPaths{mounter: w.mounter}, nil, 0)
	if w.lives == 0 {
		if err := csi.PluginHandler.RegisterPlugin(ctx, driverName, w.driver.endpoint(), []string{"1.0.0"}, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { csi.PluginHandler.DeRegisterPlugin(context.Background(), driverName, w.driver.endpoint()) })
	}
	pods := informers.NewSharedInformerFactory(w.client, 0)
	reg, err := pods.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.seen(o.(*v1.Pod)) }, UpdateFunc: func(_, o any) { s.seen(o.(*v1.Pod)) },
		DeleteFunc: func(o any) {
			if p, ok := o.(*v1.Pod); ok {
				s.gone(p)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	pods.Start(ctx.Done())
	s.wg.Go(func() { s.volumes.Run(ctx, config.NewSourcesReady(func(sets.Set[string]) bool { return s.ready() })) })
	s.wg.Go(s.keepStatus)
	s.wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
			s.mu.Lock()
			s.synced = true
			s.mu.Unlock()
		}
	})
	return func() {
		cancel()
		s.wg.Wait()
		pods.Shutdown()
		h.factory.Shutdown()
		events.Shutdown()
	}
}

func (s *shell) registerNode(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"pods", "plugins"} {
		if err := os.MkdirAll(filepath.Join(s.root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName,
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (s *shell) ready() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.synced }

// keepStatus reports volumesInUse once what is on disk is known, and tells the volume manager what is reported.
func (s *shell) keepStatus() {
	tick := time.NewTicker(statusPeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		node, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			continue
		}
		if inUse := s.volumes.GetVolumesInUse(); s.volumes.ReconcilerStatesHasBeenSynced() && !slices.Equal(inUse, node.Status.VolumesInUse) {
			b, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": inUse}})
			if err != nil {
				continue
			}
			if node, err = s.client.CoreV1().Nodes().Patch(s.ctx, nodeName, types.MergePatchType, b, metav1.PatchOptions{}, "status"); err != nil {
				continue
			}
		}
		s.volumes.MarkVolumesAsReportedInUse(node.Status.VolumesInUse)
	}
}

func (s *shell) seen(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[p.UID]
	if w == nil {
		w = &podWork{deleted: make(chan struct{}), changed: make(chan struct{}, 1), assigned: true, pod: p}
		s.workers[p.UID] = w
		s.wg.Go(func() { s.work(p.UID, w) })
	}
	if !maps.Equal(w.pod.Annotations, p.Annotations) {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	w.pod = p
	if p.DeletionTimestamp != nil {
		w.end()
	}
}

func (s *shell) gone(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[p.UID]; w != nil {
		w.assigned = false
		w.end()
	}
}

// end lets the pod end. The caller holds the shell's mu.
func (w *podWork) end() {
	if !w.ending {
		w.ending = true
		close(w.deleted)
	}
}

// work carries a pod from its volumes to its end, in the kubelet's order.
func (s *shell) work(uid types.UID, w *podWork) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go func() {
		select {
		case <-w.deleted:
		case <-ctx.Done():
		}
		cancel()
	}()
	pod := s.pod(w)
	for _, dir := range []string{"", "volumes", "plugins"} {
		os.MkdirAll(filepath.Join(s.root, "pods", string(uid), dir), 0o750)
	}
	for ctx.Err() == nil {
		err := s.volumes.WaitForAttachAndMount(ctx, s.pod(w))
		if err == nil {
			s.say(pod, v1.ContainerState{Running: &v1.ContainerStateRunning{}})
			select {
			case <-ctx.Done():
			case <-w.changed:
			case <-time.After(time.Minute): // the kubelet's next sync
			}
			continue
		}
		if ctx.Err() == nil && !wait.Interrupted(err) {
			s.recorder.Eventf(pod, v1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(syncRetry):
		}
	}
	if s.ctx.Err() != nil {
		return
	}
	s.say(pod, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}})
	s.mu.Lock()
	w.stopped = true
	s.mu.Unlock()
	for s.volumes.WaitForUnmount(s.ctx, pod) != nil {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(syncRetry):
		}
	}
	zero := int64(0)
	s.client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}})
	s.mu.Lock()
	delete(s.workers, uid)
	s.mu.Unlock()
}

func (s *shell) pod(w *podWork) *v1.Pod { s.mu.Lock(); defer s.mu.Unlock(); return w.pod }

// say reports the pod's one container.
func (s *shell) say(p *v1.Pod, state v1.ContainerState) {
	b, err := json.Marshal(map[string]any{"status": v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "app", Image: "busybox", State: state}}}})
	if err != nil {
		return
	}
	s.client.CoreV1().Pods(p.Namespace).Patch(s.ctx, p.Name, types.MergePatchType, b, metav1.PatchOptions{}, "status")
}

// What the volume manager asks about pods.

func (s *shell) GetPods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*v1.Pod
	for _, w := range s.workers {
		if w.assigned {
			out = append(out, w.pod)
		}
	}
	return out
}

func (s *shell) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil && w.assigned {
		return w.pod, true
	}
	return nil, false
}

func (s *shell) ShouldPodContainersBeTerminating(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil {
		return w.ending
	}
	return s.synced
}

func (s *shell) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil {
		return w.stopped
	}
	return s.synced
}
