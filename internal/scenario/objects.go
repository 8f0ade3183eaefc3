package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// objects reaches the API's objects by the names that people use for their kinds.
type objects struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newObjects(cfg *rest.Config) (*objects, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(disco)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	return &objects{client: client, mapper: restmapper.NewShortcutExpander(mapper, cached, nil)}, nil
}

// ref names one object.
type ref struct {
	gvr        schema.GroupVersionResource
	namespaced bool
	namespace  string
	name       string
}

func (r ref) String() string { return r.gvr.Resource + "/" + r.name }

// find understands kind/name and kind/namespace/name.
func (o *objects) find(s string) (ref, error) {
	f := strings.Split(s, "/")
	if len(f) < 2 || len(f) > 3 {
		return ref{}, fmt.Errorf("%q is not KIND/NAME or KIND/NAMESPACE/NAME", s)
	}
	gvr, err := o.mapper.ResourceFor(schema.GroupVersionResource{Resource: f[0]})
	if err != nil {
		return ref{}, fmt.Errorf("kind %q: %w", f[0], err)
	}
	gvk, err := o.mapper.KindFor(gvr)
	if err != nil {
		return ref{}, err
	}
	m, err := o.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return ref{}, err
	}
	r := ref{gvr: gvr, namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace, name: f[len(f)-1]}
	if r.namespaced {
		r.namespace = metav1.NamespaceDefault
		if len(f) == 3 {
			r.namespace = f[1]
		}
	}
	return r, nil
}

func (o *objects) in(r ref) dynamic.ResourceInterface {
	if r.namespaced {
		return o.client.Resource(r.gvr).Namespace(r.namespace)
	}
	return o.client.Resource(r.gvr)
}

// get gives the object, or nil where there is none.
func (o *objects) get(ctx context.Context, r ref) (*unstructured.Unstructured, error) {
	obj, err := o.in(r).Get(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// until waits until done says so of the object; nil stands for its absence. The error
// names what was seen last.
func (o *objects) until(ctx context.Context, r ref, done func(*unstructured.Unstructured) error) error {
	var last error
	for {
		list, err := o.in(r).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + r.name})
		if err != nil {
			return errors.Join(last, err)
		}
		var now *unstructured.Unstructured
		if len(list.Items) > 0 {
			now = &list.Items[0]
		}
		if last = done(now); last == nil {
			return nil
		}
		w, err := o.in(r).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + r.name, ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return errors.Join(last, err)
		}
		for e := range w.ResultChan() {
			obj, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Error {
				break // the watch is too old: list again
			}
			if e.Type == watch.Deleted {
				obj = nil
			}
			if last = done(obj); last == nil {
				break
			}
		}
		w.Stop()
		if last == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

const fieldManager = "scenario"

// apply creates or changes the objects of a manifest.
func (o *objects) apply(ctx context.Context, manifest string) error {
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := d.Decode(obj); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("parse manifest: %w", err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		gvk := obj.GroupVersionKind()
		m, err := o.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return err
		}
		r := ref{gvr: m.Resource, namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace, name: obj.GetName(), namespace: obj.GetNamespace()}
		if r.namespaced && r.namespace == "" {
			r.namespace = metav1.NamespaceDefault
		}
		if _, err := o.in(r).Apply(ctx, r.name, obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("apply %s: %w", r, err)
		}
	}
}
