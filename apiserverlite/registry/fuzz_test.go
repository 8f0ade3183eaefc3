package registry_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
)

// FuzzHooks: whatever a client sends, no hook panics and none changes the old object.
func FuzzHooks(f *testing.F) {
	all := reg(f).Resources()
	for i, r := range all {
		for _, x := range tables {
			if x.plural == r.GVR.Resource {
				if b, err := yaml.YAMLToJSON([]byte(x.docs)); err == nil {
					f.Add(uint8(i), b, b)
				}
			}
		}
		f.Add(uint8(i), []byte(`{}`), []byte(`{"metadata":{"name":"x"},"spec":{},"status":{}}`))
	}
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, i uint8, body, before []byte) {
		for _, b := range [][]byte{body, before} {
			if _, outsized := registry.Outsized(b); outsized {
				return // refused before anything is decoded
			}
		}
		r := all[int(i)%len(all)]
		obj, old := r.New(), r.New()
		if json.Unmarshal(body, obj) != nil || json.Unmarshal(before, old) != nil {
			return
		}
		r.Strategy.Default(obj)
		r.Strategy.Default(old)
		fresh := obj.DeepCopyObject()
		r.Strategy.PrepareForCreate(ctx, fresh)
		r.Strategy.Default(fresh)
		r.Strategy.Validate(ctx, fresh)
		r.Strategy.WarningsOnCreate(ctx, fresh)
		strategies := []interface {
			PrepareForUpdate(context.Context, runtime.Object, runtime.Object)
			WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string
		}{r.Strategy}
		for _, s := range r.Subresources {
			if s.Strategy != nil {
				strategies = append(strategies, s.Strategy)
			}
		}
		kept := old.DeepCopyObject()
		for _, s := range strategies {
			next := obj.DeepCopyObject()
			s.PrepareForUpdate(ctx, next, old)
			r.Strategy.Default(next)
			r.Strategy.ValidateUpdate(ctx, next, old)
			s.WarningsOnUpdate(ctx, next, old)
		}
		if d := cmp.Diff(kept, old); d != "" {
			t.Errorf("%s: the old object has changed:\n%s", r.GVR, d)
		}
		r.Fields(obj)
		if _, err := r.Table(ctx, obj, nil); err != nil {
			t.Errorf("%s: %v", r.GVR, err)
		}
		if r.ToStorage != nil {
			if _, err := r.ToStorage(obj); err != nil {
				t.Errorf("%s: %v", r.GVR, err)
			}
		}
	})
}
