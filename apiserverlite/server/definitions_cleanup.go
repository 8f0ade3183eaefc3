package server

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

// afterWrite does what a write of a definition, or of an object of one, makes necessary. It is not bound to
// the request: what is begun is brought to an end, and begun again when the server starts.
//
//	delete of a definition -> its instances are deleted -> the last one is gone -> the finalizer goes
//	a definition is gone   -> others that wanted its names get them
func (s *Server) afterWrite(ctx context.Context) {
	if !s.defined().waiting {
		return
	}
	ctx = context.WithoutCancel(ctx)
	tend := func(when func(*definition) bool, do func(*definition) error) {
		for name, d := range s.defined().byName {
			if !when(d) {
				continue
			}
			if err := do(d); err != nil && !apierrors.IsNotFound(err) {
				s.log.Warn().Err(err).Str("definition", name).Msg("tend definition")
			}
		}
	}
	tend(func(d *definition) bool {
		return d.object.DeletionTimestamp != nil && slices.Contains(d.object.Finalizers, registry.DefinitionFinalizer)
	}, func(d *definition) error { return s.empty(ctx, d) })
	tend(func(d *definition) bool {
		_, now := s.acceptNames(d.object)
		return d.object.DeletionTimestamp == nil && !registry.ConditionTrue(d.object, apiextensionsv1.NamesAccepted) && now.Status == apiextensionsv1.ConditionTrue
	}, func(d *definition) error {
		return s.changeDefinition(ctx, d.object.Name, func(*apiextensionsv1.CustomResourceDefinition) {}) // the write settles it
	})
	s.defined() // watches of what is gone end now
}

// empty deletes the instances of a definition, and takes its finalizer when there is none left.
func (s *Server) empty(ctx context.Context, d *definition) error {
	var main *resource
	for _, r := range d.resources {
		main = r.main
	}
	if main != nil {
		var objects []*storage.Entry
		s.store.Snapshot(main.Storage).Ascend("", "", func(e *storage.Entry) bool {
			objects = append(objects, e)
			return true
		})
		for _, e := range objects {
			if m, err := metaOf(e.Object); err != nil || m.GetDeletionTimestamp() != nil {
				continue
			}
			w := &writing{s: s, res: main, strategy: main.Strategy, namespace: e.Key.Namespace, name: e.Key.Name, untracked: true}
			background := metav1.DeletePropagationBackground
			if _, err := w.delete(ctx, &metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if s.store.Snapshot(main.Storage).Len() > 0 {
			begun := func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Terminating && c.Reason == inProgress
			}
			if slices.ContainsFunc(d.object.Status.Conditions, begun) {
				return nil
			}
			return s.changeDefinition(ctx, d.object.Name, func(o *apiextensionsv1.CustomResourceDefinition) {
				s.setCondition(o, condition(apiextensionsv1.Terminating, true, inProgress, "CustomResource deletion is in progress"))
			})
		}
	}
	return s.changeDefinition(ctx, d.object.Name, func(o *apiextensionsv1.CustomResourceDefinition) {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == registry.DefinitionFinalizer })
	})
}

const inProgress = "InstanceDeletionInProgress"

// changeDefinition writes a definition by the server's own hand.
func (s *Server) changeDefinition(ctx context.Context, name string, f func(*apiextensionsv1.CustomResourceDefinition)) error {
	res, ok := s.byStorage[definitionResource]
	if !ok {
		return nil
	}
	w := &writing{s: s, res: res, strategy: ownHand{res.Strategy}, name: name, untracked: true}
	_, err := w.change(ctx, change{make: func(old runtime.Object) (runtime.Object, error) {
		o := old.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
		f(o)
		return o, nil
	}})
	return err
}

// ownHand lets the server write spec and status together.
type ownHand struct{ registry.Strategy }

func (ownHand) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
