package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// tracking holds the field managers of a custom resource; they end with its definition's state.
type tracking struct {
	mu    sync.Mutex
	bySub map[string]*managedfields.FieldManager // guarded by mu
}

// customManager is tracker.manager for a kind with a schema of its own.
func (w *writing) customManager() (*managedfields.FieldManager, error) {
	t := w.res.tracking
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.bySub[w.sub]; ok {
		return m, nil
	}
	types, err := w.res.Custom.Types()
	if err != nil {
		return nil, err
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	for v, set := range w.strategy.ResetFields() {
		reset[v] = fieldpath.NewExcludeSetFilter(set)
	}
	m, err := managedfields.NewDefaultCRDFieldManager(types, unstructuredKinds{}, defaulter{w.res.Strategy}, unstructuredKinds{}, w.res.GVK, w.res.GVK.GroupVersion(), w.sub, reset)
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", w.res.GVR, err)
	}
	if t.bySub == nil {
		t.bySub = map[string]*managedfields.FieldManager{}
	}
	t.bySub[w.sub] = m
	return m, nil
}

// unstructuredKinds makes and converts custom objects: versions differ in their name alone.
type unstructuredKinds struct{}

func (unstructuredKinds) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// Default does nothing: objects are defaulted when they are decoded.
func (unstructuredKinds) Default(runtime.Object) {}

func (unstructuredKinds) Convert(in, _, _ any) error {
	return fmt.Errorf("convert %T: custom objects have one form", in)
}

func (unstructuredKinds) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	have := in.GetObjectKind().GroupVersionKind()
	want, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{have})
	if !ok {
		if gv, is := to.(schema.GroupVersion); is {
			want, ok = gv.WithKind(have.Kind), true
		}
	}
	if !ok {
		return nil, fmt.Errorf("convert %s to %s: not a version of it", have, to.Identifier())
	}
	if want == have {
		return in, nil
	}
	out := in.DeepCopyObject()
	out.GetObjectKind().SetGroupVersionKind(want)
	return out, nil
}

func (unstructuredKinds) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// writes tells whether a verb may have changed something.
func writes(verb string) bool { return verb != "get" && verb != "list" && verb != "watch" }

// dispatch passes the request to its verb, with what requests of definitions and their objects have beyond others.
func (x *exchange) dispatch(ctx context.Context) (reply, error) {
	if x.res.Deprecation != "" {
		x.warnings.add(x.res.Deprecation)
	}
	rep, err := x.verb(ctx)
	if err == nil && writes(x.in.verb) && (x.res.GR() == definitionResource || x.res.Custom != nil) {
		x.s.afterWrite(ctx)
	}
	return rep, err
}

// coercing is a decoder that makes custom objects fit their schema. What it removes is a strict error, but in CBOR.
type coercing struct {
	runtime.Decoder
	strict bool
	coerce func(schema.GroupVersionKind, *unstructured.Unstructured) ([]string, error)
}

func (d coercing) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := d.Decoder.Decode(data, defaults, into)
	u, ok := o.(*unstructured.Unstructured)
	if !ok || gvk == nil {
		return o, gvk, err
	}
	problems, strict := runtime.AsStrictDecodingError(err)
	if err != nil && !strict {
		return o, gvk, err
	}
	unknown, bad := d.coerce(*gvk, u)
	if bad != nil {
		return nil, gvk, bad
	}
	if !d.strict {
		return o, gvk, err
	}
	var all []error
	if strict {
		all = problems.Errors()
	}
	for _, path := range unknown {
		all = append(all, fmt.Errorf("unknown field %q", path))
	}
	if len(all) == 0 {
		return o, gvk, nil
	}
	return o, gvk, runtime.NewStrictDecodingError(all)
}

// describe serves the OpenAPI documents of what is defined now.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) {
	if h := s.defined().openAPI(); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	s.fail(w, r, outputFor(r), pathNotFound())
}
