package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// workload is what the kinds that make pods from a template have in common. S is the spec, U the status.
type workload[T, S, U any] struct {
	meta     func(*T) *metav1.ObjectMeta
	spec     func(*T) *S
	status   func(*T) *U
	template func(*T) *core.PodTemplateSpec
	// at is where the template is, if not directly in the spec.
	at     *field.Path
	create func(*T, validation.PodValidationOptions) field.ErrorList
	update func(obj, old *T, o validation.PodValidationOptions) field.ErrorList
	// updateStatus validates a write of the status.
	updateStatus func(obj, old *T) field.ErrorList
	// podNames tells that the name becomes part of pods' names.
	podNames bool
}

// rules returns those of the object and of its status subresource.
func (w workload[T, S, U]) rules() (main, status rules[T]) {
	at := w.at
	if at == nil {
		at = field.NewPath("spec", "template")
	}
	main = rules[T]{
		unconditional: true,
		prepareCreate: func(o *T) {
			*w.status(o) = *new(U)
			w.meta(o).Generation = 1
			podutil.DropDisabledTemplateFields(w.template(o), nil)
		},
		validate: func(o *T) field.ErrorList {
			return w.create(o, podutil.GetValidationOptionsFromPodTemplate(w.template(o), nil))
		},
		warnCreate: func(ctx context.Context, o *T) []string {
			return append(w.nameWarning(o), podutil.GetWarningsForPodTemplate(ctx, at, w.template(o), nil)...)
		},
		prepareUpdate: func(o, old *T) {
			*w.status(o) = *w.status(old)
			podutil.DropDisabledTemplateFields(w.template(o), w.template(old))
			if !equality.Semantic.DeepEqual(w.spec(o), w.spec(old)) {
				w.meta(o).Generation = w.meta(old).Generation + 1
			}
		},
		validateUpdate: func(o, old *T) field.ErrorList {
			return w.update(o, old, podutil.GetValidationOptionsFromPodTemplate(w.template(o), w.template(old)))
		},
		warnUpdate: func(ctx context.Context, o, old *T) []string {
			if w.meta(o).Generation == w.meta(old).Generation {
				return nil
			}
			return podutil.GetWarningsForPodTemplate(ctx, at, w.template(o), w.template(old))
		},
		ignored: []*fieldpath.Set{path("status")},
	}
	status = rules[T]{
		unconditional:  true,
		prepareUpdate:  func(o, old *T) { *w.spec(o) = *w.spec(old) },
		validateUpdate: w.updateStatus,
		ignored:        []*fieldpath.Set{path("spec")},
	}
	return main, status
}

func (w workload[T, S, U]) nameWarning(o *T) []string {
	if !w.podNames {
		return nil
	}
	if msgs := utilvalidation.IsDNS1123Label(w.meta(o).Name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
	}
	return nil
}
