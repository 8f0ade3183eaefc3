package registry_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
)

// find returns a resource by its plural, of the first group that has it.
func find(t testing.TB, plural string) *registry.Resource {
	t.Helper()
	for _, r := range reg(t).Resources() {
		if r.GVR.Resource == plural {
			return r
		}
	}
	t.Fatalf("no resource %s", plural)
	return nil
}

// parse reads a manifest as the server does: decode, then default.
func parse(t testing.TB, r *registry.Resource, doc string) runtime.Object {
	t.Helper()
	obj := r.New()
	if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	r.Strategy.Default(obj)
	return obj
}

// create takes an object through the steps of a create.
func create(t testing.TB, r *registry.Resource, doc string) (runtime.Object, field.ErrorList) {
	t.Helper()
	obj := parse(t, r, doc)
	r.Strategy.PrepareForCreate(context.Background(), obj)
	r.Strategy.Default(obj)
	return obj, r.Strategy.Validate(context.Background(), obj)
}

// update takes a changed copy of old through the steps of an update of the object or of a subresource.
func update(t testing.TB, r *registry.Resource, subresource string, old runtime.Object, change func(runtime.Object)) (runtime.Object, field.ErrorList) {
	t.Helper()
	s := r.Strategy
	if subresource != "" {
		s = r.Subresources[subresource].Strategy
	}
	obj := old.DeepCopyObject()
	change(obj)
	for _, o := range []runtime.Object{obj, old} { // updates of metadata want a version
		m, _ := meta.Accessor(o)
		m.SetResourceVersion("1")
	}
	r.Strategy.Default(obj)
	s.PrepareForUpdate(context.Background(), obj, old)
	r.Strategy.Default(obj)
	return obj, s.ValidateUpdate(context.Background(), obj, old)
}

// memory is a Reader of a few objects.
type memory map[schema.GroupResource][]runtime.Object

func (m memory) Get(gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
	for _, o := range m[gr] {
		if a, err := meta.Accessor(o); err == nil && a.GetNamespace() == namespace && a.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(gr, name)
}

func (m memory) List(gr schema.GroupResource, namespace string) []runtime.Object {
	var out []runtime.Object
	for _, o := range m[gr] {
		if a, err := meta.Accessor(o); err == nil && (namespace == "" || a.GetNamespace() == namespace) {
			out = append(out, o)
		}
	}
	return out
}

func reflectSame(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
