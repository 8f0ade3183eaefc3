package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

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

func (k *defined) Validate(ctx context.Context, o runtime.Object) field.ErrorList {
	u := o.(*unstructured.Unstructured)
	errs := validation.ValidateObjectMetaAccessor(u, k.namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return k.judge.created(ctx, errs, u.Object)
}

func (k *defined) ValidateUpdate(ctx context.Context, o, old runtime.Object) field.ErrorList {
	u, before := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	errs := validation.ValidateObjectMetaAccessorUpdate(u, before, field.NewPath("metadata"))
	return k.judge.updated(ctx, errs, u.Object, before.Object)
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

func (k *definedStatus) ValidateUpdate(ctx context.Context, o, old runtime.Object) field.ErrorList {
	u, before := o.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	errs := validation.ValidateObjectMetaAccessorUpdate(u, before, field.NewPath("metadata"))
	return k.judge.statusUpdated(ctx, errs, u.Object, before.Object)
}

func (k *definedStatus) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (k *definedStatus) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{k.version(): path("metadata").Union(path("spec"))}
}
