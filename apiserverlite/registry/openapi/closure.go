package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// closure collects models and everything that they refer to.
type closure struct {
	models, in map[string]*spec.Schema
}

// Closure returns the named models and all that they refer to.
func Closure(models map[string]*spec.Schema, names ...string) map[string]*spec.Schema {
	c := closure{models: models, in: map[string]*spec.Schema{}}
	for _, n := range names {
		c.add(n)
	}
	return c.in
}

func (c *closure) add(name string) {
	m, ok := c.models[name]
	if _, done := c.in[name]; done || !ok {
		return
	}
	c.in[name] = m
	walk(m, func(s *spec.Schema) { c.add(refName(s)) })
}

// walk calls f for a schema and all schemas inside it. It changes nothing: models are shared.
func walk(s *spec.Schema, f func(*spec.Schema)) {
	if s == nil {
		return
	}
	f(s)
	for _, p := range s.Properties {
		walk(&p, f)
	}
	if s.Items != nil {
		walk(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, f)
	}
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			walk(&list[i], f)
		}
	}
}

// refName is the model that a schema refers to, or "".
func refName(s *spec.Schema) string {
	ref := s.Ref.String()
	return ref[strings.LastIndex(ref, "/")+1:]
}
