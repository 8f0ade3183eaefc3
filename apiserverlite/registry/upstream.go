package registry

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// upstream is k8s.io/kubernetes' own scheme: it knows the internal types, conversions, defaults, field
// labels and generated validation of the built-in kinds. The install packages fill it when the process
// starts, and nothing of ours changes it.
var upstream = legacyscheme.Scheme

// pointer is the set of pointer types that are objects.
type pointer[T any] interface {
	*T
	runtime.Object
}

// alloc returns a function that makes an empty object.
func alloc[T any, P pointer[T]]() func() runtime.Object {
	return func() runtime.Object { return P(new(T)) }
}

// internal converts a versioned object to upstream's internal type. The two share memory.
func internal[T any, P pointer[T]](obj runtime.Object) (P, error) {
	in := P(new(T))
	if err := upstream.Convert(obj, in, nil); err != nil {
		return nil, fmt.Errorf("convert %T to %T: %w", obj, in, err)
	}
	return in, nil
}

// normalize fills in upstream's defaults and takes the object through its internal type, as every object
// of upstream's server goes: aliases of fields are filled in, and write-only ones move to their place.
func normalize[T any, P pointer[T]](obj runtime.Object) {
	upstream.Default(obj)
	in, err := internal[T, P](obj)
	if err != nil {
		return // Validate comes to the same error and reports it
	}
	external(in, obj)
}

// external replaces obj by the versioned form of in, and keeps obj's type. It starts from nothing, so that
// write-only fields of obj, which the internal type does not have, are gone.
func external(in, obj runtime.Object) {
	v := reflect.ValueOf(obj)
	fresh := reflect.New(v.Elem().Type())
	out := fresh.Interface().(runtime.Object)
	if upstream.Convert(in, out, nil) != nil {
		return
	}
	out.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	v.Elem().Set(fresh.Elem())
}

// fieldLabel converts a field selector with upstream's rules and texts.
func fieldLabel(gvk schema.GroupVersionKind) func(label, value string) (string, string, error) {
	return func(label, value string) (string, string, error) {
		return upstream.ConvertFieldLabel(gvk, label, value)
	}
}

// metaFields are the selectable fields that every kind has.
func metaFields(m metav1.Object, namespaced bool, more fields.Set) fields.Set {
	if more == nil {
		more = fields.Set{}
	}
	more["metadata.name"] = m.GetName()
	if namespaced {
		more["metadata.namespace"] = m.GetNamespace()
	}
	return more
}
