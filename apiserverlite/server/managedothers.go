package server

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// managedFields of what is not a stored, built-in kind.

// questions is the field manager of a kind that is not stored: a review, the body of a subresource.
func (t *tracker) questions(kind schema.GroupVersionKind, sub string) (*managedfields.FieldManager, error) {
	return t.once(trackKey{nil, sub + " " + kind.Kind}, func(types managedfields.TypeConverter) (*managedfields.FieldManager, error) {
		m, err := managedfields.NewDefaultFieldManager(types, t.s.cfg.Scheme, t.s.cfg.Scheme, t.s.cfg.Scheme, kind, kind.GroupVersion(), sub, nil)
		if err != nil {
			return nil, fmt.Errorf("managed fields of %s: %w", kind.Kind, err)
		}
		return m, nil
	})
}

// trackAsCustom is track for a kind that has Go types here and is a custom resource upstream: there an
// empty object has no empty structs in it, so that the structs themselves are fields that somebody sets.
func (w *writing) trackAsCustom(old, obj runtime.Object) (runtime.Object, error) {
	m, err := w.s.tracker.once(trackKey{w.res, w.sub + " custom"}, func(types managedfields.TypeConverter) (*managedfields.FieldManager, error) {
		reset := map[fieldpath.APIVersion]fieldpath.Filter{}
		for v, set := range w.strategy.ResetFields() {
			reset[v] = fieldpath.NewExcludeSetFilter(set)
		}
		k := unstructuredKinds{}
		return managedfields.NewDefaultCRDFieldManager(types, k, k, k, w.res.GVK, w.res.GVK.GroupVersion(), w.sub, reset)
	})
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", w.res.GVR, err)
	}
	oldMeta, err := metaOf(old)
	if err != nil {
		return nil, err
	}
	live, now := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	live.SetGroupVersionKind(w.res.GVK)
	if oldMeta.GetUID() != "" { // else it is a new, empty object of our own
		if live.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(old); err != nil {
			return nil, err
		}
	}
	if now.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, err
	}
	live.SetGroupVersionKind(w.res.GVK)
	now.SetGroupVersionKind(w.res.GVK)
	tracked, err := metaOf(m.UpdateNoErrors(live, now, w.manager))
	if err != nil {
		return nil, err
	}
	own, err := metaOf(obj)
	if err != nil {
		return nil, err
	}
	own.SetManagedFields(tracked.GetManagedFields())
	return obj, nil
}
