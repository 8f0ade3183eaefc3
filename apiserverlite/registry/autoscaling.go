package registry

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// autoscalingKinds: autoscalers are kept, in the newer form, and nothing acts on them: nothing here measures pods.
func autoscalingKinds(Options) []*Resource {
	first := autoscalers(autoscalingv2.SchemeGroupVersion, alloc[autoscalingv2.HorizontalPodAutoscaler](), alloc[autoscalingv2.HorizontalPodAutoscalerList]())
	second := autoscalers(autoscalingv1.SchemeGroupVersion, alloc[autoscalingv1.HorizontalPodAutoscaler](), alloc[autoscalingv1.HorizontalPodAutoscalerList]())
	to := func(out func() runtime.Object) func(runtime.Object) (runtime.Object, error) {
		return func(obj runtime.Object) (runtime.Object, error) {
			in, err := internal[autoscaling.HorizontalPodAutoscaler](obj.DeepCopyObject()) // the conversion moves annotations
			if err != nil {
				return nil, err
			}
			o := out()
			return o, upstream.Convert(in, o, nil)
		}
	}
	second.ToStorage, second.FromStorage = to(first.New), to(second.New)
	return []*Resource{first, second}
}

func autoscalers(gv schema.GroupVersion, object, list func() runtime.Object) *Resource {
	type hpa = autoscaling.HorizontalPodAutoscaler
	meta := field.NewPath("metadata")
	main := rules[hpa]{
		unconditional: true,
		prepareCreate: func(h *hpa) {
			h.Status = autoscaling.HorizontalPodAutoscalerStatus{}
			h.Generation = 1
		},
		validate: func(h *hpa) field.ErrorList {
			return append(validation.ValidateObjectMeta(&h.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta), validateAutoscaler(&h.Spec, nil)...)
		},
		prepareUpdate: func(h, old *hpa) {
			h.Status = old.Status
			if !equality.Semantic.DeepEqual(h.Spec, old.Spec) {
				h.Generation = old.Generation + 1
			}
		},
		validateUpdate: func(h, old *hpa) field.ErrorList {
			return append(validation.ValidateObjectMetaUpdate(&h.ObjectMeta, &old.ObjectMeta, meta), validateAutoscaler(&h.Spec, &old.Spec)...)
		},
		ignored:     []*fieldpath.Set{path("status")},
		declarative: declarative{options: map[string]bool{"HPAScaleToZero": true}},
	}
	status := main
	status.prepareUpdate = func(h, old *hpa) { h.Spec = old.Spec }
	status.validateUpdate = func(h, old *hpa) field.ErrorList {
		return append(validation.ValidateObjectMetaUpdate(&h.ObjectMeta, &old.ObjectMeta, meta), validateAutoscalerStatus(&h.Status)...)
	}
	status.ignored = []*fieldpath.Set{path("spec")}
	r := resource(kind[hpa, autoscaling.HorizontalPodAutoscalerList]{
		gvk: gv.WithKind("HorizontalPodAutoscaler"), plural: "horizontalpodautoscalers", shortNames: []string{"hpa"}, categories: inAll,
		object: object, list: list,
		rules: main, parts: map[string]rules[hpa]{"status": status},
	})
	r.Converter = upstream
	return r
}
