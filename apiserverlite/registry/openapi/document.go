package openapi

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	extGVK    = "x-kubernetes-group-version-kind"
	extAction = "x-kubernetes-action"
	v3Prefix  = "#/components/schemas/"
	v2Prefix  = "#/definitions/"
)

// names finds the model of each kind.
type names map[schema.GroupVersionKind]string

// index reads the kinds from the models' extensions.
func index(models map[string]*spec.Schema) names {
	out := names{}
	for name, m := range models {
		list, _ := m.Extensions[extGVK].([]any)
		for _, x := range list {
			o, _ := x.(map[string]any)
			group, _ := o["group"].(string)
			version, _ := o["version"].(string)
			kind, _ := o["kind"].(string)
			out[schema.GroupVersionKind{Group: group, Version: version, Kind: kind}] = name
		}
	}
	return out
}

func (n names) of(gvk schema.GroupVersionKind) string { return n[gvk] }

// document builds the v3 document of the kinds of one group and version.
func document(kinds []Kind, models map[string]*spec.Schema, title, version string) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version: "3.0.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		Paths:   &spec3.Paths{Paths: map[string]*spec3.Path{}},
	}
	used := closure{models: models, in: map[string]*spec.Schema{}}
	byKind := index(models)
	for i := range kinds {
		for _, o := range kinds[i].operations(byKind.of) {
			used.add(o.body)
			used.add(o.reply)
			p := doc.Paths.Paths[o.path]
			if p == nil {
				p = &spec3.Path{PathProps: spec3.PathProps{Parameters: pathParams(o.path)}}
				doc.Paths.Paths[o.path] = p
			}
			set(p, o)
		}
	}
	doc.Components = &spec3.Components{Schemas: used.in}
	return doc
}

func set(p *spec3.Path, o operation) {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		Description: o.description, OperationId: o.id, Tags: []string{o.tag},
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			200: {ResponseProps: spec3.ResponseProps{Description: "OK", Content: content(o.reply, o.produces)}},
			401: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
	for _, code := range o.codes {
		op.Responses.StatusCodeResponses[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{Description: http.StatusText(code), Content: content(o.reply, o.produces)}}
	}
	for _, q := range o.params {
		op.Parameters = append(op.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name: q.name, In: "query", Description: q.description, Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{q.kind}, UniqueItems: true}},
		}})
	}
	if o.body != "" {
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: content(o.body, o.consumes), Required: o.body != modelDeleteOptions}}
	}
	op.Extensions = spec.Extensions{extAction: o.action, extGVK: gvkValue(o.gvk)}
	switch o.method {
	case "get":
		p.Get = op
	case "put":
		p.Put = op
	case "post":
		p.Post = op
	case "patch":
		p.Patch = op
	case "delete":
		p.Delete = op
	}
}

func gvkValue(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

func content(model string, types []string) map[string]*spec3.MediaType {
	if model == "" {
		return nil
	}
	out := map[string]*spec3.MediaType{}
	for _, t := range types {
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(v3Prefix + model)}}}}
	}
	return out
}

func pathParams(path string) []*spec3.Parameter {
	var out []*spec3.Parameter
	for _, name := range []string{"name", "namespace"} {
		if strings.Contains(path, "{"+name+"}") {
			out = append(out, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
				Name: name, In: "path", Required: true, Description: name + " of the object", Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}, UniqueItems: true}},
			}})
		}
	}
	return append(out, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: pretty.name, In: "query", Description: pretty.description, Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{pretty.kind}, UniqueItems: true}},
	}})
}
