package labobjects

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// watch starts an informer for each kind. What it returns tells what they know, once they know all.
func (c *Controller) watch(ctx context.Context) (look func() (stored, bool)) {
	faults := inform(ctx, c, &v1alpha1.Fault{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Client.Faults.List(ctx, o)
		}, c.Client.Faults.Watch)
	nodes := inform(ctx, c, &v1alpha1.NodeFault{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Client.NodeFaults.List(ctx, o)
		}, c.Client.NodeFaults.Watch)
	clocks := inform(ctx, c, &v1alpha1.Clock{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.Client.Clocks.List(ctx, o)
		}, c.Client.Clocks.Watch)
	all := []cache.SharedIndexInformer{faults, nodes, clocks}
	for _, i := range all {
		c.doing.Go(func() {
			select {
			case <-i.HasSyncedChecker().Done():
				c.nudge()
			case <-ctx.Done():
			}
		})
	}
	return func() (stored, bool) {
		for _, i := range all {
			if !i.HasSynced() {
				return stored{}, false
			}
		}
		return stored{faults: known[*v1alpha1.Fault](faults), nodes: known[*v1alpha1.NodeFault](nodes), clocks: known[*v1alpha1.Clock](clocks)}, true
	}
}

func inform(ctx context.Context, c *Controller, of runtime.Object, list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}, of, 0, cache.Indexers{})
	i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.nudge() },
		UpdateFunc: func(any, any) { c.nudge() },
		DeleteFunc: func(any) { c.nudge() },
	})
	c.doing.Go(func() { i.RunWithContext(ctx) })
	return i
}

func known[T any](i cache.SharedIndexInformer) (out []T) {
	for _, o := range i.GetStore().List() {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
