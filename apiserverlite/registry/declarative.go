package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// declarative runs the validation that upstream generates from the types' markers, and merges it with the
// hand-written one: a generated error takes the place of a hand-written one that says the same.
type declarative struct {
	// options are the named switches that a kind's markers ask for.
	options map[string]bool
	// aliases are rules by which a field has another path in the internal type.
	aliases []field.NormalizationRule
}

func (d declarative) onCreate(ctx context.Context, obj runtime.Object, byHand field.ErrorList, subresource string) field.ErrorList {
	return d.merge(ctx, byHand, upstream.Validate(ctx, d.options, obj, below(subresource)...))
}

func (d declarative) onUpdate(ctx context.Context, obj, old runtime.Object, byHand field.ErrorList, subresource string) field.ErrorList {
	return d.merge(ctx, byHand, upstream.ValidateUpdate(ctx, d.options, obj, old, below(subresource)...))
}

func (d declarative) merge(ctx context.Context, byHand, generated field.ErrorList) field.ErrorList {
	if len(byHand) == 0 && len(generated) == 0 {
		return nil
	}
	const beta = true // upstream's default of DeclarativeValidationBeta
	enforced := validate.FilterEnforcedDeclarativeErrors(ctx, generated, beta)
	errs := validate.FilterCoveredHandwrittenErrors(ctx, byHand.MarkFromImperative(), enforced, beta, d.aliases...)
	return append(errs, enforced...)
}

func below(subresource string) []string {
	if subresource == "" {
		return nil
	}
	return []string{subresource}
}
