package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// swagger builds the v2 document of all kinds.
func swagger(kinds []Kind, models map[string]*spec.Schema, title, version string) (*spec.Swagger, error) {
	out := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: version}},
		Paths:   &spec.Paths{Paths: map[string]spec.PathItem{}},
	}}
	used := closure{models: models, in: map[string]*spec.Schema{}}
	byKind := index(models)
	for i := range kinds {
		for _, o := range kinds[i].operations(byKind.of) {
			used.add(o.body)
			used.add(o.reply)
			item := out.Paths.Paths[o.path]
			if item.Parameters == nil {
				item.Parameters = v2PathParams(o.path)
			}
			v2Set(&item, o)
			out.Paths.Paths[o.path] = item
		}
	}
	defs, err := v2Models(used.in)
	if err != nil {
		return nil, err
	}
	for i := range kinds {
		if kinds[i].Old != nil {
			for name, m := range kinds[i].Old() {
				defs[name] = *m
			}
		}
	}
	out.Definitions = handler.PruneDefaults(defs)
	return out, nil
}

// v2Models rewrites models for v2, which knows no alternatives and puts references elsewhere.
func v2Models(models map[string]*spec.Schema) (spec.Definitions, error) {
	b, err := json.Marshal(models)
	if err != nil {
		return nil, fmt.Errorf("convert models to OpenAPI v2: %w", err)
	}
	b = bytes.ReplaceAll(b, []byte(`"`+v3Prefix), []byte(`"`+v2Prefix))
	var out spec.Definitions
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("convert models to OpenAPI v2: %w", err)
	}
	for name, m := range out {
		out[name] = v2Schema(m)
	}
	return out, nil
}

func v2Schema(s spec.Schema) spec.Schema {
	if len(s.AllOf) == 1 { // v3 wraps a reference that has a description beside it
		s.Ref, s.AllOf, s.Default = s.AllOf[0].Ref, nil, nil
	}
	if len(s.OneOf) > 0 || len(s.AnyOf) > 0 { // a number or a text
		s.Type, s.OneOf, s.AnyOf = spec.StringOrArray{"string"}, nil, nil
	}
	for name, p := range s.Properties {
		s.Properties[name] = v2Schema(p)
	}
	if s.Items != nil && s.Items.Schema != nil {
		item := v2Schema(*s.Items.Schema)
		s.Items = &spec.SchemaOrArray{Schema: &item}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		more := v2Schema(*s.AdditionalProperties.Schema)
		s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &more}
	}
	return s
}

func v2Set(item *spec.PathItem, o operation) {
	op := &spec.Operation{OperationProps: spec.OperationProps{
		ID: o.id, Tags: []string{o.tag}, Description: o.description, Consumes: o.consumes, Produces: o.produces, Schemes: []string{"https"},
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			200: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: v2Ref(o.reply)}},
			401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}},
	}}
	if o.body != "" {
		op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: o.body != modelDeleteOptions, Schema: v2Ref(o.body)}})
	}
	for _, q := range o.params {
		op.Parameters = append(op.Parameters, v2Param(q, "query"))
	}
	for _, code := range o.codes {
		op.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{Description: http.StatusText(code), Schema: v2Ref(o.reply)}}
	}
	op.Extensions = spec.Extensions{extAction: o.action, extGVK: gvkValue(o.gvk)}
	switch o.method {
	case "get":
		item.Get = op
	case "put":
		item.Put = op
	case "post":
		item.Post = op
	case "patch":
		item.Patch = op
	case "delete":
		item.Delete = op
	}
}

func v2Ref(model string) *spec.Schema {
	if model == "" {
		return nil
	}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(v2Prefix + model)}}
}

func v2Param(q param, in string) spec.Parameter {
	return spec.Parameter{
		SimpleSchema:      spec.SimpleSchema{Type: q.kind},
		CommonValidations: spec.CommonValidations{UniqueItems: true},
		ParamProps:        spec.ParamProps{Name: q.name, In: in, Required: in == "path", Description: q.description},
	}
}

func v2PathParams(path string) []spec.Parameter {
	var out []spec.Parameter
	for _, p := range pathParams(path) {
		out = append(out, v2Param(param{p.Name, p.Schema.Type[0], p.Description}, p.In))
	}
	return out
}
