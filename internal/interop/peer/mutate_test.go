package peer

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// change is one place of an object made otherwise.
type change struct {
	path  []any // names of fields and numbers of items
	value any
	drop  bool
}

func (c change) String() string {
	at := ""
	for _, p := range c.path {
		if i, ok := p.(int); ok {
			at += fmt.Sprintf("[%d]", i)
			continue
		}
		at += "." + fmt.Sprint(p)
	}
	if c.drop {
		return at + " left out"
	}
	b, err := json.Marshal(c.value)
	if err != nil {
		return at + ": " + err.Error()
	}
	if len(b) > 60 {
		b = fmt.Appendf(nil, "%s... (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%s = %s", at, b)
}

// in returns a copy of an object with the change.
func (c change) in(object any) any {
	if len(c.path) == 0 {
		return c.value
	}
	rest := change{path: c.path[1:], value: c.value, drop: c.drop}
	switch p := c.path[0].(type) {
	case int:
		out := slices.Clone(object.([]any))
		if len(rest.path) == 0 && c.drop {
			return slices.Delete(out, p, p+1)
		}
		out[p] = rest.in(out[p])
		return out
	default:
		m, _ := object.(map[string]any)
		out := maps.Clone(m)
		if out == nil {
			out = map[string]any{}
		}
		name := p.(string)
		if len(rest.path) == 0 && c.drop {
			delete(out, name)
			return out
		}
		out[name] = rest.in(out[name])
		return out
	}
}

// changer makes changes by the schemas that upstream's server publishes.
type changer struct {
	schemas map[string]map[string]any
	// closed are the schemas that are changed as a whole only.
	closed map[string]bool
	// below is how deep what an object does not have is gone into.
	below int
}

// changes lists what may be otherwise in a value that is there.
func (c *changer) changes(s map[string]any, v any) (out []change) {
	s, name := c.resolve(s)
	for _, w := range c.values(s) {
		if !reflect.DeepEqual(w, v) {
			out = append(out, change{value: w})
		}
	}
	if c.closed[name] {
		return out
	}
	switch v := v.(type) {
	case map[string]any:
		out = append(out, c.ofMap(s, v)...)
	case []any:
		items, _ := s["items"].(map[string]any)
		for i, e := range v {
			out = append(out, change{path: []any{i}, drop: true})
			for _, ch := range c.changes(items, e) {
				out = append(out, ch.under(i))
			}
		}
		if len(v) > 0 {
			out = append(out, change{value: append(slices.Clone(v), v[0])})
		}
	}
	return out
}

func (c change) under(p any) change {
	c.path = append([]any{p}, c.path...)
	return c
}

func (c *changer) ofMap(s, v map[string]any) (out []change) {
	properties, _ := s["properties"].(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(v)) {
		of, ok := properties[k].(map[string]any)
		if !ok {
			of, ok = s["additionalProperties"].(map[string]any)
		}
		out = append(out, change{path: []any{k}, drop: true})
		if !ok {
			continue
		}
		for _, ch := range c.changes(of, v[k]) {
			out = append(out, ch.under(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(properties)) {
		if _, there := v[k]; there {
			continue
		}
		for _, ch := range c.absent(properties[k].(map[string]any), c.below) {
			out = append(out, ch.under(k))
		}
	}
	return out
}

// absent lists what may be put where nothing is.
func (c *changer) absent(s map[string]any, below int) (out []change) {
	s, name := c.resolve(s)
	for _, w := range c.values(s) {
		out = append(out, change{value: w})
	}
	if c.closed[name] || below == 0 || strings.HasSuffix(name, ".JSONSchemaProps") {
		return out
	}
	if items, ok := s["items"].(map[string]any); ok {
		for _, ch := range c.absent(items, below-1) {
			out = append(out, change{value: []any{ch.in(c.least(items))}})
		}
		return out
	}
	properties, _ := s["properties"].(map[string]any)
	start := c.least(s)
	for _, k := range slices.Sorted(maps.Keys(properties)) {
		for _, ch := range c.absent(properties[k].(map[string]any), below-1) {
			out = append(out, change{value: ch.under(k).in(start)})
		}
	}
	return out
}

// values are what a schema's value may be replaced with, good and bad.
func (c *changer) values(s map[string]any) (out []any) {
	defer func() { out = append(out, nil) }()
	if s["x-kubernetes-int-or-string"] == true || s["format"] == "int-or-string" {
		return []any{0, 1, -1, "50%", "-5%", "150%", "x", ""}
	}
	if s["oneOf"] != nil { // a quantity
		return []any{"0", "1", "3Gi", "-1", "1500m", "x", 2}
	}
	if enum, ok := s["enum"].([]any); ok {
		return append(slices.Clone(enum), "", "Bogus")
	}
	switch s["type"] {
	case "integer":
		return []any{0, 1, -1, 70000, 1 << 31, 1.5, "x"}
	case "number":
		return []any{0, -1, 1.5, "x"}
	case "boolean":
		return []any{true, false, "x"}
	case "string":
		switch s["format"] {
		case "date-time":
			return []any{"2026-02-02T00:00:00Z", "yesterday", ""}
		case "byte":
			return []any{"", "YWJj", "?"}
		}
		return []any{"", "a", "A_!", "-", "a/b", "example.com/a", "/a/../b", "10.0.0.1", strings.Repeat("a", 64), strings.Repeat("a", 300), "e\u0301", 5}
	case "array":
		return []any{[]any{}, []any{nil}, []any{c.least(s["items"].(map[string]any))}, map[string]any{}}
	}
	out = []any{map[string]any{}, []any{}}
	if of, ok := s["additionalProperties"].(map[string]any); ok {
		v := c.least(of)
		for _, k := range []string{"a", "", "A b", "example.com/a", "kubernetes.io/a", "-", strings.Repeat("a", 300)} {
			out = append(out, map[string]any{k: v})
		}
		return out
	}
	if least := c.least(s); least != nil && !reflect.DeepEqual(least, map[string]any{}) {
		out = append(out, least)
	}
	return out
}

// least is a small value of a schema: what it requires, and that is good more often than not.
func (c *changer) least(s map[string]any) any {
	s, _ = c.resolve(s)
	if enum, ok := s["enum"].([]any); ok {
		return enum[0]
	}
	if s["oneOf"] != nil {
		return "1"
	}
	switch s["type"] {
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "string":
		switch s["format"] {
		case "date-time":
			return "2026-02-02T00:00:00Z"
		case "byte":
			return "YWJj"
		}
		return "a"
	case "array":
		return []any{c.least(s["items"].(map[string]any))}
	}
	out := map[string]any{}
	required, _ := s["required"].([]any)
	for _, k := range required {
		out[k.(string)] = c.least(s["properties"].(map[string]any)[k.(string)].(map[string]any))
	}
	return out
}

// resolve follows a reference and tells the name of what it leads to.
func (c *changer) resolve(s map[string]any) (map[string]any, string) {
	if all, ok := s["allOf"].([]any); ok && len(all) == 1 {
		s = all[0].(map[string]any)
	}
	ref, ok := s["$ref"].(string)
	if !ok {
		return s, ""
	}
	name := strings.TrimPrefix(ref, "#/components/schemas/")
	return c.schemas[name], name
}
