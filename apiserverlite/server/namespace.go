package server

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// lifecycle holds the rules about namespaces: nothing is created in one that is missing or
// ending, and three of them stay.
func (s *Server) lifecycle(a registry.Attributes) error {
	gr := a.Resource.GR()
	switch {
	case gr == namespaces:
		if a.Operation != opDelete {
			return nil
		}
		switch a.Name {
		case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
			return apierrors.NewForbidden(gr, a.Name, fmt.Errorf("this namespace may not be deleted"))
		}
		return nil
	case a.Operation != opCreate || !a.Resource.Namespaced || s.byStorage[namespaces] == nil:
		return nil
	}
	e, ok := s.store.Get(storage.Key{Resource: namespaces, Name: a.Namespace})
	if !ok {
		return notFound(namespaces, a.Namespace)
	}
	ns, ok := e.Object.(*corev1.Namespace)
	if !ok || ns.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	err := apierrors.NewForbidden(gr, a.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace"})
	return err
}

// terminateNamespace marks a namespace as ending. It is false when nothing holds it any more.
func (w *writing) terminateNamespace(ns *corev1.Namespace, m metav1.Object, o *metav1.DeleteOptions) bool {
	if ns.DeletionTimestamp != nil && len(ns.Spec.Finalizers) == 0 {
		return false
	}
	if ns.DeletionTimestamp == nil {
		now := metav1.NewTime(w.s.clock.Now()).Rfc3339Copy()
		ns.DeletionTimestamp = &now
	}
	ns.Status.Phase = corev1.NamespaceTerminating
	w.collectFinalizers(m, o)
	return true
}
