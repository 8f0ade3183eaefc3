package registry

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type valueResult = validate.Result

func (k *defined) AllowCreateOnUpdate() bool      { return false }
func (k *defined) AllowUnconditionalUpdate() bool { return false }

func (k *defined) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	u, before := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	if k.status {
		keepField(u, before, "status")
	}
	if !equality.Semantic.DeepEqual(k.spec(u), k.spec(before)) {
		u.SetGeneration(before.GetGeneration() + 1)
	}
}

// keepField takes a field from the old object.
func keepField(u, old *unstructured.Unstructured, name string) {
	delete(u.Object, name)
	if v, found := old.Object[name]; found {
		u.Object[name] = runtime.DeepCopyJSONValue(v)
	}
}

// spec is what counts for the generation: all but type, metadata and, where it is a subresource, status.
func (k *defined) spec(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for name, v := range u.Object {
		switch {
		case name == "metadata", name == "apiVersion", name == "kind", name == "status" && k.status:
		default:
			out[name] = v
		}
	}
	return out
}

func (k *defined) Validate(_ context.Context, o runtime.Object) field.ErrorList {
	u := o.(*unstructured.Unstructured)
	errs := validation.ValidateObjectMetaAccessor(u, k.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, k.check(u)...)
}

// check holds an object against the schema.
func (k *defined) check(u *unstructured.Unstructured) field.ErrorList {
	errs := valueErrors(nil, k.values.Validate(u.Object))
	errs = append(errs, objectmeta.Validate(context.Background(), nil, u.Object, k.schema, false)...)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, k.schema, u.Object)...)
}

// ValidateUpdate lets pass what was wrong before in the same way, so that an object from before a rule can
// still be worked on.
func (k *defined) ValidateUpdate(_ context.Context, o, old runtime.Object) field.ErrorList {
	u, before := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	errs := validation.ValidateObjectMetaAccessorUpdate(u, before, field.NewPath("metadata"))
	bad := k.check(u)
	if len(bad) == 0 {
		return errs
	}
	was := map[string]bool{}
	for _, e := range k.check(before) {
		was[fmt.Sprint(e)] = true
	}
	for _, e := range bad {
		if !was[fmt.Sprint(e)] {
			errs = append(errs, e)
		}
	}
	return errs
}

func (k *defined) WarningsOnCreate(_ context.Context, o runtime.Object) []string {
	return finalizerWarnings(accessor(o).GetFinalizers(), nil)
}

func (k *defined) WarningsOnUpdate(_ context.Context, o, old runtime.Object) []string {
	return finalizerWarnings(accessor(o).GetFinalizers(), accessor(old).GetFinalizers())
}

func (k *defined) GracePeriod(runtime.Object, *metav1.DeleteOptions) int64 { return 0 }

func (k *defined) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !k.status {
		return nil
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{k.version(): path("status")}
}

// definedStatus is the strategy of the status subresource.
type definedStatus struct{ *defined }

func (k *definedStatus) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	u, before := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	managed := u.GetManagedFields()
	status, found := u.Object["status"]
	u.Object = before.DeepCopy().Object
	delete(u.Object, "status")
	if found {
		u.Object["status"] = status
	}
	u.SetManagedFields(managed)
}

func (k *definedStatus) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (k *definedStatus) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{k.version(): path("metadata").Union(path("spec"))}
}
