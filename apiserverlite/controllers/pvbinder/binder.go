// Package pvbinder binds PersistentVolumeClaims to PersistentVolumes, as the
// persistent volume controller of kube-controller-manager does.
//
// Promises. A volume is bound to at most one claim: the claim's UID goes into
// PV.spec.claimRef first, under the resourceVersion that was looked at, and the
// claim is written only after that. A volume is never released while its claim
// exists: before that the claim is looked for in the cache, in the informer and by
// a live read. Each write of a binding can be the last one of this process; the
// next one finds the rest out from the objects and goes on.
//
//	PV.spec.claimRef -> PV.status.phase=Bound -> PVC.spec.volumeName -> PVC.status
//
// Dynamic volumes are made by an external provisioner, which this package asks by
// annotations. In-tree plugins, their migration and the recycler do not exist here.
package pvbinder

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
	"k8s.io/utils/clock"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "pvbinder"

const (
	// resync is how often unfinished claims and volumes are looked at again without an event.
	resync = 15 * time.Second
	// Workers of each kind. Two claims never choose the same volume: see store.reserve.
	claimWorkers, volumeWorkers = 8, 4
)

// Controller binds. Make it with New.
type Controller struct {
	env     control.Env
	client  kubernetes.Interface
	events  record.EventRecorder
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	pods    cache.Indexer

	store       *store
	claimQueue  control.Queue[string] // namespace/name
	volumeQueue control.Queue[string] // name

	mu    sync.Mutex
	timer clock.Timer // guarded by mu: armed while something is unfinished
	done  bool        // guarded by mu: Run has ended
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core, storage := env.Informers.Core().V1(), env.Informers.Storage().V1()
	c := &Controller{
		env:         env,
		client:      env.Client,
		events:      env.Recorder("persistentvolume-controller"),
		claims:      core.PersistentVolumeClaims().Lister(),
		volumes:     core.PersistentVolumes().Lister(),
		classes:     storage.StorageClasses().Lister(),
		pods:        core.Pods().Informer().GetIndexer(),
		store:       newStore(),
		claimQueue:  control.NewQueue[string](env),
		volumeQueue: control.NewQueue[string](env),
	}
	control.IndexPods(core.Pods().Informer())
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Add:    c.claimSeen,
		Update: func(_, claim *corev1.PersistentVolumeClaim) { c.claimSeen(claim) },
		Delete: c.claimGone,
	})
	control.Register(core.PersistentVolumes().Informer(), control.On[*corev1.PersistentVolume]{
		Add:    c.volumeSeen,
		Update: func(_, volume *corev1.PersistentVolume) { c.volumeSeen(volume) },
		Delete: c.volumeGone,
	})
	control.Register(storage.StorageClasses().Informer(), control.On[*storagev1.StorageClass]{Any: c.classSeen})
	return c
}

// Run binds until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	// The handlers may still be on their way through what existed at the start, and a
	// claim must not be judged before its volume is known.
	volumes, _ := c.volumes.List(labels.Everything())
	for _, v := range volumes {
		c.store.putVolume(v)
	}
	claims, _ := c.claims.List(labels.Everything())
	for _, claim := range claims {
		c.store.putClaim(claim)
	}
	for _, v := range volumes {
		c.volumeQueue.Add(v.Name)
	}
	for _, claim := range claims {
		c.claimQueue.Add(claimKey(claim))
	}
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		control.Work(ctx, c.env, volumeWorkers, c.volumeQueue, c.syncVolumeKey)
	}()
	go func() {
		defer wg.Done()
		control.Work(ctx, c.env, claimWorkers, c.claimQueue, c.syncClaimKey)
	}()
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

// claimSeen runs in the informer's goroutine.
func (c *Controller) claimSeen(claim *corev1.PersistentVolumeClaim) {
	if c.store.putClaim(claim) {
		c.claimQueue.Add(claimKey(claim))
	}
}

func (c *Controller) claimGone(claim *corev1.PersistentVolumeClaim) {
	c.store.dropClaim(claim)
	if claim.Spec.VolumeName != "" {
		// Its volume is released by the volume's own sync.
		c.volumeQueue.Add(claim.Spec.VolumeName)
	}
	for _, name := range c.store.volumesOf(claimKey(claim)) {
		c.volumeQueue.Add(name) // claimed, and not yet told so
	}
}

func (c *Controller) volumeSeen(volume *corev1.PersistentVolume) {
	if !c.store.putVolume(volume) {
		return
	}
	c.volumeQueue.Add(volume.Name)
	c.wakeClaims(volume)
}

func (c *Controller) volumeGone(volume *corev1.PersistentVolume) {
	c.store.dropVolume(volume)
	if ref := volume.Spec.ClaimRef; ref != nil {
		c.claimQueue.Add(refKey(ref))
	}
}

// wakeClaims queues the claims that a new state of a volume can help.
func (c *Controller) wakeClaims(volume *corev1.PersistentVolume) {
	if ref := volume.Spec.ClaimRef; ref != nil {
		if claim := c.store.claim(refKey(ref)); claim != nil && claim.Status.Phase != corev1.ClaimBound {
			c.claimQueue.Add(refKey(ref))
		}
	}
	for _, claim := range c.store.pending() {
		switch {
		case claim.Spec.VolumeName == volume.Name:
		case claim.Spec.VolumeName == "" && volume.Spec.ClaimRef == nil && volume.Status.Phase == corev1.VolumeAvailable:
		default:
			continue
		}
		c.claimQueue.Add(claimKey(claim))
	}
}

// classSeen runs on every change of a class: it may be the one that claims wait for, or a new default.
func (c *Controller) classSeen(*storagev1.StorageClass) {
	for _, claim := range c.store.pending() {
		c.claimQueue.Add(claimKey(claim))
	}
}

// again makes sure that unfinished objects are looked at once more within the resync
// period. Volumes that only wait for their claim count as unfinished too.
func (c *Controller) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || c.timer != nil {
		return
	}
	c.timer = c.env.Clock().AfterFunc(resync, func() {
		c.mu.Lock()
		c.timer = nil
		done := c.done
		c.mu.Unlock()
		if done {
			return
		}
		for _, claim := range c.store.pending() {
			c.claimQueue.Add(claimKey(claim))
		}
		for _, name := range c.store.unsettled() {
			c.volumeQueue.Add(name)
		}
	})
}
