package registry

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

const (
	modelObjectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	modelListMeta   = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
)

// modelName is how OpenAPI documents name a kind: the group backwards.
func (k *defined) modelName() string {
	parts := strings.Split(k.gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, k.gvk.Version, k.gvk.Kind), ".")
}

// dialect is a version of OpenAPI.
type dialect struct {
	refs string
	old  bool // version 2, which knows less of what a schema can say
}

var (
	v3 = dialect{refs: "#/components/schemas/"}
	v2 = dialect{refs: "#/definitions/", old: true}
)

// model is the kind's schema as clients see it.
func (k *defined) model(in dialect) *spec.Schema {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	if !in.old || !k.schema.XPreserveUnknownFields { // kubectl refuses what version 2 does not tell of, if it tells of anything
		shape := k.schema.Unfold()
		if in.old {
			shape = openapiv2.ToStructuralOpenAPIV2(shape)
		}
		s = shape.ToKubeOpenAPI()
		in.describe(s, metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"], modelObjectMeta)
		in.embed(s)
	}
	k.tell(s, k.gvk.Kind)
	return s
}

// describe adds what every object has.
func (in dialect) describe(s *spec.Schema, metadata, model string) {
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	doc := metav1.TypeMeta{}.SwaggerDoc()
	s.Properties["apiVersion"] = *spec.StringProperty().WithDescription(doc["apiVersion"])
	s.Properties["kind"] = *spec.StringProperty().WithDescription(doc["kind"])
	ref := spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(in.refs + model)}}
	if in.old {
		s.Properties["metadata"] = *ref.WithDescription(metadata)
		return
	}
	s.Properties["metadata"] = spec.Schema{SchemaProps: spec.SchemaProps{Description: metadata, AllOf: []spec.Schema{ref}}}
}

// embed describes objects within an object.
func (in dialect) embed(s *spec.Schema) {
	for name, p := range s.Properties {
		in.embed(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		in.embed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		in.embed(s.AdditionalProperties.Schema)
	}
	if free, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); free && in.old {
		return
	}
	if object, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !object {
		return
	}
	in.describe(s, metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"], modelObjectMeta)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// tell names the kind and the fields that its objects can be selected by.
func (k *defined) tell(s *spec.Schema, kind string) {
	s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": k.gvk.Group, "version": k.gvk.Version, "kind": kind}})
	if len(k.selectable) > 0 {
		s.AddExtension("x-kubernetes-selectable-fields", k.selectable)
	}
}

// models returns the kind's models and its list's, made when first asked for.
func (k *defined) models(in dialect, names apiextensionsv1.CustomResourceDefinitionNames) func() map[string]*spec.Schema {
	return sync.OnceValue(func() map[string]*spec.Schema {
		name := k.modelName()
		list := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Description: names.ListKind + " is a list of " + k.gvk.Kind, Required: []string{"items"}}}
		in.describe(list, metav1.PartialObjectMetadataList{}.SwaggerDoc()["metadata"], modelListMeta)
		item := spec.ArrayProperty(&spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(in.refs + name)}})
		list.Properties["items"] = *item.WithDescription("List of " + names.Plural + ".")
		k.tell(list, names.ListKind)
		return map[string]*spec.Schema{name: k.model(in), name + "List": list}
	})
}

// metaModels are the models that every custom kind refers to.
var metaModels = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	all, err := openapi.Models()
	if err != nil {
		return nil, err
	}
	return openapi.Closure(all, modelObjectMeta, modelListMeta), nil
})

// types knows how the kind's fields merge.
func (k *defined) types() (managedfields.TypeConverter, error) {
	models, err := metaModels()
	if err != nil {
		return nil, err
	}
	models = maps.Clone(models)
	s := k.model(v3)
	eachSchema(s, func(p *spec.Schema) { // an apply knows no descriptions and no rules about values
		p.Default = nil
	})
	models[k.modelName()] = s
	for v, schema := range k.others { // in which managers may have written, too
		other := *k
		other.gvk.Version, other.schema = v, schema
		m := other.model(v3)
		eachSchema(m, func(p *spec.Schema) { p.Default = nil })
		models[other.modelName()] = m
	}
	preserve, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	c, err := managedfields.NewTypeConverter(models, preserve)
	if err != nil {
		return nil, fmt.Errorf("read the merge rules of %s: %w", k.gvk, err)
	}
	return c, nil
}

// OpenAPIWith is OpenAPI with the resources of definitions.
func (r *Registry) OpenAPIWith(defined []*Resource) http.Handler {
	if len(defined) == 0 {
		return r.docs
	}
	var kinds []openapi.Kind
	for _, res := range defined {
		k := openAPIKind(res)
		k.Models, k.Old = res.Custom.Models, res.Custom.OldModels
		kinds = append(kinds, k)
	}
	return r.docs.With(kinds)
}
