package openapi

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// documented is a type that carries its documentation; the key "" is the type itself.
type documented interface{ SwaggerDoc() map[string]string }

// named is a type that knows its model.
type named interface{ OpenAPIModelName() string }

// plainTypes describes types that have no documentation which a program could read.
var plainTypes = map[string]string{
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   "A number with a unit: 100m, 2, 512Mi, 10Gi, 1e3.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":       "A time in whole seconds, as RFC 3339 writes it.",
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":  "A time in microseconds, as RFC 3339 writes it.",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": "A number, or a text such as a percentage or the name of a port.",
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    "An object of any kind.",
}

// describe fills in descriptions from the documentation of the examples' types and all that they hold.
// What has none stays without.
func describe(models map[string]*spec.Schema, examples []any) {
	for name, text := range plainTypes {
		if m := models[name]; m != nil {
			m.Description = text
		}
	}
	d := describer{models: models, seen: map[reflect.Type]bool{}}
	for _, x := range examples {
		d.visit(reflect.TypeOf(x))
	}
}

type describer struct {
	models map[string]*spec.Schema
	seen   map[reflect.Type]bool
}

func (d *describer) visit(t reflect.Type) {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || d.seen[t] {
		return
	}
	d.seen[t] = true
	d.fill(t)
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			d.visit(f.Type)
		}
	}
}

func (d *describer) fill(t reflect.Type) {
	v := reflect.Zero(t).Interface()
	n, ok := v.(named)
	if !ok {
		return
	}
	m := d.models[n.OpenAPIModelName()]
	doc, ok := v.(documented)
	if m == nil || !ok {
		return
	}
	for name, text := range doc.SwaggerDoc() {
		if name == "" {
			m.Description = text
			continue
		}
		if p, ok := m.Properties[name]; ok {
			p.Description = text + values(p.Enum)
			m.Properties[name] = p
		}
	}
	d.inherit(t, m)
}

// inherit takes the descriptions of embedded structs whose fields are the outer one's in JSON (TypeMeta).
func (d *describer) inherit(t reflect.Type, m *spec.Schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous || f.Type.Kind() != reflect.Struct || name != "" {
			continue
		}
		doc, ok := reflect.Zero(f.Type).Interface().(documented)
		if !ok {
			continue
		}
		for name, text := range doc.SwaggerDoc() {
			if p, ok := m.Properties[name]; ok && name != "" && p.Description == "" {
				p.Description = text + values(p.Enum)
				m.Properties[name] = p
			}
		}
	}
}

// values is how upstream lists the values that a text may have, below its description. What it says of each value is
// in no Go type's documentation.
func values(list []any) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nPossible enum values:")
	for _, v := range list {
		fmt.Fprintf(&b, "\n - `%q`", v)
	}
	return b.String()
}
