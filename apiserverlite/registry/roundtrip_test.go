package registry_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// Defaulting is idempotent, and no hook touches the old object.
func TestStrategiesRoundTrip(t *testing.T) {
	ctx := context.Background()
	for _, r := range reg(t).Resources() {
		t.Run(r.GVR.String(), func(t *testing.T) {
			obj := r.New()
			m, err := meta.Accessor(obj)
			if err != nil {
				t.Fatal(err)
			}
			m.SetName("x")
			if r.Namespaced {
				m.SetNamespace("ns")
			}
			r.Strategy.Default(obj)
			r.Strategy.PrepareForCreate(ctx, obj)
			r.Strategy.Default(obj)
			again := obj.DeepCopyObject()
			r.Strategy.Default(again)
			if d := cmp.Diff(obj, again); d != "" {
				t.Errorf("a second defaulting changes the object:\n%s", d)
			}
			r.Strategy.Validate(ctx, obj)
			r.Strategy.WarningsOnCreate(ctx, obj)
			strategies := []interface {
				PrepareForUpdate(context.Context, runtime.Object, runtime.Object)
			}{r.Strategy}
			for _, s := range r.Subresources {
				if s.Strategy != nil {
					strategies = append(strategies, s.Strategy)
				}
			}
			for _, s := range strategies {
				old, next := obj.DeepCopyObject(), obj.DeepCopyObject()
				s.PrepareForUpdate(ctx, next, old)
				if d := cmp.Diff(obj, old); d != "" {
					t.Errorf("PrepareForUpdate changes the old object:\n%s", d)
				}
				if d := cmp.Diff(obj, next); d != "" {
					t.Errorf("an update with nothing new changes the object:\n%s", d)
				}
			}
			before, beforeAgain := obj.DeepCopyObject(), again.DeepCopyObject()
			r.Strategy.ValidateUpdate(ctx, again, obj)
			r.Strategy.WarningsOnUpdate(ctx, again, obj)
			if d := cmp.Diff([]runtime.Object{before, beforeAgain}, []runtime.Object{obj, again}); d != "" {
				t.Errorf("validation changes an object:\n%s", d)
			}
			r.Strategy.ResetFields()
			for name, s := range r.Subresources {
				if s.Strategy != nil {
					for _, e := range s.Strategy.ValidateUpdate(ctx, again, obj) {
						if e.Type == "InternalError" {
							t.Errorf("%s: %v", name, e)
						}
					}
					s.Strategy.ResetFields()
				}
			}
			if r.ToStorage != nil {
				stored, err := r.ToStorage(obj)
				if err != nil {
					t.Fatal(err)
				}
				back, err := r.FromStorage(stored)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(obj, back); d != "" {
					t.Errorf("lost on the way to the store and back:\n%s", d)
				}
			}
			set := r.Fields(obj)
			if set["metadata.name"] != "x" {
				t.Errorf("fields %v", set)
			}
			list := r.NewList()
			if err := meta.SetList(list, []runtime.Object{obj}); err != nil {
				t.Fatal(err)
			}
			for _, o := range []runtime.Object{obj, list} {
				tab, err := r.Table(ctx, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(tab.Rows) != 1 || len(tab.Rows[0].Cells) != len(tab.ColumnDefinitions) || tab.Rows[0].Cells[0] != "x" && tab.ColumnDefinitions[0].Name == "Name" {
					t.Errorf("table %+v", tab)
				}
			}
		})
	}
}

// A claim that an older version has stored, with one of its two data sources, is not changed by looking at it.
func TestValidationLeavesOldObjectsAlone(t *testing.T) {
	r := find(t, "persistentvolumeclaims")
	obj := parse(t, r, `{metadata: {name: c, namespace: ns, resourceVersion: "1"}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}}}`)
	old := obj.DeepCopyObject()
	r.Strategy.PrepareForUpdate(context.Background(), obj, old)
	if errs := r.Strategy.ValidateUpdate(context.Background(), obj, old); len(errs) > 0 {
		t.Error(errs)
	}
	if c := old.(*corev1.PersistentVolumeClaim); c.Spec.DataSourceRef != nil || c.Spec.DataSource == nil {
		t.Errorf("old: %+v", c.Spec)
	}
	if c := obj.(*corev1.PersistentVolumeClaim); c.Spec.DataSourceRef == nil {
		t.Errorf("new: %+v", c.Spec)
	}
}
