package registry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// podTemplates are kept for those who want them; nothing makes pods of them.
func podTemplates() *Resource {
	template := func(t *core.PodTemplate) *core.PodTemplateSpec { return &t.Template }
	at := field.NewPath("template")
	return resource(kind[core.PodTemplate, core.PodTemplateList]{
		gvk: corev1.SchemeGroupVersion.WithKind("PodTemplate"), plural: "podtemplates",
		object: alloc[corev1.PodTemplate](), list: alloc[corev1.PodTemplateList](),
		rules: rules[core.PodTemplate]{
			unconditional: true,
			prepareCreate: func(t *core.PodTemplate) {
				t.Generation = 1
				podutil.DropDisabledTemplateFields(template(t), nil)
			},
			validate: func(t *core.PodTemplate) field.ErrorList {
				return validation.ValidatePodTemplate(t, podutil.GetValidationOptionsFromPodTemplate(template(t), nil))
			},
			warnCreate: func(ctx context.Context, t *core.PodTemplate) []string {
				return podutil.GetWarningsForPodTemplate(ctx, at, template(t), nil)
			},
			prepareUpdate: func(t, old *core.PodTemplate) {
				podutil.DropDisabledTemplateFields(template(t), template(old))
				if !equality.Semantic.DeepEqual(old.Template, t.Template) {
					t.Generation = old.Generation + 1
				}
			},
			validateUpdate: func(t, old *core.PodTemplate) field.ErrorList {
				return validation.ValidatePodTemplateUpdate(t, old, podutil.GetValidationOptionsFromPodTemplate(template(t), template(old)))
			},
			warnUpdate: func(ctx context.Context, t, old *core.PodTemplate) []string {
				if t.Generation == old.Generation {
					return nil
				}
				return podutil.GetWarningsForPodTemplate(ctx, at, template(t), template(old))
			},
		},
	})
}
