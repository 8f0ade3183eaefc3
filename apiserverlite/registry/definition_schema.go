package registry

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// structuralOf converts a version's schema.
func structuralOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (*structural.Structural, error) {
	in := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, in, nil); err != nil {
		return nil, err
	}
	return structural.NewStructural(in)
}

// validateSchema demands a structural schema whose defaults it accepts itself.
func validateSchema(v *apiextensionsv1.CustomResourceDefinitionVersion, at *field.Path) field.ErrorList {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	s, err := structuralOf(v)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	var errs field.ErrorList
	if v.Schema.OpenAPIV3Schema.Type != "object" {
		return field.ErrorList{field.Invalid(at.Child("type"), v.Schema.OpenAPIV3Schema.Type, "must be object at the root")}
	}
	errs = append(errs, validateLists(s, at)...)
	errs = append(errs, structural.ValidateStructural(at, s)...)
	if len(errs) > 0 {
		return errs
	}
	return validateDefaults(s, at)
}

// validateLists checks the keys of lists that are maps.
func validateLists(s *structural.Structural, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	keys := at.Child("x-kubernetes-list-map-keys")
	switch isMap := s.XListType != nil && *s.XListType == "map"; {
	case !isMap && len(s.XListMapKeys) > 0 && s.XListType == nil:
		errs = append(errs, field.Required(at.Child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty"))
	case !isMap && len(s.XListMapKeys) > 0:
		errs = append(errs, field.Invalid(at.Child("x-kubernetes-list-type"), *s.XListType, "must be map if x-kubernetes-list-map-keys is non-empty"))
	case isMap && len(s.XListMapKeys) == 0:
		errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
	case isMap && s.Items == nil:
		errs = append(errs, field.Required(at.Child("items"), "must have a schema if x-kubernetes-list-type is map"))
	case isMap && s.Items.Type != "object":
		errs = append(errs, field.Invalid(at.Child("items").Child("type"), s.Items.Type, "must be object if parent array's x-kubernetes-list-type is map"))
	case isMap:
		for _, k := range s.XListMapKeys {
			if _, found := s.Items.Properties[k]; !found {
				errs = append(errs, field.Invalid(keys, s.XListMapKeys, "entries must all be names of item properties"))
			}
		}
	}
	for name, p := range s.Properties {
		errs = append(errs, validateLists(&p, at.Child("properties").Key(name))...)
	}
	if s.Items != nil {
		errs = append(errs, validateLists(s.Items, at.Child("items"))...)
	}
	return errs
}

// validateDefaults checks each default against the part of the schema that it is for.
func validateDefaults(s *structural.Structural, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Default.Object != nil {
		value := runtime.DeepCopyJSONValue(s.Default.Object)
		if unknown := pruneUnknown(value, s, false); len(unknown) > 0 {
			errs = append(errs, field.Invalid(at.Child("default"), s.Default.Object, fmt.Sprintf("must not have unknown fields: %v", unknown)))
		} else {
			errs = append(errs, valueErrors(at.Child("default"), newValues(s).Validate(value))...)
		}
	}
	for name, p := range s.Properties {
		errs = append(errs, validateDefaults(&p, at.Child("properties").Key(name))...)
	}
	if s.Items != nil {
		errs = append(errs, validateDefaults(s.Items, at.Child("items"))...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		errs = append(errs, validateDefaults(s.AdditionalProperties.Structural, at.Child("additionalProperties"))...)
	}
	return errs
}

func pruneUnknown(value any, s *structural.Structural, root bool) []string {
	return pruning.PruneWithOptions(value, s, root, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// hasUnknown tells whether pruneUnknown might remove something. It copies nothing: most stored objects fit their schema.
func hasUnknown(value any, s *structural.Structural, object bool) bool {
	if s == nil {
		return false
	}
	switch v := value.(type) {
	case map[string]any:
		for name, have := range v {
			if (object || s.XEmbeddedResource) && (name == "apiVersion" || name == "kind" || name == "metadata") {
				continue
			}
			p, known := propertyOf(s, name)
			if !known && !s.XPreserveUnknownFields && (s.AdditionalProperties == nil || !s.AdditionalProperties.Bool) || known && hasUnknown(have, p, false) {
				return true
			}
		}
	case []any:
		for i := range v {
			if hasUnknown(v[i], s.Items, false) {
				return true
			}
		}
	}
	return false
}

// fillDefaults sets what is absent, or null where null is not allowed, to the schema's defaults, from the
// outside to the inside.
func fillDefaults(value any, s *structural.Structural) {
	if s == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			have, found := v[name]
			if p.Default.Object != nil && (!found || have == nil && !p.Nullable) {
				v[name] = runtime.DeepCopyJSONValue(p.Default.Object)
			}
		}
		for name, have := range v {
			p, known := propertyOf(s, name)
			if !known {
				continue
			}
			if have == nil && !p.Nullable {
				if p.Default.Object == nil {
					delete(v, name) // a null that says nothing
					continue
				}
				have = runtime.DeepCopyJSONValue(p.Default.Object)
				v[name] = have
			}
			fillDefaults(have, p)
		}
	case []any:
		for i := range v {
			if v[i] == nil && s.Items != nil && !s.Items.Nullable && s.Items.Default.Object != nil {
				v[i] = runtime.DeepCopyJSONValue(s.Items.Default.Object)
			}
			fillDefaults(v[i], s.Items)
		}
	}
}

// lacksDefaults tells whether fillDefaults would change a value. It copies nothing: most stored objects lack none.
func lacksDefaults(value any, s *structural.Structural) bool {
	if s == nil {
		return false
	}
	switch v := value.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if have, found := v[name]; p.Default.Object != nil && (!found || have == nil && !p.Nullable) {
				return true
			}
		}
		for name, have := range v {
			if p, known := propertyOf(s, name); known && (have == nil && !p.Nullable || lacksDefaults(have, p)) {
				return true
			}
		}
	case []any:
		for i := range v {
			if s.Items != nil && v[i] == nil && !s.Items.Nullable && s.Items.Default.Object != nil || lacksDefaults(v[i], s.Items) {
				return true
			}
		}
	}
	return false
}

func propertyOf(s *structural.Structural, name string) (*structural.Structural, bool) {
	if p, ok := s.Properties[name]; ok {
		return &p, true
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		return s.AdditionalProperties.Structural, true
	}
	return nil, false
}

// newValues makes the validator of values against a schema.
func newValues(s *structural.Structural) *validate.SchemaValidator {
	return validate.NewSchemaValidator(valueSchema(s), nil, "", strfmt.Default)
}

// valueSchema is a schema as the validator reads it: it knows no extension for numbers that may be texts.
func valueSchema(s *structural.Structural) *spec.Schema {
	out := s.ToKubeOpenAPI()
	eachSchema(out, func(p *spec.Schema) {
		if is, _ := p.Extensions.GetBool("x-kubernetes-int-or-string"); is {
			p.Type = spec.StringOrArray{"integer", "string"}
		}
	})
	return out
}

// eachSchema calls f for a schema and all inside it, which it may change.
func eachSchema(s *spec.Schema, f func(*spec.Schema)) {
	if s == nil {
		return
	}
	f(s)
	for name, p := range s.Properties {
		eachSchema(&p, f)
		s.Properties[name] = p
	}
	if s.Items != nil {
		eachSchema(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil {
		eachSchema(s.AdditionalProperties.Schema, f)
	}
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			eachSchema(&list[i], f)
		}
	}
	eachSchema(s.Not, f)
}

// definitionWarnings says what of a definition is kept without effect.
func definitionWarnings(d *apiextensionsv1.CustomResourceDefinition) []string {
	var out []string
	if d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter {
		out = append(out, "spec.conversion: drydock calls no conversion webhooks; every version serves the stored fields unchanged")
	}
	for i := range d.Spec.Versions {
		if v := &d.Spec.Versions[i]; v.Schema != nil && v.Schema.OpenAPIV3Schema != nil && hasRules(v.Schema.OpenAPIV3Schema) {
			out = append(out, fmt.Sprintf("spec.versions[%d].schema.openAPIV3Schema: x-kubernetes-validations: CEL rules are stored but not enforced by drydock", i))
		}
	}
	return out
}

func hasRules(s *apiextensionsv1.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	if len(s.XValidations) > 0 {
		return true
	}
	for _, p := range s.Properties {
		if hasRules(&p) {
			return true
		}
	}
	return s.Items != nil && hasRules(s.Items.Schema) || s.AdditionalProperties != nil && hasRules(s.AdditionalProperties.Schema)
}
