package registry_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
)

// nonsense stands where a manifest had a value.
var nonsense = []string{"-1", "9223372036854775807", "null", "{}", "[]", `""`, "1Ei", `"1e999"`, `"99999999999999999999999999999999999999999999999999Ei"`, "0.000000000001", `"../x"`, "true", `"\u0000"`, `"-"`, "[null]"}

// Manifests with a few values replaced by nonsense are refused or taken, but never end in a panic or a long
// calculation.
func TestNonsense(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SampledFrom(tables).Draw(t, "kind")
		var r *registry.Resource
		for _, res := range all(t) {
			if res.GVR.Resource == x.plural {
				r = res
				break
			}
		}
		b, err := yaml.YAMLToJSON([]byte(x.docs))
		if err != nil {
			t.Skip()
		}
		var doc any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			spoil(t, doc)
		}
		if b, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
		obj := r.New()
		if json.Unmarshal(b, obj) != nil {
			return
		}
		start := time.Now()
		r.Strategy.Default(obj)
		old := obj.DeepCopyObject()
		r.Strategy.PrepareForCreate(ctx, obj)
		r.Strategy.Default(obj)
		r.Strategy.Validate(ctx, obj)
		r.Strategy.PrepareForUpdate(ctx, obj, old)
		r.Strategy.ValidateUpdate(ctx, obj, old)
		if _, err := r.Table(ctx, obj, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Fatalf("%v for %s", took, b)
		}
	})
}

func all(t *rapid.T) []*registry.Resource {
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r.Resources()
}

// spoil replaces one value somewhere in a document.
func spoil(t *rapid.T, doc any) {
	for {
		m, ok := doc.(map[string]any)
		if !ok || len(m) == 0 {
			return
		}
		var keys []string
		for k := range m {
			keys = append(keys, k)
		}
		k := rapid.SampledFrom(sorted(keys)).Draw(t, "key")
		next := m[k]
		if list, isList := next.([]any); isList && len(list) > 0 {
			next = list[0]
		}
		if _, deeper := next.(map[string]any); deeper && rapid.Bool().Draw(t, "deeper") {
			doc = next
			continue
		}
		var v any
		if json.Unmarshal([]byte(rapid.SampledFrom(nonsense).Draw(t, "value")), &v) == nil {
			m[k] = v
		}
		return
	}
}
