package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

// resource is a registry.Resource with what the server derives from it.
type resource struct {
	*registry.Resource
	listGVK schema.GroupVersionKind
	// Names of the encoded forms in an entry's cache. Two versions of one stored object have different ones.
	formJSON, formRaw, formCBOR, formPartialJSON, formPartialRaw string
	// main is the version whose objects are stored, for a custom resource; definition is the name of what made it.
	main       *resource
	definition string
	// ended is closed when the resource is no longer what is served: watches end. It is nil for built-in ones.
	ended    <-chan struct{}
	tracking *tracking
	// answer, if set, replaces the stored verbs: see question.
	answer func(*exchange, context.Context) (reply, error)
}

// internalKind is the kind that an invalid object is of in upstream's errors: events of the newer group are the core group's there.
func (r *resource) internalKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Storage.Group, Kind: r.GVK.Kind}
}

func (s *Server) add(r *registry.Resource) error {
	if r.New == nil || r.NewList == nil || r.Strategy == nil {
		return errors.New("New, NewList and Strategy are needed")
	}
	kinds, _, err := s.cfg.Scheme.ObjectKinds(r.NewList())
	if err != nil {
		return err
	}
	gv := r.GVR.GroupVersion().String()
	own := *r // the registry's is shared
	r = &own
	res := &resource{Resource: r, listGVK: kinds[0], formJSON: gv + " json", formRaw: gv + " raw", formCBOR: gv + " cbor", formPartialJSON: gv + " partial json", formPartialRaw: gv + " partial raw"}
	if r.Storage.Empty() {
		r.Storage = r.GR()
	}
	for _, k := range kinds {
		if k.GroupVersion() == r.GVR.GroupVersion() {
			res.listGVK = k
		}
	}
	s.resources = append(s.resources, res)
	s.byGVR[r.GVR] = res
	if r.ToStorage == nil {
		s.byStorage[r.Storage] = res
	}
	return nil
}

// view returns an entry's object in this resource's version. It is shared: do not change it.
func (r *resource) view(e *storage.Entry) (runtime.Object, error) {
	if r.FromStorage == nil {
		return e.Object, nil
	}
	o, err := r.FromStorage(e.Object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", e.Key, err)
	}
	if o != e.Object {
		o.GetObjectKind().SetGroupVersionKind(r.GVK)
	}
	return o, nil
}

// keep returns the object to store for an object of this resource's version.
func (s *Server) keep(r *resource, o runtime.Object) (runtime.Object, error) {
	if r.ToStorage == nil {
		o.GetObjectKind().SetGroupVersionKind(r.GVK)
		return o, nil
	}
	out, err := r.ToStorage(o)
	if err != nil {
		return nil, err
	}
	main, ok := s.byStorage[r.Storage]
	if r.main != nil {
		main, ok = r.main, true
	}
	if !ok {
		return nil, fmt.Errorf("no resource serves what is stored as %s", r.Storage)
	}
	out.GetObjectKind().SetGroupVersionKind(main.GVK)
	return out, nil
}

func (r *resource) key(namespace, name string) storage.Key {
	return storage.Key{Resource: r.Storage, Namespace: namespace, Name: name}
}

// reader is what admission sees of the store.
type reader struct{ s *Server }

func (r reader) Get(gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
	e, ok := r.s.store.Get(storage.Key{Resource: gr, Namespace: namespace, Name: name})
	if !ok {
		return nil, notFound(gr, name)
	}
	return e.Object, nil
}

func (r reader) List(gr schema.GroupResource, namespace string) []runtime.Object {
	var out []runtime.Object
	r.s.store.Snapshot(gr).Ascend(namespace, "", func(e *storage.Entry) bool {
		out = append(out, e.Object)
		return true
	})
	return out
}

func (r *resource) hasVerb(verb string) bool {
	for _, v := range r.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// list makes a typed list of objects.
func (r *resource) list(objs []runtime.Object) (runtime.Object, error) {
	l := r.NewList()
	l.GetObjectKind().SetGroupVersionKind(r.listGVK)
	return l, meta.SetList(l, objs)
}

func metaOf(o runtime.Object) (metav1.Object, error) { return meta.Accessor(o) }
