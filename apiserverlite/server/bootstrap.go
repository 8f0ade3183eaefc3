package server

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/storage"
)

// bootstrap creates what every cluster has and this one lacks.
func (s *Server) bootstrap(ctx context.Context) error {
	b, ok := s.cfg.Registry.(interface{ Bootstrap() []runtime.Object })
	if !ok {
		return nil
	}
	for _, o := range b.Bootstrap() {
		kinds, _, err := s.cfg.Scheme.ObjectKinds(o)
		if err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
		m, err := metaOf(o)
		if err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
		var res *resource
		for _, r := range s.resources {
			for _, k := range kinds {
				if r.GVK == k {
					res = r
				}
			}
		}
		if res == nil {
			return fmt.Errorf("bootstrap %s: no resource serves %v", storage.Path(m.GetNamespace(), m.GetName()), kinds)
		}
		if _, exists := s.store.Get(res.key(m.GetNamespace(), m.GetName())); exists {
			continue
		}
		obj := o.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(res.GVK)
		res.Strategy.Default(obj)
		w := &writing{s: s, res: res, strategy: res.Strategy, namespace: m.GetNamespace(), untracked: true}
		if _, err := w.create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bootstrap %s %s: %w", res.GVK.Kind, storage.Path(m.GetNamespace(), m.GetName()), err)
		}
	}
	return nil
}
