// Package garbagecollector deletes objects whose owners are gone, and carries out the
// propagation policies of a deletion: background, foreground and orphan.
//
// It keeps a graph of all objects by UID, fed by every resource that discovery lists:
// from the caches that the controllers share, or by metadata watches of its own. An
// owner that no watch has shown is a virtual node until a live read tells whether it
// exists.
//
// Promises. An object is deleted only after a live read of each of its owners found
// it absent, or of another UID; an owner whose kind is unknown is not taken for absent.
// Every deletion carries the UID, every change of owner references the
// resourceVersion, that was looked at. An owner in another namespace counts as absent;
// a cluster-scoped object that names a namespaced owner is never collected.
package garbagecollector

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "garbagecollector"

const workers = 4

var (
	pointOrphaned   = lab.Point{Component: "controllers", Name: "after one dependent is orphaned, before the next write"}
	pointForeground = lab.Point{Component: "controllers", Name: "after the last blocking dependent went, before the owner's finalizer does"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointOrphaned, pointForeground} }

// Controller collects. Make it with New.
type Controller struct {
	env    control.Env
	meta   metadata.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	events record.EventRecorder

	deletes control.Queue[types.UID]
	orphans control.Queue[types.UID]

	mu       sync.Mutex
	graph    graph                 // guarded by mu
	known    []served              // guarded by mu, never changed in place: what there was at the last discovery
	monitors map[resource]monitor  // owned by the goroutine of watch
	typed    map[reflect.Type]bool // of objects that the shared informers keep; set before watch starts
}

// New makes the controller. It asks for no shared informer: what is there when it runs it uses.
func New(env control.Env) *Controller {
	env = env.For(Name)
	return &Controller{
		env:      env,
		meta:     env.Metadata,
		mapper:   restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(env.Client.Discovery())),
		events:   env.Recorder("garbage-collector-controller"),
		deletes:  control.NewQueue[types.UID](env),
		orphans:  control.NewQueue[types.UID](env),
		graph:    graph{},
		monitors: map[resource]monitor{},
	}
}

// Run collects until ctx ends. Without a metadata client it only waits.
func (c *Controller) Run(ctx context.Context) {
	if c.meta == nil {
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	c.typed = c.env.Informers.WaitForCacheSyncWithContext(ctx).Synced
	ready := make(chan struct{})
	wg.Go(func() { c.watch(ctx, ready) })
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	wg.Go(func() { control.Work(ctx, c.env, workers, c.deletes, c.attemptToDelete) })
	wg.Go(func() { control.Work(ctx, c.env, 1, c.orphans, c.attemptToOrphan) })
}
