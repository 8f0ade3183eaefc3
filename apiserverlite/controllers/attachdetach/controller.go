// Package attachdetach attaches the volumes of pods to the pods' nodes and detaches
// them when nothing uses them any more, as the attach/detach controller of
// kube-controller-manager does, for CSI volumes.
//
// It keeps two states: what is desired (which node should have which volume, for
// which pods) and what is actual (which volume is attached where, how sure that is,
// and whether the node still uses it). A reconcile pass compares them, detaching
// before attaching; it runs when one of the states changed or a timer is due.
//
// Promises. A volume is detached only when its node no longer lists it in
// volumesInUse, except by force: six minutes after the wish on a node that is not
// ready, or on a node tainted out-of-service. Before a VolumeAttachment is deleted,
// the volume is gone from node.status.volumesAttached, so that a kubelet cannot
// start to use what is about to go. A volume for one node at a time is not attached
// while it is certainly attached to another. At most one operation runs for a volume
// (a volume that several nodes may share: for a volume on a node).
//
// All of it is rebuilt at the start from node status, VolumeAttachments and pods.
package attachdetach

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "attachdetach"

const (
	// unmountGrace is how long an unready node may keep a volume that nobody wants there.
	unmountGrace = 6 * time.Minute
	// attacherWait is how long an operation waits for the external attacher.
	attacherWait = 2 * time.Minute
	// verifyPeriod is how soon a lost attachment is noticed.
	verifyPeriod = time.Minute
)

var (
	pointAttachmentMade = lab.Point{Component: "controllers", Name: "after the VolumeAttachment is created, before it is waited for"}
	pointAttached       = lab.Point{Component: "controllers", Name: "after the volume is attached, before the node's volumesAttached shows it"}
	pointUnreported     = lab.Point{Component: "controllers", Name: "after volumesAttached lost the volume, before its VolumeAttachment is deleted"}
	pointDetaching      = lab.Point{Component: "controllers", Name: "after the VolumeAttachment is deleted, before it is gone"}
)

// Points lists the kill points of this package.
func Points() []lab.Point {
	return []lab.Point{pointAttachmentMade, pointAttached, pointUnreported, pointDetaching}
}

// Options of New. The zero value is upstream's default.
type Options struct {
	// NoForcedDetach switches the detach after six minutes off.
	NoForcedDetach bool
}

// Controller attaches and detaches. Make it with New.
type Controller struct {
	env     control.Env
	opts    Options
	client  kubernetes.Interface
	events  record.EventRecorder
	pods    cache.Indexer
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	nodes   corelisters.NodeLister
	drivers storagelisters.CSIDriverLister
	vas     storagelisters.VolumeAttachmentLister

	wake chan struct{}   // of one; a token means that a pass is due
	wg   sync.WaitGroup  // operations and reports
	ctx  context.Context // of Run; set before the first of them starts

	mu      sync.Mutex
	started bool // guarded by mu: the actual state has been rebuilt
	desired desired
	actual  actual
	pending pending
	reports map[NodeName]*report
	waits   map[string]chan struct{} // VolumeAttachment name -> of one; a token means that it changed
	verify  time.Time                // when mismatched attachments are looked at; zero when there is no reason
}

// NodeName names a node.
type NodeName string

// Volume is a volume's unique name.
type Volume = corev1.UniqueVolumeName

// New registers the controller's handlers.
func New(env control.Env, opts Options) *Controller {
	env = env.For(Name)
	core, storage := env.Informers.Core().V1(), env.Informers.Storage().V1()
	c := &Controller{
		env:     env,
		opts:    opts,
		client:  env.Client,
		events:  env.Recorder("attachdetach-controller"),
		pods:    core.Pods().Informer().GetIndexer(),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		nodes:   core.Nodes().Lister(),
		drivers: storage.CSIDrivers().Lister(),
		vas:     storage.VolumeAttachments().Lister(),
		wake:    make(chan struct{}, 1),
		desired: newDesired(),
		actual:  newActual(),
		pending: newPending(env.Clock()),
		reports: map[NodeName]*report{},
		waits:   map[string]chan struct{}{},
	}
	control.IndexPods(core.Pods().Informer())
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: c.podSeen, Update: func(_, pod *corev1.Pod) { c.podSeen(pod) }, Delete: c.podGone,
	})
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Add: func(claim *corev1.PersistentVolumeClaim) { c.claimSeen(nil, claim) }, Update: c.claimSeen,
	})
	control.Register(core.PersistentVolumes().Informer(), control.On[*corev1.PersistentVolume]{
		Add: func(v *corev1.PersistentVolume) { c.volumeSeen(nil, v) }, Update: c.volumeSeen,
	})
	control.Register(core.Nodes().Informer(), control.On[*corev1.Node]{
		Add: c.nodeCame, Delete: c.nodeGone,
		Update: func(old, n *corev1.Node) {
			if old.UID != n.UID {
				c.nodeCame(n)
				return
			}
			c.nodeSeen(n)
		},
	})
	control.Register(storage.CSIDrivers().Informer(), control.On[*storagev1.CSIDriver]{Any: c.driverSeen})
	control.Register(storage.VolumeAttachments().Informer(), control.On[*storagev1.VolumeAttachment]{Any: c.attachmentSeen})
	return c
}

// Run attaches and detaches until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	defer c.wg.Wait()
	c.ctx = ctx
	c.rebuild()
	var due <-chan time.Time
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-due:
		}
		stop()
		due, stop = nil, func() {}
		if wait, ok := c.reconcile(ctx); ok {
			t := c.env.Clock().NewTimer(wait)
			due, stop = t.C(), func() { t.Stop() }
		}
	}
}

// poke asks for a pass.
func (c *Controller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// rebuild fills the states from the caches: what nodes report as attached is
// certain, what only a VolumeAttachment speaks of is not.
func (c *Controller) rebuild() {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes, _ := c.nodes.List(labels.Everything())
	for _, n := range nodes {
		for _, v := range n.Status.VolumesAttached {
			c.actual.attached(v.Name, NodeName(n.Name), nil)
		}
		c.actual.told(NodeName(n.Name), n.Status.VolumesInUse)
		c.desired.manage(n)
	}
	for _, o := range c.pods.List() {
		c.desire(o.(*corev1.Pod))
	}
	vas, _ := c.vas.List(labels.Everything())
	for _, va := range vas {
		c.adopt(va)
	}
	c.actual.learn(c.volumeByName())
	c.started = true
	c.poke()
}

// adopt takes a VolumeAttachment that no node reports as an attachment that may or may not be.
func (c *Controller) adopt(va *storagev1.VolumeAttachment) {
	if va.Spec.Source.PersistentVolumeName == nil {
		return // inline: not ours
	}
	v, err := c.volumes.Get(*va.Spec.Source.PersistentVolumeName)
	if err != nil || v.Spec.CSI == nil {
		return // nothing says which volume it is
	}
	name, node := UniqueName(v), NodeName(va.Spec.NodeName)
	if c.actual.get(name, node) == nil {
		c.actual.uncertain(name, node, v)
	}
}

// volumeByName indexes the known volumes by their unique names.
func (c *Controller) volumeByName() map[Volume]*corev1.PersistentVolume {
	list, _ := c.volumes.List(labels.Everything())
	m := make(map[Volume]*corev1.PersistentVolume, len(list))
	for _, v := range list {
		if v.Spec.CSI != nil {
			m[UniqueName(v)] = v
		}
	}
	return m
}

// UniqueName is the unique name of a CSI volume.
func UniqueName(v *corev1.PersistentVolume) Volume {
	return control.UniqueName(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle)
}

// shareable tells whether several nodes may have the volume at once. Of an unknown
// volume the attacher has to decide.
func shareable(v *corev1.PersistentVolume) bool {
	if v == nil || len(v.Spec.AccessModes) == 0 {
		return true
	}
	for _, m := range v.Spec.AccessModes {
		if m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany {
			return true
		}
	}
	return false
}
