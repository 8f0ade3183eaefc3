package registry

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	storageutil "k8s.io/kubernetes/pkg/api/storage"
	"k8s.io/kubernetes/pkg/apis/storage"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
)

func storageClasses() *Resource {
	warn := func(_ context.Context, c, _ *storage.StorageClass) []string {
		return storageutil.GetWarningsForStorageClass(c)
	}
	return resource(kind[storage.StorageClass, storage.StorageClassList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("StorageClass"), plural: "storageclasses", shortNames: []string{"sc"}, cluster: true,
		object: alloc[storagev1.StorageClass](), list: alloc[storagev1.StorageClassList](),
		rules: rules[storage.StorageClass]{
			unconditional: true,
			validate:      func(c *storage.StorageClass) field.ErrorList { return validation.ValidateStorageClass(c) },
			warnCreate:    func(ctx context.Context, c *storage.StorageClass) []string { return warn(ctx, c, nil) },
			validateUpdate: func(c, old *storage.StorageClass) field.ErrorList {
				return append(validation.ValidateStorageClass(c), validation.ValidateStorageClassUpdate(c, old)...)
			},
			warnUpdate: warn,
		},
	})
}
