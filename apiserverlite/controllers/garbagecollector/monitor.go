package garbagecollector

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// retryDiscovery is how long a failed discovery waits.
const retryDiscovery = 5 * time.Second

// crds is the resource whose changes change what resources there are.
var crds = resource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// served is a resource and the kind of its objects, which their metadata does not tell.
type served struct {
	resource resource
	kind     schema.GroupVersionKind
}

// monitor watches one resource.
type monitor struct {
	cancel context.CancelFunc
	ended  chan struct{}
	synced cache.InformerSynced
}

// watch keeps a monitor for each resource until ctx ends. It closes ready when all of
// the first ones know their objects.
func (c *Controller) watch(ctx context.Context, ready chan<- struct{}) {
	defer func() {
		for _, m := range c.monitors {
			m.cancel()
		}
		for _, m := range c.monitors {
			<-m.ended
		}
	}()
	changed := make(chan struct{}, 1)
	first := true
	for {
		resources, err := c.resources()
		var retry <-chan time.Time
		if err != nil {
			c.env.Log.Warn().Err(err).Msg("discover resources")
			t := c.env.Clock().NewTimer(retryDiscovery)
			defer t.Stop()
			retry = t.C()
		}
		if len(resources) > 0 {
			c.mu.Lock()
			c.known = resources
			c.mu.Unlock()
			c.follow(ctx, resources, err == nil, changed)
			for _, m := range c.monitors {
				cache.WaitForCacheSync(ctx.Done(), m.synced)
			}
			if first && ctx.Err() == nil {
				first = false
				close(ready)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			c.mapper.Reset()
		case <-retry:
		}
	}
}

// follow starts monitors of new resources and, when the list is complete, stops those of vanished ones.
func (c *Controller) follow(ctx context.Context, resources []served, complete bool, changed chan<- struct{}) {
	for res, m := range c.monitors {
		if complete && !slices.ContainsFunc(resources, func(s served) bool { return s.resource == res }) {
			m.cancel()
			<-m.ended
			delete(c.monitors, res)
		}
	}
	for _, s := range resources {
		if _, ok := c.monitors[s.resource]; !ok {
			c.monitors[s.resource] = c.monitor(ctx, s, changed)
		}
	}
}

// monitor starts to watch one resource: through the other controllers' cache of it where
// there is one, as upstream's factories do, else by its metadata alone.
func (c *Controller) monitor(ctx context.Context, s served, changed chan<- struct{}) monitor {
	ctx, cancel := context.WithCancel(ctx)
	informer := c.shared(s)
	own := informer == nil
	if own {
		informer = metadatainformer.NewFilteredMetadataInformer(c.meta, s.resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
		_ = informer.SetTransform(slim)
	}
	reg, err := informer.AddEventHandler(c.handler(s, changed))
	m := monitor{cancel: cancel, ended: make(chan struct{}), synced: func() bool { return true }}
	if err == nil {
		m.synced = reg.HasSynced
	}
	go func() {
		defer close(m.ended)
		if own {
			informer.RunWithContext(ctx)
			return
		}
		<-ctx.Done()
		if err == nil {
			_ = informer.RemoveEventHandler(reg)
		}
	}()
	return m
}

// shared is the informer that another controller has asked for, or nil.
func (c *Controller) shared(s served) cache.SharedIndexInformer {
	typed, err := scheme.Scheme.New(s.kind)
	if err != nil || !c.typed[reflect.TypeOf(typed)] {
		return nil
	}
	i, err := c.env.Informers.ForResource(s.resource)
	if err != nil {
		return nil
	}
	return i.Informer()
}

// handler feeds the graph with the objects of one resource.
func (c *Controller) handler(s served, changed chan<- struct{}) cache.ResourceEventHandler {
	see := func(o any) {
		if m, ok := o.(metav1.Object); ok {
			c.seen(s, m)
		}
		if s.resource == crds {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, o any) { see(o) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if m, ok := o.(metav1.Object); ok {
				c.gone(m.GetUID())
			}
		},
	}
}

// slim keeps of an object what the graph needs.
func slim(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	}
	return o, nil
}

// resources returns what can be watched and deleted, without events. With an error it
// returns those of the groups that answered.
func (c *Controller) resources() ([]served, error) {
	lists, err := c.env.Client.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	var all []served
	for _, l := range lists {
		gv, perr := schema.ParseGroupVersion(l.GroupVersion)
		if perr != nil {
			err = errors.Join(err, perr)
			continue
		}
		for _, r := range l.APIResources {
			if r.Kind == "Event" {
				continue
			}
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				all = append(all, served{gv.WithResource(r.Name), gv.WithKind(r.Kind)})
			}
		}
	}
	return all, err
}
