package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// custom is the strategy of a kind that upstream serves as a custom resource. It does what upstream does
// for every such kind; check is what the kind's definition says.
type custom[T any, P pointer[T]] struct {
	namespaced bool
	version    fieldpath.APIVersion
	// takeStatus copies the status; nil for kinds whose definition has no status subresource.
	takeStatus func(obj, from P)
	// check validates an object; old is nil when it is new.
	check func(c *checks, obj, old P)
}

func (s *custom[T, P]) AllowCreateOnUpdate() bool      { return false }
func (s *custom[T, P]) AllowUnconditionalUpdate() bool { return false }
func (s *custom[T, P]) Default(runtime.Object)         {}

func (s *custom[T, P]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.takeStatus != nil {
		s.takeStatus(obj.(P), P(new(T)))
	}
	accessor(obj).SetGeneration(1)
}

func (s *custom[T, P]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.takeStatus != nil {
		s.takeStatus(obj.(P), old.DeepCopyObject().(P))
	}
	if !equality.Semantic.DeepEqual(bare(obj), bare(old)) {
		m := accessor(obj)
		m.SetGeneration(accessor(old).GetGeneration() + 1)
	}
}

// bare is a copy of an object without type and metadata.
func bare(obj runtime.Object) runtime.Object {
	o := obj.DeepCopyObject()
	clearMeta(o)
	return o
}

func clearMeta(o runtime.Object) {
	clearType(o)
	if m, ok := o.(metav1.ObjectMetaAccessor); ok {
		if om, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			*om = metav1.ObjectMeta{}
		}
	}
}

func (s *custom[T, P]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	c := &checks{errs: validation.ValidateObjectMetaAccessor(accessor(obj), s.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))}
	s.check(c, obj.(P), nil)
	return c.done()
}

func (s *custom[T, P]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	c := &checks{errs: validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), field.NewPath("metadata"))}
	s.check(c, obj.(P), old.(P))
	return c.done()
}

func (s *custom[T, P]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return finalizerWarnings(accessor(obj).GetFinalizers(), nil)
}

func (s *custom[T, P]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return finalizerWarnings(accessor(obj).GetFinalizers(), accessor(old).GetFinalizers())
}

func (s *custom[T, P]) GracePeriod(runtime.Object, *metav1.DeleteOptions) int64 { return 0 }

func (s *custom[T, P]) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.takeStatus == nil {
		return nil
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{s.version: path("status")}
}

// customStatus is the strategy of such a kind's status subresource: of the new object only the status and
// the record of who set it count.
type customStatus[T any, P pointer[T]] struct{ custom[T, P] }

func (s *customStatus[T, P]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	managed := accessor(obj).GetManagedFields()
	next := old.DeepCopyObject().(P)
	s.takeStatus(next, obj.(P))
	*obj.(P) = *next
	accessor(obj).SetManagedFields(managed)
}

func (s *customStatus[T, P]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s *customStatus[T, P]) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{s.version: path("metadata").Union(path("spec"))}
}

// finalizerWarnings asks for full names of new finalizers.
func finalizerWarnings(list, old []string) []string {
	var out []string
	at := field.NewPath("metadata", "finalizers")
	added := slices.DeleteFunc(slices.Clone(list), func(f string) bool { return slices.Contains(old, f) })
	slices.Sort(added)
	for _, f := range slices.Compact(added) {
		for _, msg := range utilvalidation.IsQualifiedName(f) {
			out = append(out, fmt.Sprintf("%s: %q: %s", at, f, msg))
		}
		switch {
		case strings.Contains(f, "/"), f == metav1.FinalizerOrphanDependents, f == metav1.FinalizerDeleteDependents, f == "kubernetes":
		case strings.Contains(f, "."):
			out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers", at, f))
		default:
			out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers", at, f))
		}
	}
	return out
}
