package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	claimutil "k8s.io/kubernetes/pkg/api/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// persistentVolumeClaims keep dataSource and dataSourceRef alike, for writers that know only one of them.
// The default class is admission's, not a default of the type.
func persistentVolumeClaims(o Options) *Resource {
	warn := func(_ context.Context, c, _ *core.PersistentVolumeClaim) []string {
		return claimutil.GetWarningsForPersistentVolumeClaim(c)
	}
	main := rules[core.PersistentVolumeClaim]{
		unconditional: true,
		prepareCreate: func(c *core.PersistentVolumeClaim) {
			c.Status = core.PersistentVolumeClaimStatus{}
			claimutil.DropDisabledFields(&c.Spec, nil)
			claimutil.EnforceDataSourceBackwardsCompatibility(&c.Spec, nil)
			claimutil.NormalizeDataSources(&c.Spec)
		},
		validate: func(c *core.PersistentVolumeClaim) field.ErrorList {
			return validation.ValidatePersistentVolumeClaim(c, validation.ValidationOptionsForPersistentVolumeClaim(c, nil))
		},
		warnCreate: func(ctx context.Context, c *core.PersistentVolumeClaim) []string { return warn(ctx, c, nil) },
		prepareUpdate: func(c, old *core.PersistentVolumeClaim) {
			c.Status = old.Status
			claimutil.DropDisabledFields(&c.Spec, &old.Spec)
			claimutil.EnforceDataSourceBackwardsCompatibility(&c.Spec, &old.Spec)
			claimutil.NormalizeDataSources(&c.Spec)
		},
		validateUpdate: func(c, old *core.PersistentVolumeClaim) field.ErrorList {
			claimutil.NormalizeDataSources(&old.Spec) // a claim stored by an older version has one of the two only
			return validation.ValidatePersistentVolumeClaimUpdate(c, old, validation.ValidationOptionsForPersistentVolumeClaim(c, old))
		},
		warnUpdate: warn,
		ignored:    []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(c, old *core.PersistentVolumeClaim) {
		c.Spec = old.Spec
		health := c.Status.HealthStatus
		claimutil.DropDisabledFieldsFromStatus(c, old)
		if o.VolumeHealth {
			c.Status.HealthStatus = health
		}
	}
	status.validateUpdate = func(c, old *core.PersistentVolumeClaim) field.ErrorList {
		return validation.ValidatePersistentVolumeClaimStatusUpdate(c, old, validation.ValidationOptionsForPersistentVolumeClaim(c, old))
	}
	status.warnUpdate = nil
	status.ignored = []*fieldpath.Set{path("spec")}

	return resource(kind[core.PersistentVolumeClaim, core.PersistentVolumeClaimList]{
		gvk: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), plural: "persistentvolumeclaims", shortNames: []string{"pvc"},
		object: alloc[corev1.PersistentVolumeClaim](), list: alloc[corev1.PersistentVolumeClaimList](),
		rules: main, parts: map[string]rules[core.PersistentVolumeClaim]{"status": status},
		fields: nameField,
	})
}

// nameField is a bare "name" beside metadata.name: an old mistake of upstream's that clients rely on.
func nameField(obj runtime.Object) fields.Set { return fields.Set{"name": accessor(obj).GetName()} }
