package nodesim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/pluginmanager"
	"drydock.dev/drydock/nodesim/stats"
	"drydock.dev/drydock/nodesim/volumemanager"
	"drydock.dev/drydock/nodesim/volumeplugin"
	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// life is everything that ends with a kubelet's process.
type life struct {
	*Node
	ctx      context.Context // the life's own, for goroutines that informers start
	clock    clock.WithTickerAndDelayedExecution
	log      zerolog.Logger
	host     *volumeplugin.Host
	csi      *csi.Plugin
	volumes  *volumemanager.Manager
	plugins  *pluginmanager.Manager
	known    *pluginmanager.CSI // what becomes of drivers that register
	nodeInfo *pluginmanager.NodeInfo
	pods     *podTable
	ips      *addresses
	events   record.EventBroadcaster
	recorder record.EventRecorder
	own      *ownNode
	bootID   string
	began    time.Time

	statsMu sync.Mutex            // held while somebody counts
	stats   map[string]podNumbers // guarded by statsMu: by pod UID

	houseMu sync.Mutex
	swept   sweep // guarded by houseMu: the last one

	health health

	factories []informers.SharedInformerFactory
	drivers   cache.DoneChecker // the cache of CSIDrivers is complete
	podsKnown cache.DoneChecker
	house     chan struct{} // wakes housekeeping
	doubted   chan struct{} // wakes the status report: somebody has called the node silent, or the Node is another
	workers   sync.WaitGroup
}

func newLife(ctx context.Context, n *Node) (*life, error) {
	l := &life{Node: n, ctx: ctx, clock: n.c.Lab.Clock, log: n.c.Log, own: newOwnNode(), house: make(chan struct{}, 1), doubted: make(chan struct{}, 1), bootID: bootID(n.c.Boot), began: n.c.Lab.Clock.Now(), ips: newAddresses(n.c.Name)}
	l.pods = newPodTable()
	l.events = record.NewBroadcaster(record.WithContext(ctx))
	l.recorder = l.events.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: n.c.Name})

	drivers := informers.NewSharedInformerFactory(n.client, 0)
	csiDrivers := drivers.Storage().V1().CSIDrivers()
	l.drivers = csiDrivers.Informer().HasSyncedChecker()
	l.host = &volumeplugin.Host{
		Life: ctx, Node: n.c.Name, Layout: n.layout, Client: n.client, Mounter: n.c.Mounter, Simulated: n.c.Simulated, Lab: n.c.Lab,
		Component: n.c.Component, Log: n.c.Log, CSIDrivers: csiDrivers.Lister(), NodeLabels: l.own.labels, Memory: nodeMemory, SELinux: n.c.selinux(), Operations: stats.NewOperations(), Within: n.c.Within,
		CSIDriversSynced: func(ctx context.Context) error { return waitDone(ctx, l.drivers, "the cache of CSIDrivers") },
	}
	l.csi = csi.New(l.host)
	l.volumes = volumemanager.New(volumemanager.Config{
		Host: l.host, Plugins: l.registry(), Pods: l.pods, Recorder: l.recorder, Attached: l.own.attached,
	})
	l.nodeInfo = &pluginmanager.NodeInfo{Client: n.client, Name: n.c.Name, Retry: l.retryPatch}
	handler := &pluginmanager.CSI{Drivers: l.csi, Node: l.nodeInfo, Component: n.c.Component, Log: n.c.Log}
	l.known, l.csi.Refresh = handler, handler.Refresh
	l.plugins = pluginmanager.New(pluginmanager.Config{
		Dir: n.layout.Registry(), Handlers: map[string]pluginmanager.Handler{"CSIPlugin": &tap{Handler: handler, life: l, proxies: map[string]func(){}}},
		Lab: n.c.Lab, Component: n.c.Component, Log: n.c.Log,
	})
	_, err := csiDrivers.Informer().AddEventHandler(handlers(func(*storagev1.CSIDriver) { l.driversChanged() }, func(*storagev1.CSIDriver) { l.driversChanged() }))
	if err != nil {
		return nil, err
	}
	l.factories = append(l.factories, drivers)
	return l, l.watch()
}

// driversChanged: how drivers are to be treated, and so what pods want of them.
func (l *life) driversChanged() {
	l.csi.DriversChanged()
	l.volumes.PodsChanged()
}

// watch sets up the informers of the own Node and of the pods assigned to it.
func (l *life) watch() error {
	nodes := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", l.c.Name).String()
	}))
	_, err1 := nodes.Core().V1().Nodes().Informer().AddEventHandler(handlers(func(o *v1.Node) {
		if o.Name == l.c.Name {
			anew := l.own.set(o)
			l.volumes.NodeChanged()
			if anew || l.own.silent() {
				wake(l.doubted)
			}
		}
	}, func(*v1.Node) {}))
	pods := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", l.c.Name).String()
	}))
	reg, err2 := pods.Core().V1().Pods().Informer().AddEventHandler(handlers(func(p *v1.Pod) {
		if p.Spec.NodeName == l.c.Name {
			l.podSeen(p)
		}
	}, l.podGone))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	l.podsKnown = reg.HasSyncedChecker()
	l.factories = append(l.factories, nodes, pods)
	return nil
}

// handlers turns two typed functions into an event handler.
func handlers[T any](seen func(*T), gone func(*T)) cache.ResourceEventHandlerFuncs {
	as := func(f func(*T)) func(any) {
		return func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if t, ok := o.(*T); ok {
				f(t)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: as(seen), UpdateFunc: func(_, o any) { as(seen)(o) }, DeleteFunc: as(gone)}
}

func waitDone(ctx context.Context, c cache.DoneChecker, what string) error {
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
	}
}

// run starts everything, waits for ctx, and then for everything.
func (l *life) run(ctx context.Context) {
	l.events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: l.client.CoreV1().Events("")})
	var wg sync.WaitGroup
	for _, f := range []func(context.Context){
		l.register, l.volumes.Run, l.keepHouse, l.awaitPods, l.csi.KeepCounts, l.keepHealth,
		func(ctx context.Context) {
			if err := l.plugins.Run(ctx); err != nil {
				l.log.Error().Err(err).Msg("plugin manager ended")
			}
		},
	} {
		wg.Go(func() { f(ctx) })
	}
	// Pods are looked at last, when everything that serves them is there.
	for _, f := range l.factories {
		f.StartWithContext(ctx)
	}
	<-ctx.Done()
	wg.Wait()
	for _, f := range l.factories {
		f.Shutdown()
	}
	l.workers.Wait()
	l.csi.Close()
	l.events.Shutdown()
}

// awaitPods opens the pods' part of the gate once the informer has told of every pod.
func (l *life) awaitPods(ctx context.Context) {
	if waitDone(ctx, l.podsKnown, "pods") == nil {
		l.pods.markReady()
		l.volumes.PodsChanged()
		wake(l.house)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits d of the lab's time, or less if ctx ends or wake comes; it tells whether ctx goes on.
func (l *life) sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	t := l.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C():
	}
	return ctx.Err() == nil
}

// jittered adds up to half.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/2) }

// together shortens a pause by less than a beat, so that those of many pods end at the same
// moments: waking the process up costs more than what most of them then find to do.
func together(now time.Time, d time.Duration) time.Duration {
	return d - time.Duration(now.Add(d).UnixNano())%resyncBeat
}

// retryPatch tries a write of Node or CSINode four times.
func (l *life) retryPatch(ctx context.Context, try func() error) error {
	var err error
	pause := 10 * time.Millisecond
	for i := range 4 {
		if i > 0 {
			if !l.sleep(ctx, nil, pause+rand.N(pause/10)) {
				return err
			}
			pause *= 5
		}
		if err = try(); err == nil {
			return nil
		}
	}
	return err
}

// insist tries until it succeeds or ctx ends, with a growing pause; it tells which.
func (l *life) insist(ctx context.Context, what string, try func() error) bool {
	const limit = 7 * time.Second
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(pause*2, limit) {
		err := try()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		l.log.Warn().Err(err).Msg(what)
		l.sleep(ctx, nil, pause)
	}
	return false
}

// point reaches a kill point of this package.
func (l *life) point(p lab.Point) { l.c.Component.Point(p, "") }

// ownNode is the cached own Node.
type ownNode struct {
	mu      sync.RWMutex
	node    *v1.Node                          // guarded by mu
	volumes map[volumemanager.UniqueName]bool // guarded by mu: volumesAttached of node; never changed
}

func newOwnNode() *ownNode { return &ownNode{} }

// set takes in the Node, and tells whether it is another than before, of the same name.
func (o *ownNode) set(n *v1.Node) (anew bool) {
	volumes := make(map[volumemanager.UniqueName]bool, len(n.Status.VolumesAttached))
	for _, a := range n.Status.VolumesAttached {
		volumes[a.Name] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	anew = o.node != nil && o.node.UID != n.UID
	o.node, o.volumes = n, volumes
	return anew
}

func (o *ownNode) get() *v1.Node {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.node
}

func (o *ownNode) labels() map[string]string {
	if n := o.get(); n != nil {
		return n.Labels
	}
	return nil
}

func (o *ownNode) attached() (map[volumemanager.UniqueName]bool, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.volumes, o.node != nil
}

// silent tells whether the node lifecycle controller has given the kubelet up.
func (o *ownNode) silent() bool {
	n := o.get()
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown
	})
}

// uid of the Node object, empty before it is known.
func (o *ownNode) uid() types.UID {
	if n := o.get(); n != nil {
		return n.UID
	}
	return ""
}
