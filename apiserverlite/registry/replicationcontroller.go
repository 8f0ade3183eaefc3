package registry

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// replicationControllers are replica sets of the first days. Unless the deletion says otherwise their pods stay.
func replicationControllers() *Resource {
	main, status := workload[core.ReplicationController, core.ReplicationControllerSpec, core.ReplicationControllerStatus]{
		meta: func(c *core.ReplicationController) *metav1.ObjectMeta { return &c.ObjectMeta }, spec: func(c *core.ReplicationController) *core.ReplicationControllerSpec { return &c.Spec },
		status: func(c *core.ReplicationController) *core.ReplicationControllerStatus { return &c.Status }, template: func(c *core.ReplicationController) *core.PodTemplateSpec { return c.Spec.Template },
		create: validation.ValidateReplicationController,
		update: func(c, old *core.ReplicationController, o validation.PodValidationOptions) field.ErrorList {
			return append(validation.ValidateReplicationControllerUpdate(c, old, o), inconvertible(c, old)...)
		},
		updateStatus: validation.ValidateReplicationControllerStatusUpdate, podNames: true,
	}.rules()
	main.warnUpdate = func(ctx context.Context, c, old *core.ReplicationController) []string {
		if c.Generation == old.Generation {
			return nil
		}
		return podutil.GetWarningsForPodTemplate(ctx, field.NewPath("spec", "template"), old.Spec.Template, c.Spec.Template) // upstream looks at the old one
	}
	r := resource(kind[core.ReplicationController, core.ReplicationControllerList]{
		gvk: corev1.SchemeGroupVersion.WithKind("ReplicationController"), plural: "replicationcontrollers", shortNames: []string{"rc"}, categories: inAll,
		object: alloc[corev1.ReplicationController](), list: alloc[corev1.ReplicationControllerList](),
		rules: main, parts: map[string]rules[core.ReplicationController]{"status": status}, others: scaleSubs,
		fields: func(o runtime.Object) fields.Set {
			return fields.Set{"status.replicas": fmtInt(o.(*corev1.ReplicationController).Status.Replicas)}
		},
	})
	r.Orphans = true
	return r
}

// inconvertible refuses to change what an annotation says a conversion has lost.
func inconvertible(c, old *core.ReplicationController) field.ErrorList {
	var errs field.ErrorList
	for key, value := range helper.NonConvertibleFields(old.Annotations) {
		_, name, ok := strings.Cut(key, "/")
		switch {
		case !ok || strings.Contains(name, "/"):
		case !strings.Contains(name, "selector"):
			errs = append(errs, &field.Error{Type: field.ErrorTypeNotFound, BadValue: value, Field: name, Detail: "unknown non-convertible field"})
		case !equality.Semantic.DeepEqual(c.Spec.Selector, old.Spec.Selector):
			errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), c.Spec.Selector, "cannot update non-convertible selector"))
		}
	}
	return errs
}
