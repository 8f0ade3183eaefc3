package registry

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/apis/policy/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// policyKinds: budgets, whose status the disruption controller keeps and evictions spend.
func policyKinds(Options) []*Resource {
	main := rules[policy.PodDisruptionBudget]{
		prepareCreate: func(b *policy.PodDisruptionBudget) {
			b.Status = policy.PodDisruptionBudgetStatus{}
			b.Generation = 1
			stripBetaSelector(b)
		},
		validate: func(b *policy.PodDisruptionBudget) field.ErrorList {
			return validation.ValidatePodDisruptionBudget(b, validation.PodDisruptionBudgetValidationOptions{})
		},
		prepareUpdate: func(b, old *policy.PodDisruptionBudget) {
			b.Status = old.Status
			if !equality.Semantic.DeepEqual(old.Spec, b.Spec) {
				b.Generation = old.Generation + 1
			}
			if !equality.Semantic.DeepEqual(old.Spec.Selector, b.Spec.Selector) {
				stripBetaSelector(b)
			}
		},
		validateUpdate: func(b, old *policy.PodDisruptionBudget) field.ErrorList {
			return validation.ValidatePodDisruptionBudget(b, validation.PodDisruptionBudgetValidationOptions{AllowInvalidLabelValueInSelector: badSelector(old.Spec.Selector)})
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(b, old *policy.PodDisruptionBudget) { b.Spec = old.Spec }
	status.validateUpdate = func(b, old *policy.PodDisruptionBudget) field.ErrorList {
		return validation.ValidatePodDisruptionBudgetStatusUpdate(b.Status, old.Status, field.NewPath("status"), policyv1.SchemeGroupVersion)
	}
	status.ignored = []*fieldpath.Set{path("spec")}

	return []*Resource{resource(kind[policy.PodDisruptionBudget, policy.PodDisruptionBudgetList]{
		gvk: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), plural: "poddisruptionbudgets", shortNames: []string{"pdb"},
		object: alloc[policyv1.PodDisruptionBudget](), list: alloc[policyv1.PodDisruptionBudgetList](),
		rules: main, parts: map[string]rules[policy.PodDisruptionBudget]{"status": status},
	})}
}

// stripBetaSelector removes a label that upstream uses to tell apart what an empty selector means in the
// beta version, unless the selector is exactly one of those that it makes.
func stripBetaSelector(b *policy.PodDisruptionBudget) {
	s := b.Spec.Selector
	if equality.Semantic.DeepEqual(s, policy.NonV1beta1MatchNoneSelector) || equality.Semantic.DeepEqual(s, policy.NonV1beta1MatchAllSelector) {
		return
	}
	policy.StripPDBV1beta1Label(s)
}
