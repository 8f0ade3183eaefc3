package registry

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemaOf is a version's schema in upstream's two forms: as it was written, and its structure.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.JSONSchemaProps, *structural.Structural, error) {
	in := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, in, nil); err != nil {
		return nil, nil, err
	}
	s, err := structural.NewStructural(in)
	return in, s, err
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
