package registry

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// DefinitionFinalizer holds a definition until its instances are gone.
const DefinitionFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

// addDefinitionKinds makes CustomResourceDefinitions known to client-go's scheme, once for the process.
var addDefinitionKinds = sync.OnceValue(func() error {
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("add CustomResourceDefinitions to the scheme: %w", err)
	}
	return nil
})

// definitionKinds is the resource of CustomResourceDefinitions. What a definition makes is built by Define;
// the conditions of its status are the server's, which knows the other definitions.
func definitionKinds(Options) []*Resource {
	gv := apiextensionsv1.SchemeGroupVersion
	s := definitionStrategy{}
	return []*Resource{{
		GVR: gv.WithResource("customresourcedefinitions"), GVK: gv.WithKind("CustomResourceDefinition"), Singular: "customresourcedefinition",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"}, Verbs: allVerbs, Protobuf: true,
		New: alloc[apiextensionsv1.CustomResourceDefinition](), NewList: alloc[apiextensionsv1.CustomResourceDefinitionList](),
		Storage:  schema.GroupResource{Group: gv.Group, Resource: "customresourcedefinitions"},
		Strategy: s,
		Table: func(_ context.Context, obj runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error) {
			return plainTable(obj, opts)
		},
		Subresources: map[string]Subresource{"status": {Verbs: objectVerbs, Strategy: definitionStatus{s}}},
		FieldLabel:   customFieldLabel(false, nil),
		Fields:       func(obj runtime.Object) fields.Set { return metaFields(accessor(obj), false, nil) },
	}}
}

type definitionStrategy struct{}

func (definitionStrategy) AllowCreateOnUpdate() bool      { return false }
func (definitionStrategy) AllowUnconditionalUpdate() bool { return false }

func (definitionStrategy) Default(obj runtime.Object) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(obj.(*apiextensionsv1.CustomResourceDefinition))
}

func (definitionStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	d := obj.(*apiextensionsv1.CustomResourceDefinition)
	d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	d.Generation = 1
	recordStored(d)
}

func (definitionStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	d, before := obj.(*apiextensionsv1.CustomResourceDefinition), old.(*apiextensionsv1.CustomResourceDefinition)
	d.Status = *before.Status.DeepCopy()
	if !equality.Semantic.DeepEqual(before.Spec, d.Spec) {
		d.Generation = before.Generation + 1
	}
	recordStored(d)
}

// recordStored notes in the status that objects may be stored in the version which is the storage version now.
func recordStored(d *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range d.Spec.Versions {
		if !v.Storage {
			continue
		}
		for _, have := range d.Status.StoredVersions {
			if have == v.Name {
				return
			}
		}
		d.Status.StoredVersions = append(d.Status.StoredVersions, v.Name)
		return
	}
}

func (definitionStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validateDefinition(ctx, obj.(*apiextensionsv1.CustomResourceDefinition), nil)
}

func (definitionStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateDefinition(ctx, obj.(*apiextensionsv1.CustomResourceDefinition), old.(*apiextensionsv1.CustomResourceDefinition))
}

func (definitionStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return definitionWarnings(obj.(*apiextensionsv1.CustomResourceDefinition), nil)
}

func (definitionStrategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	d, before := obj.(*apiextensionsv1.CustomResourceDefinition), old.(*apiextensionsv1.CustomResourceDefinition)
	if equality.Semantic.DeepEqual(d.Spec, before.Spec) {
		return nil
	}
	return definitionWarnings(d, before)
}

func (definitionStrategy) GracePeriod(runtime.Object, *metav1.DeleteOptions) int64 { return 0 }

func (definitionStrategy) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"apiextensions.k8s.io/v1": path("status")}
}

// definitionStatus is the strategy of the status subresource: metadata and spec stay as they are.
type definitionStatus struct{ definitionStrategy }

func (definitionStatus) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	d, before := obj.(*apiextensionsv1.CustomResourceDefinition), old.(*apiextensionsv1.CustomResourceDefinition)
	d.Spec = *before.Spec.DeepCopy()
	metav1.ResetObjectMetaForStatus(&d.ObjectMeta, &before.ObjectMeta)
}

func (definitionStatus) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateDefinitionStatus(ctx, obj.(*apiextensionsv1.CustomResourceDefinition), old.(*apiextensionsv1.CustomResourceDefinition))
}

func (definitionStatus) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (definitionStatus) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"apiextensions.k8s.io/v1": path("metadata").Union(path("spec"))}
}
