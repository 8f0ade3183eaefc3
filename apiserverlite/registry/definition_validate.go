package registry

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// internalDefinition is a copy of a definition in upstream's internal form, of which its rules speak.
func internalDefinition(d *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("convert definition %s: %w", d.Name, err)
	}
	return out, nil
}

// validateDefinition runs upstream's validation, which compiles the CEL rules and estimates their cost. Old is nil for a new definition.
func validateDefinition(ctx context.Context, d, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	if old == nil {
		return validateAs(d, d, func(d, _ *apiextensions.CustomResourceDefinition) field.ErrorList {
			return validation.ValidateCustomResourceDefinition(ctx, d)
		})
	}
	return validateAs(d, old, func(d, old *apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateCustomResourceDefinitionUpdate(ctx, d, old)
	})
}

func validateDefinitionStatus(ctx context.Context, d, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	return validateAs(d, old, func(d, old *apiextensions.CustomResourceDefinition) field.ErrorList {
		return validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, d, old)
	})
}

func validateAs(d, old *apiextensionsv1.CustomResourceDefinition, f func(d, old *apiextensions.CustomResourceDefinition) field.ErrorList) field.ErrorList {
	in, err := internalDefinition(d)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	before, err := internalDefinition(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	dropUnreadable(in)
	return f(in, before)
}

// dropUnreadable leaves out the selectable fields of a version whose schema is not structural. Upstream's validation refuses the
// schema, and then panics over its fields.
func dropUnreadable(d *apiextensions.CustomResourceDefinition) {
	broken := func(v *apiextensions.CustomResourceValidation) bool {
		if v == nil || v.OpenAPIV3Schema == nil {
			return false // that is said of the fields
		}
		_, err := structural.NewStructural(v.OpenAPIV3Schema)
		return err != nil
	}
	if len(d.Spec.SelectableFields) > 0 && broken(d.Spec.Validation) {
		d.Spec.SelectableFields = nil
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		schema := v.Schema
		if schema == nil {
			schema = d.Spec.Validation
		}
		if len(v.SelectableFields) > 0 && broken(schema) {
			v.SelectableFields = nil
		}
	}
}

// definitionWarnings says what of a definition has no effect, or another than its author may think. What the old definition, which
// may be nil, gave cause for already is not said again.
func definitionWarnings(d, old *apiextensionsv1.CustomResourceDefinition) []string {
	var out []string
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		out = append(out, "spec.conversion: drydock calls no conversion webhooks; every version serves the stored fields unchanged")
	}
	formats, lists := oddities(d)
	var oldFormats, oldLists []string
	if old != nil {
		oldFormats, oldLists = oddities(old)
	}
	for _, f := range formats {
		if !slices.Contains(oldFormats, f) {
			out = append(out, fmt.Sprintf("unrecognized format %q", f))
		}
	}
	for _, kind := range lists {
		if !slices.Contains(oldLists, kind) {
			out = append(out, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", kind))
		}
	}
	return out
}

// oddities are the formats of values that nothing checks, each as often as it stands there, and the types of items, no scalars, of lists that shall be sets.
func oddities(d *apiextensionsv1.CustomResourceDefinition) (formats, lists []string) {
	in, err := internalDefinition(d)
	if err != nil {
		return nil, nil // the validation has said so
	}
	seen := sets.New[string]()
	look := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			formats = append(formats, schemavalidation.GetUnrecognizedFormats(
				&spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}, environment.DefaultCompatibilityVersion())...)
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil && (s.Items.Schema.Type == "object" || s.Items.Schema.Type == "array") {
			seen.Insert(s.Items.Schema.Type)
		}
		return false // look on
	}
	if in.Spec.Validation != nil {
		validation.SchemaHas(in.Spec.Validation.OpenAPIV3Schema, look)
	}
	for _, v := range in.Spec.Versions {
		if v.Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, look)
		}
	}
	return formats, sets.List(seen)
}

// ConditionTrue tells whether a definition's condition is True.
func ConditionTrue(d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == kind && c.Status == apiextensionsv1.ConditionTrue
	})
}
