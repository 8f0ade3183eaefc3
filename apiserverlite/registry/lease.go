package registry

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/coordination/validation"
)

func coordinationKinds(Options) []*Resource {
	return []*Resource{leases()}
}

func leases() *Resource {
	return resource(kind[coordination.Lease, coordination.LeaseList]{
		gvk: coordinationv1.SchemeGroupVersion.WithKind("Lease"), plural: "leases",
		object: alloc[coordinationv1.Lease](), list: alloc[coordinationv1.LeaseList](),
		rules: rules[coordination.Lease]{
			createOnUpdate: true,
			// Coordinated leader election is off.
			prepareCreate: func(l *coordination.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil },
			validate:      validation.ValidateLease,
			prepareUpdate: func(l, old *coordination.Lease) {
				if old.Spec.Strategy == nil {
					l.Spec.Strategy = nil
				}
				if old.Spec.PreferredHolder == nil {
					l.Spec.PreferredHolder = nil
				}
			},
			validateUpdate: validation.ValidateLeaseUpdate,
		},
	})
}
