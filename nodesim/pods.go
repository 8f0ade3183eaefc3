package nodesim

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// phase is where a pod's worker is.
//
//	syncing --deleted, gone or ended--> terminating --containers ended--> terminated
//	terminated --volumes down, object deleted--> finished
//
// A pod whose object stays after it ended (a Job's) waits in finished for its deletion.
type phase int

const (
	syncing phase = iota
	terminating
	terminated
	finished
)

// podTable knows the pods of the node and where their workers are. It is the volume
// manager's source of pods.
type podTable struct {
	mu    sync.RWMutex
	ready bool                 // guarded by mu: every pod of the API was told
	pods  map[types.UID]*entry // guarded by mu
}

type entry struct {
	pod      *v1.Pod
	assigned bool // the API still has it
	phase    phase
	wake     chan struct{} // of its worker
	stop     func()        // ends a wait for its volumes; guarded by podTable.mu
}

func newPodTable() *podTable { return &podTable{pods: map[types.UID]*entry{}} }

func (t *podTable) markReady() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = true
}

// Ready is true once all pods were told.
func (t *podTable) Ready() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.ready
}

// List returns the pods that the API has.
func (t *podTable) List() []*v1.Pod {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]*v1.Pod, 0, len(t.pods))
	for _, e := range t.pods {
		if e.assigned {
			out = append(out, e.pod)
		}
	}
	return out
}

// Get returns a pod that the API has.
func (t *podTable) Get(uid types.UID) (*v1.Pod, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.pods[uid]; e != nil && e.assigned {
		return e.pod, true
	}
	return nil, false
}

// ContainersTerminating: the pod may start no more containers.
func (t *podTable) ContainersTerminating(uid types.UID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.pods[uid]; e != nil {
		return e.phase != syncing
	}
	return t.ready
}

// RuntimeRemovable: no container of the pod runs.
func (t *podTable) RuntimeRemovable(uid types.UID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.pods[uid]; e != nil {
		return e.phase >= terminated
	}
	return t.ready
}

// known lists all pods that have a worker.
func (t *podTable) known() []types.UID {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []types.UID
	for uid := range t.pods {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// seen enters or refreshes a pod. It tells whether the pod is new, and whether its
// worker has something to do: a change of nothing but status is the worker's own.
func (t *podTable) seen(p *v1.Pod) (e *entry, isNew, relevant bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e = t.pods[p.UID]
	if e == nil {
		e = &entry{pod: p, assigned: true, wake: make(chan struct{}, 1)}
		t.pods[p.UID] = e
		e.advance()
		return e, true, true
	}
	old := e.pod
	e.pod, e.assigned = p, true
	relevant = e.advance() || (old.DeletionTimestamp == nil) != (p.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(old.Spec, p.Spec) || gatesMoved(old, p) ||
		!equality.Semantic.DeepEqual(old.Labels, p.Labels) || !equality.Semantic.DeepEqual(old.Annotations, p.Annotations)
	return e, false, relevant
}

// advance begins the end of a pod that is deleted or has ended. The caller holds mu.
func (e *entry) advance() bool {
	over := e.pod.Status.Phase == v1.PodSucceeded || e.pod.Status.Phase == v1.PodFailed
	if e.phase != syncing || e.assigned && e.pod.DeletionTimestamp == nil && !over {
		return false
	}
	e.phase = terminating
	if e.stop != nil {
		e.stop()
	}
	return true
}

// gone records that the API does not have the pod any more.
func (t *podTable) gone(uid types.UID) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.pods[uid]
	if e != nil {
		e.assigned = false
		e.advance()
	}
	return e
}

// view is a worker's look at its pod.
type view struct {
	pod      *v1.Pod
	assigned bool
	phase    phase
}

func (t *podTable) view(e *entry) view {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return view{e.pod, e.assigned, e.phase}
}

// onStop sets what ends the worker's present wait; at once if the pod is ending already.
func (t *podTable) onStop(e *entry, stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.stop = stop
	if stop != nil && e.phase != syncing {
		stop()
	}
}

func (t *podTable) setPhase(e *entry, p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.phase = max(e.phase, p)
}

func (t *podTable) remove(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}
