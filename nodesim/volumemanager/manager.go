// Package volumemanager brings the volumes of a node's pods up and down, as the
// kubelet's volume manager does.
//
//	pods --populator--> desired state --+
//	                                    +--reconciler--> operations --> plugins
//	disk --reconstruct--> actual state -+                    |
//	                          ^-------------- outcome -------+
//
// The populator reads claims and volumes live from the API and writes down what
// each pod wants. The reconciler compares that with what is there and starts
// operations; it alone starts them. At most one operation runs for a key of volume
// and pod; a failed one waits out a growing pause.
//
// Order of one pass: unmount from pods, verify attachments and mount, unmount
// devices, clean up what could not be recognised. So a device that a new pod wants
// stays staged when the old pod goes.
//
// After a start nothing is unmounted until every pod is known and the node's own
// status was read: see [Manager.ready].
//
// What a change costs is what it touches, however many volumes there are. A pass looks
// only at the volumes that were touched since the last one, at those whose pause is
// over, and at those for which the last one could not do what they need; the populator
// only at the pods that were touched; a pod's wait only hears of its own pod.
//
// Blocking. Two goroutines wake on a change, on the end of an operation and on a
// pause that is over; nothing polls. Run returns when they and all operations have
// ended.
package volumemanager

import (
	"context"
	"errors"
	"sync"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// UniqueName identifies a volume on the node.
type UniqueName = volumeplugin.UniqueName

// Pods is what the manager must know about the node's pods.
type Pods interface {
	// List returns all pods assigned to the node.
	List() []*v1.Pod
	// Get returns a pod that is assigned to the node.
	Get(types.UID) (*v1.Pod, bool)
	// ContainersTerminating is true from the moment a pod may start no more containers; also for a pod nobody knows.
	ContainersTerminating(types.UID) bool
	// RuntimeRemovable is true once no container of the pod can be running; also for a pod nobody knows.
	RuntimeRemovable(types.UID) bool
	// Ready is true once all sources have told their pods.
	Ready() bool
}

// Config is what a Manager works with.
type Config struct {
	Host    *volumeplugin.Host
	Plugins *volumeplugin.Registry
	Pods    Pods
	// Recorder takes the events about pods and volumes.
	Recorder record.EventRecorder
	// Attached is node.status.volumesAttached as the cache has it; false if the cache has no Node yet.
	Attached func() (map[UniqueName]bool, bool)
}

// Manager is the volume manager of one node in one kubelet's life.
type Manager struct {
	host     *volumeplugin.Host
	plugins  *volumeplugin.Registry
	pods     Pods
	recorder record.EventRecorder
	attached func() (map[UniqueName]bool, bool)
	clock    clock.WithTickerAndDelayedExecution
	log      zerolog.Logger

	desired *desired
	actual  *actual
	pending *pending
	locks   deviceLocks

	volumes *touched[UniqueName] // for the reconciler
	touches *touched[types.UID]  // pods, for the populator
	open    map[UniqueName]bool  // the reconciler's own: volumes to look at again though nothing touches them
	turn    bool                 // the reconciler's own: an operation waits for its turn

	changed   *bell         // rings at every change of either state
	inUse     *bell         // rings when what volumesInUse should say may have changed
	waits     *bells        // rings for the wait of a pod
	reconcile chan struct{} // wakes the reconciler
	populate  chan struct{} // wakes the populator
	ops       sync.WaitGroup

	mu        sync.Mutex
	progress  map[types.UID]progress // guarded by mu: of the populator with pods that were asked for or are entered
	read      bool                   // guarded by mu: what is on disk was read
	populated bool                   // guarded by mu: a pass that began after the pods were ready has ended
	owed      []UniqueName           // guarded by mu: reconstructed volumes whose attachment is not confirmed
	synced    bool                   // guarded by mu: nothing is owed any more
	failed    []onDisk               // guarded by mu: what could not be reconstructed
	inherited []UniqueName           // guarded by mu: listed in use by the life before, and not met yet
	stuck     map[string]string      // guarded by mu: unmounts that cannot start, with the reason logged
}

// listener hears of changes of the desired and the actual state, once they can be seen.
type listener interface {
	touch(...UniqueName) // something of these volumes
	touchPod(types.UID)  // something that the populator has to look at
	stir(types.UID)      // something for which the pod's wait may wait
	useMoved()           // what volumesInUse should say
}

// New returns a Manager that knows nothing yet.
func New(c Config) *Manager {
	m := &Manager{
		host: c.Host, plugins: c.Plugins, pods: c.Pods, recorder: c.Recorder, attached: c.Attached,
		clock: c.Host.Lab.Clock, log: c.Host.Log,
		volumes: newTouched[UniqueName](), touches: newTouched[types.UID](), open: map[UniqueName]bool{},
		changed: newBell(), inUse: newBell(), waits: newBells(), reconcile: make(chan struct{}, 1), populate: make(chan struct{}, 1),
		progress: map[types.UID]progress{}, stuck: map[string]string{},
	}
	m.desired = newDesired(m)
	m.actual = newActual(m)
	m.pending = newPending(m.clock, m.ended)
	return m
}

// Run works until ctx ends and every operation has ended.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { m.runReconciler(ctx) })
	wg.Go(func() { m.runPopulator(ctx) })
	wg.Wait()
	m.ops.Wait()
	m.logMark(m.locks.releaseAll())
}

// touch tells everybody that something of these volumes changed.
func (m *Manager) touch(names ...UniqueName) {
	m.volumes.add(names...)
	wake(m.reconcile)
	m.changed.ring()
}

// stir tells a pod's wait that something changed for it.
func (m *Manager) stir(uid types.UID) { m.waits.ring(uid) }

// touchPod lets the populator look at a pod.
func (m *Manager) touchPod(uid types.UID) {
	m.touches.add(uid)
	wake(m.populate)
	m.stir(uid)
	m.changed.ring()
}

// useMoved tells who reports volumesInUse that the list may be another one.
func (m *Manager) useMoved() { m.inUse.ring() }

// ended tells everybody that an operation on a volume has ended, which may have worked for a pod.
func (m *Manager) ended(name UniqueName, pod types.UID) {
	if pod != "" {
		m.touchPod(pod)
	}
	m.touch(name)
}

// notify lets everybody look at everything.
func (m *Manager) notify() {
	m.volumes.everything()
	m.touches.everything()
	wake(m.reconcile)
	wake(m.populate)
	m.waits.ringAll()
	m.inUse.ring()
	m.changed.ring()
}

// PodsChanged is to be called after any change that Pods shows, and of what the drivers say of themselves.
func (m *Manager) PodsChanged() {
	m.touches.everything()
	wake(m.populate)
	m.changed.ring()
}

// PodChanged is to be called after a change that Pods shows of one pod.
func (m *Manager) PodChanged(uid types.UID) { m.touchPod(uid) }

// NodeChanged is to be called when the cached Node has changed.
func (m *Manager) NodeChanged() { wake(m.reconcile) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ready tells whether volumes may be taken down: the disk was read, all pods are
// known, and the attachments of what was found on disk are confirmed.
func (m *Manager) ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read && m.populated && len(m.owed) == 0
}

// Ready tells whether volumes may be taken down: all pods are known, and what was
// found on disk is confirmed.
func (m *Manager) Ready() bool { return m.ready() }

// Synced tells whether volumesInUse may be rewritten. Before that the list of the
// life before stands, and keeps volumes from being detached.
func (m *Manager) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// Changed returns a channel that closes at the next change of either state.
func (m *Manager) Changed() <-chan struct{} { return m.changed.next() }

// InUseChanged returns a channel that closes when InUse or Synced may next answer
// otherwise, or a volume is wanted that was not.
func (m *Manager) InUseChanged() <-chan struct{} { return m.inUse.next() }

// IsTimeout tells whether a wait ended because its time was over, and for no other reason.
func IsTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
