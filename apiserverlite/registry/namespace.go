package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// namespaces carry a finalizer in their spec too, which only the finalize subresource can take away. Their
// name is also a label; defaulting puts it there on every write.
func namespaces() *Resource {
	main := rules[core.Namespace]{
		unconditional: true,
		prepareCreate: func(ns *core.Namespace) {
			ns.Status = core.NamespaceStatus{Phase: core.NamespaceActive}
			if !slices.Contains(ns.Spec.Finalizers, core.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, core.FinalizerKubernetes)
			}
		},
		validate: validation.ValidateNamespace,
		prepareUpdate: func(ns, old *core.Namespace) {
			ns.Spec.Finalizers = old.Spec.Finalizers
			ns.Status = old.Status
		},
		validateUpdate: func(ns, old *core.Namespace) field.ErrorList {
			return append(validation.ValidateNamespace(ns), validation.ValidateNamespaceUpdate(ns, old)...)
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status := main
	status.prepareUpdate = func(ns, old *core.Namespace) { ns.Spec = old.Spec }
	status.validateUpdate = validation.ValidateNamespaceStatusUpdate
	status.ignored = []*fieldpath.Set{path("spec")}
	finalize := main
	finalize.prepareUpdate = func(ns, old *core.Namespace) { ns.Status = old.Status }
	finalize.validateUpdate = validation.ValidateNamespaceFinalizeUpdate

	return resource(kind[core.Namespace, core.NamespaceList]{
		gvk: corev1.SchemeGroupVersion.WithKind("Namespace"), plural: "namespaces", shortNames: []string{"ns"}, cluster: true,
		verbs:  []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		object: alloc[corev1.Namespace](), list: alloc[corev1.NamespaceList](),
		rules: main, parts: map[string]rules[core.Namespace]{"status": status, "finalize": finalize},
		fields: func(obj runtime.Object) fields.Set {
			ns := obj.(*corev1.Namespace)
			return fields.Set{"status.phase": string(ns.Status.Phase), "name": ns.Name}
		},
	})
}
