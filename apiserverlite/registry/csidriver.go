package registry

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/storage"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
)

const tokensInSecrets = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"

// csiDrivers have no generation at first; each change of the spec adds one.
func csiDrivers() *Resource {
	return resource(kind[storage.CSIDriver, storage.CSIDriverList]{
		gvk: storagev1.SchemeGroupVersion.WithKind("CSIDriver"), plural: "csidrivers", cluster: true,
		object: alloc[storagev1.CSIDriver](), list: alloc[storagev1.CSIDriverList](),
		rules: rules[storage.CSIDriver]{
			validate:   func(d *storage.CSIDriver) field.ErrorList { return validation.ValidateCSIDriver(d) },
			warnCreate: func(_ context.Context, d *storage.CSIDriver) []string { return tokenWarnings(d, nil) },
			prepareUpdate: func(d, old *storage.CSIDriver) {
				if !equality.Semantic.DeepEqual(old.Spec, d.Spec) {
					d.Generation = old.Generation + 1
				}
			},
			validateUpdate: func(d, old *storage.CSIDriver) field.ErrorList { return validation.ValidateCSIDriverUpdate(d, old) },
			warnUpdate:     func(_ context.Context, d, old *storage.CSIDriver) []string { return tokenWarnings(d, old) },
		},
	})
}

// tokenWarnings asks drivers that get tokens to take them as secrets, once when they ask for tokens.
func tokenWarnings(d, old *storage.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	if old != nil && equality.Semantic.DeepEqual(old.Spec.TokenRequests, d.Spec.TokenRequests) {
		return nil
	}
	return []string{tokensInSecrets}
}
