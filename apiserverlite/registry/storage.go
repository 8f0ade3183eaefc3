package registry

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	storageutil "k8s.io/kubernetes/pkg/api/storage"
	"k8s.io/kubernetes/pkg/apis/storage"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// storageKinds are those of storage.k8s.io/v1, in the order of discovery.
func storageKinds(o Options) []*Resource {
	return []*Resource{csiDrivers(), csiNodes(o), csiStorageCapacities(), storageClasses(), volumeAttachments(), volumeAttributesClasses()}
}

func csiNodes(o Options) *Resource {
	main := rules[storage.CSINode]{
		prepareCreate: func(n *storage.CSINode) { n.Status = storage.CSINodeStatus{} },
		validate:      func(n *storage.CSINode) field.ErrorList { return validation.ValidateCSINode(n) },
		prepareUpdate: func(n, old *storage.CSINode) { n.Status = old.Status },
		validateUpdate: func(n, old *storage.CSINode) field.ErrorList {
			return validation.ValidateCSINodeUpdate(n, old)
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(n, old *storage.CSINode) {
		n.Spec = old.Spec
		metav1.ResetObjectMetaForStatus(&n.ObjectMeta, &old.ObjectMeta)
		if !o.VolumeHealth && len(old.Status.StorageHealth) == 0 {
			n.Status.StorageHealth = nil
		}
	}
	status.validateUpdate = func(n, old *storage.CSINode) field.ErrorList { return validation.ValidateCSINodeStatusUpdate(n, old) }
	status.ignored = []*fieldpath.Set{path("metadata"), path("spec")}

	return resource(kind[storage.CSINode, storage.CSINodeList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("CSINode"), plural: "csinodes", cluster: true,
		object: alloc[storagev1.CSINode](), list: alloc[storagev1.CSINodeList](),
		rules: main, parts: map[string]rules[storage.CSINode]{"status": status},
	})
}

func csiStorageCapacities() *Resource {
	warn := func(_ context.Context, c, _ *storage.CSIStorageCapacity) []string {
		return storageutil.GetWarningsForCSIStorageCapacity(c)
	}
	return resource(kind[storage.CSIStorageCapacity, storage.CSIStorageCapacityList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"), plural: "csistoragecapacities",
		object: alloc[storagev1.CSIStorageCapacity](), list: alloc[storagev1.CSIStorageCapacityList](),
		rules: rules[storage.CSIStorageCapacity]{
			validate: func(c *storage.CSIStorageCapacity) field.ErrorList {
				return validation.ValidateCSIStorageCapacity(c, validation.CSIStorageCapacityValidateOptions{})
			},
			warnCreate: func(ctx context.Context, c *storage.CSIStorageCapacity) []string { return warn(ctx, c, nil) },
			validateUpdate: func(c, old *storage.CSIStorageCapacity) field.ErrorList {
				opts := validation.CSIStorageCapacityValidateOptions{AllowInvalidLabelValueInSelector: badSelector(old.NodeTopology)}
				return append(validation.ValidateCSIStorageCapacity(c, opts), validation.ValidateCSIStorageCapacityUpdate(c, old)...)
			},
			warnUpdate: warn,
		},
	})
}

// badSelector tells whether a stored selector would be refused today: then it may stay as it is.
func badSelector(s *metav1.LabelSelector) bool {
	return s != nil && len(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0
}

func volumeAttachments() *Resource {
	main := rules[storage.VolumeAttachment]{
		prepareCreate: func(a *storage.VolumeAttachment) { a.Status = storage.VolumeAttachmentStatus{} },
		validate:      func(a *storage.VolumeAttachment) field.ErrorList { return validation.ValidateVolumeAttachment(a) },
		prepareUpdate: func(a, old *storage.VolumeAttachment) { a.Status = old.Status },
		validateUpdate: func(a, old *storage.VolumeAttachment) field.ErrorList {
			return validation.ValidateVolumeAttachmentUpdate(a, old)
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(a, old *storage.VolumeAttachment) {
		a.Spec = old.Spec
		metav1.ResetObjectMetaForStatus(&a.ObjectMeta, &old.ObjectMeta)
	}
	status.ignored = []*fieldpath.Set{path("metadata"), path("spec")}

	return resource(kind[storage.VolumeAttachment, storage.VolumeAttachmentList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), plural: "volumeattachments", cluster: true,
		object: alloc[storagev1.VolumeAttachment](), list: alloc[storagev1.VolumeAttachmentList](),
		rules: main, parts: map[string]rules[storage.VolumeAttachment]{"status": status},
	})
}

func volumeAttributesClasses() *Resource {
	return resource(kind[storage.VolumeAttributesClass, storage.VolumeAttributesClassList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"), plural: "volumeattributesclasses", shortNames: []string{"vac"}, cluster: true,
		object: alloc[storagev1.VolumeAttributesClass](), list: alloc[storagev1.VolumeAttributesClassList](),
		rules: rules[storage.VolumeAttributesClass]{
			unconditional: true,
			validate: func(c *storage.VolumeAttributesClass) field.ErrorList {
				return validation.ValidateVolumeAttributesClass(c)
			},
			validateUpdate: func(c, old *storage.VolumeAttributesClass) field.ErrorList {
				return validation.ValidateVolumeAttributesClassUpdate(c, old)
			},
		},
	})
}
