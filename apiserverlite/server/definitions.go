package server

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

var definitionResource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// definitions derives from the stored CustomResourceDefinitions what they make. Nothing is told of a change:
// whoever asks compares the stored state with the one that the last answer was made from, so that a request
// which comes after a definition's commit finds its resources, discovery and OpenAPI together.
type definitions struct {
	now atomic.Pointer[defined]
	mu  sync.Mutex // held while a new answer is made
}

// defined is what the definitions of one moment make. It never changes.
type defined struct {
	snapshot storage.Snapshot
	byName   map[string]*definition
	byGVR    map[schema.GroupVersionResource]*resource
	byKind   map[schema.GroupVersionKind]*resource
	// served are the custom resources in the order of discovery.
	served    []*resource
	discovery *discovery
	openAPI   func() http.Handler
	// waiting tells that a definition is being deleted or has been refused its names.
	waiting bool
}

// definition is one of them with its resources, of which there are none until it is established.
type definition struct {
	entry     *storage.Entry
	object    *apiextensionsv1.CustomResourceDefinition
	resources []*resource
	ended     chan struct{} // closed when another state of the definition has taken over: watches end
}

// defined returns what is defined now.
func (s *Server) defined() *defined {
	snap := s.store.Snapshot(definitionResource)
	if d := s.definitions.now.Load(); d != nil && d.snapshot.Same(snap) {
		return d
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	snap = s.store.Snapshot(definitionResource)
	old := s.definitions.now.Load()
	if old != nil && old.snapshot.Same(snap) {
		return old
	}
	d := s.derive(snap, old)
	s.definitions.now.Store(d)
	if old != nil {
		for name, was := range old.byName {
			if d.byName[name] == nil || d.byName[name].ended != was.ended {
				close(was.ended)
			}
		}
	}
	return d
}

func (s *Server) derive(snap storage.Snapshot, old *defined) *defined {
	d := &defined{snapshot: snap, byName: map[string]*definition{}, byGVR: map[schema.GroupVersionResource]*resource{}, byKind: map[schema.GroupVersionKind]*resource{}}
	snap.Ascend("", "", func(e *storage.Entry) bool {
		object, ok := e.Object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return true
		}
		var was *definition
		if old != nil {
			was = old.byName[e.Key.Name]
		}
		n := s.definition(e, object, was)
		d.byName[e.Key.Name] = n
		d.waiting = d.waiting || object.DeletionTimestamp != nil || !registry.ConditionTrue(object, apiextensionsv1.NamesAccepted)
		for _, r := range n.resources {
			d.byGVR[r.GVR], d.byKind[r.GVK] = r, r
			if len(r.Verbs) > 0 {
				d.served = append(d.served, r)
			}
		}
		return true
	})
	d.discovery = s.base
	if len(d.served) > 0 {
		d.discovery = newDiscovery(slices.Concat(s.resources, d.served))
	}
	d.openAPI = sync.OnceValue(func() http.Handler {
		if r, ok := s.cfg.Registry.(interface {
			OpenAPIWith([]*registry.Resource) http.Handler
		}); ok {
			var list []*registry.Resource
			for _, r := range d.served {
				list = append(list, r.Resource)
			}
			return r.OpenAPIWith(list)
		}
		return s.openAPI()
	})
	return d
}

// definition builds the resources, or keeps those of the state before if nothing that they are made from has changed.
func (s *Server) definition(e *storage.Entry, object *apiextensionsv1.CustomResourceDefinition, was *definition) *definition {
	n := &definition{entry: e, object: object, ended: make(chan struct{})}
	established := registry.ConditionTrue(object, apiextensionsv1.Established)
	if was != nil && was.object.UID == object.UID && was.object.Generation == object.Generation && (was.resources != nil) == established &&
		slices.Equal(was.object.Status.AcceptedNames.ShortNames, object.Status.AcceptedNames.ShortNames) {
		n.resources, n.ended = was.resources, was.ended
		return n
	}
	if !established {
		return n
	}
	made, err := registry.Define(object)
	if err != nil {
		s.log.Error().Err(err).Msg("a stored definition cannot be served")
		return n
	}
	n.resources = []*resource{}
	var main *resource
	for _, r := range made {
		if _, builtIn := s.byGVR[r.GVR]; builtIn {
			continue // kinds that are served without a definition stay as they are
		}
		gv := r.GVR.GroupVersion().String()
		form := gv + " " + e.Revision.String()
		res := &resource{Resource: r, listGVK: r.GVR.GroupVersion().WithKind(r.Custom.ListKind), ended: n.ended, tracking: &tracking{}, definition: object.Name,
			formJSON: form + " json", formRaw: form + " raw", formCBOR: form + " cbor", formPartialJSON: gv + " partial json", formPartialRaw: gv + " partial raw"}
		if r.Custom.Stored {
			main = res
		}
		n.resources = append(n.resources, res)
	}
	for _, r := range n.resources {
		r.main = main
		if !servedVersion(object, r.GVR.Version) {
			own := *r.Resource
			own.Verbs = nil
			r.Resource = &own
		}
	}
	return n
}

func servedVersion(d *apiextensionsv1.CustomResourceDefinition, name string) bool {
	return slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name && v.Served })
}

// coerce makes a custom object that a client sent fit its schema, and returns what was removed.
func (s *Server) coerce(gvk schema.GroupVersionKind, u *unstructured.Unstructured) ([]string, error) {
	r, ok := s.defined().byKind[gvk]
	if !ok {
		return nil, nil
	}
	return r.Custom.Coerce(u)
}
