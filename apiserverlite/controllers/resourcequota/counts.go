package resourcequota

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// follower keeps the metadata of all objects of a kind that some quota counts. It is started when the first quota
// asks, and ends with the controller or with the kind.
type follower struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	ended    chan struct{}
}

func (f *follower) stop() {
	f.cancel()
	<-f.ended
}

// otherKind is what a quota counts that has no informer among the shared ones.
func otherKind(name corev1.ResourceName) (schema.GroupResource, bool) {
	switch name {
	case corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers:
		return corev1.Resource(string(name)), true
	}
	rest, ok := strings.CutPrefix(string(name), "count/")
	gr := schema.ParseGroupResource(rest)
	return gr, ok && gr != pods && gr != claims && gr != services
}

// count tells how many objects of a kind a namespace has: from the follower's cache, or by a list until that is filled.
func (c *Controller) count(ctx context.Context, gr schema.GroupResource, namespace string) (int64, error) {
	if c.env.Metadata == nil {
		return 0, nil
	}
	if c.redefined.Swap(false) {
		for known, f := range c.followers {
			if _, served, err := c.resolve(known); err == nil && !served {
				f.stop()
				delete(c.followers, known)
			}
		}
	}
	f := c.followers[gr]
	if f != nil && f.informer.HasSynced() {
		objs, err := f.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		return int64(len(objs)), err
	}
	gvr, served, err := c.resolve(gr)
	if err != nil {
		return 0, err
	}
	if c.followers[definitions] == nil {
		if d, ok, err := c.resolve(definitions); err == nil && ok {
			c.follow(ctx, d)
		}
	}
	if !served {
		return 0, nil // of a kind that is not served there is none; its definition would tell
	}
	if f == nil {
		c.follow(ctx, gvr)
	}
	items, err := c.env.Metadata.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", gr, err)
	}
	return int64(len(items.Items)), nil
}

// resolve finds the version of a resource to ask for.
func (c *Controller) resolve(gr schema.GroupResource) (schema.GroupVersionResource, bool, error) {
	lists, err := c.env.Client.Discovery().ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return schema.GroupVersionResource{}, false, fmt.Errorf("discover resources: %w", err)
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil || gv.Group != gr.Group {
			continue
		}
		for _, r := range l.APIResources {
			if r.Name == gr.Resource {
				return gv.WithResource(r.Name), true, nil
			}
		}
	}
	return schema.GroupVersionResource{}, false, nil
}

// follow starts a follower. Whatever comes or goes has its namespace's quotas reckoned anew.
func (c *Controller) follow(ctx context.Context, gvr schema.GroupVersionResource) {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{cancel: cancel, ended: make(chan struct{})}
	f.informer = metadatainformer.NewFilteredMetadataInformer(c.env.Metadata, gvr, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	_ = f.informer.SetTransform(slim) // fails only for an informer that runs
	see := func(o any) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		m, ok := o.(*metav1.PartialObjectMetadata)
		switch {
		case gvr.GroupResource() == definitions:
			c.redefined.Store(true)
			c.changed(metav1.NamespaceAll)
		case ok:
			c.changed(m.Namespace)
		}
	}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: see, DeleteFunc: see}
	if gvr.GroupResource() == definitions {
		handlers.UpdateFunc = func(_, o any) { see(o) }
	}
	_, _ = f.informer.AddEventHandler(handlers) // likewise
	go func() {
		defer close(f.ended)
		f.informer.RunWithContext(ctx)
	}()
	c.followers[gvr.GroupResource()] = f
}

// slim keeps of an object where it is.
func slim(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	}
	return o, nil
}

// changed has the quotas of a namespace, or of all, reckoned anew.
func (c *Controller) changed(namespace string) {
	list, err := c.quotas.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, q := range list {
		c.add(q)
	}
}
