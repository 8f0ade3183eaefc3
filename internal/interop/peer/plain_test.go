package peer

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

// headers are those that a client acts on.
var headers = []string{"Content-Type", "Warning", "Retry-After", "Allow", "Location", "Content-Encoding", "Vary", "Etag", "Cache-Control", "X-Content-Type-Options"}

var (
	stamp   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	address = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	volume  = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	seconds = regexp.MustCompile(`^\d+s$`)
	// named are revisions and uids within a text.
	named = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|resourceVersion\\*":\\*"\d+|resource version: \d+, current: \d+|ResourceVersion in record \(\d+`)
)

// text is a string apart from the names in it that each server gives itself.
type text struct {
	frame string
	names []string
}

// revision is a text that is one name as a whole.
const revision = "<revision>"

// plain is an answer as a tree whose strings are texts, without what no two servers agree on.
func (p *playing) plain(a *corpus.Answer) map[string]any {
	out := map[string]any{"code": a.Code}
	for _, h := range headers {
		if v := a.Header.Values(h); len(v) > 0 {
			out["header "+h] = p.text(strings.Join(v, "; "))
		}
	}
	switch {
	case a.Events != nil:
		out["events"] = p.value("", a.Events)
	case a.Object != nil:
		out["body"] = p.value("", a.Object)
		out["indented"] = strings.Contains(a.Raw, "\n  ")
	case strings.Contains(a.Header.Get("Content-Type"), "yaml"):
		var v any
		if err := yaml.Unmarshal([]byte(a.Raw), &v); err != nil {
			out["body"] = err.Error()
			break
		}
		out["body"] = p.value("", v)
	default:
		out["body"] = p.text(a.Raw)
	}
	return out
}

func (p *playing) text(s string) text {
	s = stamp.ReplaceAllString(s, "<time>")
	if p.generated != nil {
		s = p.generated.ReplaceAllString(s, "$1<random>")
	}
	s = volume.ReplaceAllString(s, "kube-api-access-<random>")
	s = address.ReplaceAllString(s, "<address>")
	t := text{names: named.FindAllString(s, -1)}
	t.frame = named.ReplaceAllString(s, "<name>")
	return t
}

func (p *playing) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = p.value(k, e)
		}
		return out
	case []any:
		switch key {
		case "managedFields":
			v = byManager(v)
		case "causes": // of a schema's properties, whose order is nobody's
			v = slices.SortedStableFunc(slices.Values(v), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = p.value(key, e)
		}
		return out
	case string:
		switch {
		case key == "resourceVersion" && v != "" && v != "0":
			return text{frame: revision, names: []string{"resourceVersion " + v}}
		case key == "continue" && v != "", key == "token", key == "serverAddress":
			return text{frame: "<" + key + ">"}
		case key == "message" && strings.Contains(v, " is invalid: ["):
			start, _, _ := strings.Cut(v, " is invalid: [")
			return p.text(start + " is invalid: <the causes>")
		case key == "cells" && seconds.MatchString(v):
			return text{frame: "<age>"}
		}
		return p.text(v)
	}
	return v
}

// byManager orders managedFields, which are in the order of their times.
func byManager(entries []any) []any {
	of := func(e any) string {
		m, _ := e.(map[string]any)
		return fmt.Sprint(m["operation"], m["manager"], m["subresource"])
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e any) bool {
		m, _ := e.(map[string]any)
		return m["manager"] == "peer-kinds" // upstream's controllers, where ours has none
	})
	return slices.SortedStableFunc(slices.Values(entries), func(a, b any) int { return strings.Compare(of(a), of(b)) })
}

// pairs are the names that the two servers have given to the same things.
type pairs struct{ ours, theirs map[string]string }

func newPairs() pairs { return pairs{map[string]string{}, map[string]string{}} }

// same holds two names against those that were paired before.
func (p pairs) same(theirs, ours string) bool {
	a, known := p.ours[theirs]
	b, taken := p.theirs[ours]
	if !known && !taken {
		p.ours[theirs], p.theirs[ours] = ours, theirs
		return true
	}
	return a == ours && b == theirs
}

// forget unpairs the revisions of two answers: upstream's controllers are going to write what they are about once more.
func (p pairs) forget(theirs, ours *corpus.Answer) {
	a, b := revisionOf(theirs), revisionOf(ours)
	delete(p.theirs, p.ours[a])
	delete(p.ours, a)
	delete(p.ours, p.theirs[b])
	delete(p.theirs, b)
}

func revisionOf(a *corpus.Answer) string {
	o, _ := a.Object.(map[string]any)
	m, _ := o["metadata"].(map[string]any)
	return fmt.Sprint("resourceVersion ", m["resourceVersion"])
}

// differences lists where two trees differ.
func (p pairs) differences(theirs, ours any) (out []string) {
	p.walk("", theirs, ours, &out)
	return out
}

func (p pairs) walk(path string, a, b any, out *[]string) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			p.walkMaps(path, a, b, out)
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				p.walk(fmt.Sprintf("%s[%d]", path, i), a[i], b[i], out)
			}
			return
		}
	case text:
		if b, ok := b.(text); ok && a.frame == b.frame && len(a.names) == len(b.names) {
			for i := range a.names {
				if !p.same(a.names[i], b.names[i]) {
					*out = append(*out, fmt.Sprintf("  %s: upstream's %s is not what ours calls %s", path, a.names[i], b.names[i]))
				}
			}
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		*out = append(*out, fmt.Sprintf("  %s: upstream's %s, ours %s", path, brief(a), brief(b)))
	}
}

func (p pairs) walkMaps(path string, a, b map[string]any, out *[]string) {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		va, ina := a[k]
		vb, inb := b[k]
		switch at := path + "." + k; {
		case !ina:
			*out = append(*out, fmt.Sprintf("  %s: only ours has %s", at, brief(vb)))
		case !inb:
			*out = append(*out, fmt.Sprintf("  %s: only upstream's has %s", at, brief(va)))
		default:
			p.walk(at, va, vb, out)
		}
	}
}

// MarshalJSON shows a text in a difference.
func (t text) MarshalJSON() ([]byte, error) { return json.Marshal(t.frame) }

func brief(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	if s := strings.TrimSpace(b.String()); len(s) <= 700 {
		return s
	}
	return b.String()[:700] + "..."
}
