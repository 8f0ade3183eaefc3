package registry

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

const (
	modelObjectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	modelListMeta   = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
	modelRef        = "#/components/schemas/"
)

// modelName is how OpenAPI documents name a kind: the group backwards.
func (k *defined) modelName() string {
	parts := strings.Split(k.gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, k.gvk.Version, k.gvk.Kind), ".")
}

// model is the kind's schema as clients see it.
func (k *defined) model() *spec.Schema {
	s := k.schema.ToKubeOpenAPI()
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	doc := metav1.TypeMeta{}.SwaggerDoc()
	s.Properties["apiVersion"] = *spec.StringProperty().WithDescription(doc["apiVersion"])
	s.Properties["kind"] = *spec.StringProperty().WithDescription(doc["kind"])
	s.Properties["metadata"] = refTo(modelObjectMeta, "Standard metadata of every object.")
	s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": k.gvk.Group, "version": k.gvk.Version, "kind": k.gvk.Kind}})
	return s
}

func refTo(model, description string) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Description: description, AllOf: []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(modelRef + model)}}}}}
}

// models returns the kind's models and its list's, made when first asked for.
func (k *defined) models(listKind string) func() map[string]*spec.Schema {
	return sync.OnceValue(func() map[string]*spec.Schema {
		name := k.modelName()
		list := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Description: listKind + " is a list of " + k.gvk.Kind, Required: []string{"items"}, Properties: map[string]spec.Schema{}}}
		doc := metav1.TypeMeta{}.SwaggerDoc()
		list.Properties["apiVersion"] = *spec.StringProperty().WithDescription(doc["apiVersion"])
		list.Properties["kind"] = *spec.StringProperty().WithDescription(doc["kind"])
		list.Properties["metadata"] = refTo(modelListMeta, "Standard metadata of every list.")
		item := refTo(name, "")
		list.Properties["items"] = *spec.ArrayProperty(&item.AllOf[0])
		list.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": k.gvk.Group, "version": k.gvk.Version, "kind": listKind}})
		return map[string]*spec.Schema{name: k.model(), name + "List": list}
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
	s := k.model()
	eachSchema(s, func(p *spec.Schema) { // an apply knows no descriptions and no rules about values
		p.Default = nil
	})
	models[k.modelName()] = s
	for v, schema := range k.others { // in which managers may have written, too
		other := *k
		other.gvk.Version, other.schema = v, schema
		m := other.model()
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
		k.Models = res.Custom.Models
		kinds = append(kinds, k)
	}
	return r.docs.With(kinds)
}
