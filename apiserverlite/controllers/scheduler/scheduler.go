// Package scheduler chooses a node for each pod that asks for the default scheduler,
// with the rules of kube-scheduler that matter to storage.
//
// A scheduling cycle looks at one pod at a time: nodes are filtered, the best of the
// rest is chosen, and the choice is assumed at once, so that the next pod's cycle
// counts it though the API does not know it yet. The slow part, waiting until the
// volumes of the choice exist and are bound, and then posting the binding, runs in a
// goroutine for each pod. When it fails, the assumption is withdrawn and the pod
// comes back.
//
// Promises. No node gets more volumes of a driver than its CSINode allows, however
// many pods arrive at once. Equal choices are made by name. A pod that fits nowhere
// is looked at again when something it may wait for changes, not by polling.
package scheduler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "scheduler"

// SchedulerName is the spec.schedulerName it serves.
const SchedulerName = corev1.DefaultSchedulerName

var (
	pointVolumeClaimed = lab.Point{Component: "scheduler", Name: "after a volume is claimed for the pod, before the next write"}
	pointNodeSelected  = lab.Point{Component: "scheduler", Name: "after selected-node is written, before the volume is waited for"}
	pointVolumesBound  = lab.Point{Component: "scheduler", Name: "after the pod's volumes are bound, before the pod is"}
)

// Points lists the kill points of this package.
func Points() []lab.Point {
	return []lab.Point{pointVolumeClaimed, pointNodeSelected, pointVolumesBound}
}

// Scheduler schedules. Make it with New.
type Scheduler struct {
	env    control.Env
	client kubernetes.Interface
	events record.EventRecorder

	pods       cache.Indexer
	podLister  corelisters.PodLister
	nodes      corelisters.NodeLister
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	classes    storagelisters.StorageClassLister
	csiNodes   storagelisters.CSINodeLister
	drivers    storagelisters.CSIDriverLister
	capacities storagelisters.CSIStorageCapacityLister
	vas        cache.Indexer

	queue control.Queue[types.NamespacedName]
	wg    sync.WaitGroup // binding cycles

	mu      sync.Mutex
	waiting map[types.NamespacedName]*failure // guarded by mu: pods that fit nowhere
	assumed assumed                           // guarded by mu
	binding map[types.UID]chan struct{}       // guarded by mu: binding cycles that wait; a token means that something changed
	// setbacks counts the bindings of a pod to a node that failed, so that the next
	// choice is another where there is one. Guarded by mu.
	setbacks map[types.UID]map[string]int
	// said is what this scheduler wrote last about a pod that fits nowhere: the cached pod may not show it yet. Guarded by mu.
	said map[types.UID]verdict
}

// verdict is what a pod's PodScheduled condition says.
type verdict struct{ reason, message string }

// failure is why a pod waits.
type failure struct {
	uid     types.UID
	message string
	said    time.Time
}

// New registers the scheduler's handlers.
func New(env control.Env) *Scheduler {
	env = env.For(Name)
	core, storage := env.Informers.Core().V1(), env.Informers.Storage().V1()
	s := &Scheduler{
		env:        env,
		client:     env.Client,
		events:     env.Recorder(SchedulerName),
		pods:       core.Pods().Informer().GetIndexer(),
		podLister:  core.Pods().Lister(),
		nodes:      core.Nodes().Lister(),
		claims:     core.PersistentVolumeClaims().Lister(),
		volumes:    core.PersistentVolumes().Lister(),
		classes:    storage.StorageClasses().Lister(),
		csiNodes:   storage.CSINodes().Lister(),
		drivers:    storage.CSIDrivers().Lister(),
		capacities: storage.CSIStorageCapacities().Lister(),
		vas:        storage.VolumeAttachments().Informer().GetIndexer(),
		queue:      control.NewQueue[types.NamespacedName](env),
		waiting:    map[types.NamespacedName]*failure{},
		assumed:    newAssumed(),
		binding:    map[types.UID]chan struct{}{},
		setbacks:   map[types.UID]map[string]int{},
		said:       map[types.UID]verdict{},
	}
	control.IndexPods(core.Pods().Informer())
	control.Index(storage.VolumeAttachments().Informer(), attachmentsByNode, func(o interface{}) ([]string, error) {
		return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}, nil
	})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{Add: s.podAdded, Update: s.podUpdated, Delete: s.podGone})
	control.Register(core.Nodes().Informer(), control.On[*corev1.Node]{
		Add: func(*corev1.Node) { s.retryAll() },
		Update: func(old, n *corev1.Node) {
			if nodeMatters(old, n) {
				s.retryAll()
			}
		},
		Delete: func(*corev1.Node) { s.retryAll() }, // not that a pod could fit now, but the reason that it shows speaks of all nodes
	})
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{Any: s.claimSeen})
	control.Register(core.PersistentVolumes().Informer(), control.On[*corev1.PersistentVolume]{Any: s.volumeSeen})
	control.Register(storage.StorageClasses().Informer(), control.On[*storagev1.StorageClass]{Any: func(*storagev1.StorageClass) { s.retryAll() }})
	control.Register(storage.CSINodes().Informer(), control.On[*storagev1.CSINode]{Any: func(*storagev1.CSINode) { s.retryAll() }})
	control.Register(storage.CSIDrivers().Informer(), control.On[*storagev1.CSIDriver]{Any: func(*storagev1.CSIDriver) { s.retryAll() }})
	control.Register(storage.CSIStorageCapacities().Informer(), control.On[*storagev1.CSIStorageCapacity]{Any: func(*storagev1.CSIStorageCapacity) { s.retryAll() }})
	control.Register(storage.VolumeAttachments().Informer(), control.On[*storagev1.VolumeAttachment]{Delete: func(*storagev1.VolumeAttachment) { s.retryAll() }})
	return s
}

// Run schedules until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	defer s.wg.Wait()
	control.Work(ctx, s.env, 1, s.queue, s.schedule)
}

// mine tells whether a pod waits for this scheduler.
func mine(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.Spec.SchedulerName == SchedulerName && pod.DeletionTimestamp == nil &&
		len(pod.Spec.SchedulingGates) == 0 && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func (s *Scheduler) podAdded(pod *corev1.Pod) {
	if mine(pod) {
		s.queue.Add(nameOf(pod))
	}
	s.settled(pod)
}

func (s *Scheduler) podUpdated(old, pod *corev1.Pod) {
	// A new status alone, such as our own condition, makes no difference.
	if mine(pod) && (old.UID != pod.UID || !mine(old) || !equality.Semantic.DeepEqual(old.Spec, pod.Spec)) {
		s.queue.Add(nameOf(pod))
	}
	s.settled(pod)
	if pod.Spec.NodeName != "" && ended(pod) && !ended(old) {
		s.retryAll() // its place is free
	}
}

func (s *Scheduler) podGone(pod *corev1.Pod) {
	s.mu.Lock()
	if f := s.waiting[nameOf(pod)]; f != nil && f.uid == pod.UID {
		delete(s.waiting, nameOf(pod))
	}
	s.assumed.forget(pod.UID)
	delete(s.setbacks, pod.UID)
	delete(s.said, pod.UID)
	s.wake(pod.UID)
	s.mu.Unlock()
	if pod.Spec.NodeName != "" {
		s.retryAll()
	}
}

// settled drops the assumption about a pod that the API now tells about itself.
func (s *Scheduler) settled(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.Spec.NodeName != "" {
		s.assumed.forget(pod.UID)
		delete(s.setbacks, pod.UID)
	}
	delete(s.waiting, nameOf(pod))
	delete(s.said, pod.UID)
	s.wake(pod.UID)
}

// claimSeen brings back the pods that use the claim.
func (s *Scheduler) claimSeen(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range control.Pods(s.pods, control.PodsByClaim, control.Key(claim.Namespace, claim.Name)) {
		if _, ok := s.waiting[nameOf(pod)]; ok {
			s.queue.Add(nameOf(pod))
		}
		s.wake(pod.UID)
	}
}

// volumeSeen brings back the pods of the claim it belongs to, or, while it is free, all that wait.
func (s *Scheduler) volumeSeen(v *corev1.PersistentVolume) {
	if ref := v.Spec.ClaimRef; ref != nil {
		s.claimSeen(&corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ref.Namespace, ref.Name)})
		return
	}
	s.retryAll()
}

// retryAll brings back every pod that fits nowhere.
func (s *Scheduler) retryAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.waiting {
		s.queue.Add(name)
	}
	for uid := range s.binding {
		s.wake(uid)
	}
}

// wake tells a binding cycle to look again. Called with mu held.
func (s *Scheduler) wake(uid types.UID) {
	if ch, ok := s.binding[uid]; ok {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// nodeMatters tells whether a change of a node can make a pod fit: heartbeats cannot.
func nodeMatters(old, n *corev1.Node) bool {
	return old.Spec.Unschedulable != n.Spec.Unschedulable || control.IsReady(old) != control.IsReady(n) ||
		!equality.Semantic.DeepEqual(old.Labels, n.Labels) || !equality.Semantic.DeepEqual(old.Spec.Taints, n.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, n.Status.Allocatable)
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
