package web

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// The time within which changes are published together: while a page shows them, and,
// of the journal alone, while nobody looks.
const (
	merge     = 50 * time.Millisecond
	unwatched = 5 * time.Second
)

// observed is a change of one API object.
type observed struct {
	obj  runtime.Object
	gone bool
}

// follow feeds the model from the API and the timeline, and publishes what it makes
// of them. One goroutine, this one, owns the model; informers hand over through a
// channel, so they wait for the model and never the other way round.
func (s *Server) follow(ctx context.Context, m *model) error {
	ctx, stop := context.WithCancel(ctx)
	changes := make(chan observed, 256)
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(slimObject))
	core, storage := factory.Core().V1(), factory.Storage().V1()
	var handlers []cache.ResourceEventHandlerRegistration
	for _, inf := range []cache.SharedIndexInformer{
		storage.StorageClasses().Informer(), core.Nodes().Informer(), storage.CSINodes().Informer(), core.PersistentVolumes().Informer(),
		core.PersistentVolumeClaims().Informer(), core.Pods().Informer(), storage.VolumeAttachments().Informer(), core.Events().Informer(),
	} {
		send := func(obj any, gone bool) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if o, ok := obj.(runtime.Object); ok {
				select {
				case changes <- observed{o, gone}:
				case <-ctx.Done():
				}
			}
		}
		h, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { send(o, false) },
			UpdateFunc: func(_, o any) { send(o, false) },
			DeleteFunc: func(o any) { send(o, true) },
		})
		if err != nil {
			stop()
			return fmt.Errorf("follow the cluster: %w", err)
		}
		handlers = append(handlers, h)
	}
	var wg sync.WaitGroup
	defer func() { stop(); factory.Shutdown(); wg.Wait() }()
	factory.StartWithContext(ctx)
	synced := make(chan struct{})
	wg.Go(func() {
		for _, h := range handlers {
			if !cache.WaitForCacheSync(ctx.Done(), h.HasSynced) {
				return
			}
		}
		close(synced)
	})
	return s.loop(ctx, m, changes, synced)
}

// loop applies changes as they come and publishes them: to pages that show them at
// once when the last time is long ago, else merged; and to whoever begins to look.
// Before everything is known once, it publishes nothing. While nobody looks objects are
// not derived: of a node with many volumes that costs more than all that the node does.
func (s *Server) loop(ctx context.Context, m *model, changes <-chan observed, synced chan struct{}) error {
	clock := s.cfg.Lab.Clock
	spans, sub := s.cfg.Lab.Timeline.Subscribe(4096)
	defer func() { sub.Close() }()
	m.spans(spans)

	timer := clock.NewTimer(time.Hour)
	timer.Stop()
	var last time.Time
	ready, armed := false, false
	publish := func(objects bool) {
		timer.Stop()
		armed, last = false, clock.Now()
		if objects {
			m.publish()
		} else {
			m.publishJournal()
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-changes:
			m.object(c)
		case sp, ok := <-sub.C:
			if !ok { // we were too slow; what we have seen does no harm a second time
				spans, sub = s.cfg.Lab.Timeline.Subscribe(4096)
				m.spans(spans)
				break
			}
			m.span(sp)
		case <-synced:
			// Every handler has been called; what they sent may still lie in the channel.
			for len(changes) > 0 {
				m.object(<-changes)
			}
			synced, ready = nil, true
			m.ready()
			m.publishJournal()
			close(s.synced)
		case <-timer.C():
			publish(s.hub.watched())
		case told := <-s.looks:
			if ready && m.dirty() {
				publish(true)
			}
			close(told)
		}
		switch {
		case !ready || armed:
		case m.dirty() && s.hub.watched():
			armed = true
			timer.Reset(max(0, merge-clock.Since(last)))
		case m.log.pending():
			armed = true
			timer.Reset(unwatched)
		}
	}
}

// slimObject drops what the page never shows and an informer would keep.
func slimObject(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
