package registry

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper/qos"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

func pods(o Options) *Resource {
	main := rules[core.Pod]{
		unconditional: true,
		prepareCreate: func(p *core.Pod) {
			p.Generation = 1
			p.Status = core.PodStatus{Phase: core.PodPending}
			podutil.DropDisabledPodFields(p, nil)
			markGated(p)
			mergeLabelKeys(p)
			appArmorFields(p)
			podutil.DefaultPodLevelResources(p)
			p.Status.QOSClass = qos.GetPodQOS(p)
		},
		validate: func(p *core.Pod) field.ErrorList {
			opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil)
			opts.ResourceIsPod = true
			return validation.ValidatePodCreate(p, opts)
		},
		warnCreate: podWarnings,
		prepareUpdate: func(p, old *core.Pod) {
			p.Status = old.Status
			if p.Spec.Resources == nil && old.Spec.Resources != nil { // from a writer that does not know the field
				p.Spec.Resources = old.Spec.Resources.DeepCopy()
			}
			finishUpdate(p, old)
		},
		validateUpdate: podUpdate(validation.ValidatePodUpdate),
		grace:          podGrace,
		ignored:        []*fieldpath.Set{path("status")},
	}
	return resource(kind[core.Pod, core.PodList]{
		gvk: corev1.SchemeGroupVersion.WithKind("Pod"), plural: "pods", shortNames: []string{"po"}, categories: []string{"all"},
		object: alloc[corev1.Pod](), list: alloc[corev1.PodList](),
		rules: main,
		parts: map[string]rules[core.Pod]{
			"status": podStatus(main, o), "ephemeralcontainers": podEphemeralContainers(main), "resize": podResize(main),
		},
		others: map[string]Subresource{
			"binding":     {Verbs: []string{"create"}, GVK: corev1.SchemeGroupVersion.WithKind("Binding")},
			"eviction":    {Verbs: []string{"create"}, GVK: policyv1.SchemeGroupVersion.WithKind("Eviction")},
			"log":         {Verbs: []string{"get"}},
			"exec":        {Verbs: []string{"create", "get"}, GVK: corev1.SchemeGroupVersion.WithKind("PodExecOptions")},
			"attach":      {Verbs: []string{"create", "get"}, GVK: corev1.SchemeGroupVersion.WithKind("PodAttachOptions")},
			"portforward": {Verbs: []string{"create", "get"}, GVK: corev1.SchemeGroupVersion.WithKind("PodPortForwardOptions")},
		},
		fields: podFields,
	})
}

// podUpdate adapts one of upstream's validations of an update.
func podUpdate(f func(p, old *core.Pod, o validation.PodValidationOptions) field.ErrorList) func(p, old *core.Pod) field.ErrorList {
	return func(p, old *core.Pod) field.ErrorList {
		opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, &old.Spec, &p.ObjectMeta, &old.ObjectMeta)
		opts.ResourceIsPod = true
		return f(p, old, opts)
	}
}

// finishUpdate is the end of every update that may change the spec.
func finishUpdate(p, old *core.Pod) {
	podutil.DropDisabledPodFields(p, old)
	if !equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		p.Generation++
	}
}

// podGrace is how long a pod may take to end. One that no node has, or that has ended, goes at once.
func podGrace(obj runtime.Object, o *metav1.DeleteOptions) int64 {
	p := obj.(*corev1.Pod)
	var period int64
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return 0
	case o != nil && o.GracePeriodSeconds != nil:
		period = *o.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		return 1
	}
	return period
}

func podWarnings(ctx context.Context, p *core.Pod) []string {
	var out []string
	if msgs := utilvalidation.IsDNS1123Label(p.Name); len(msgs) > 0 {
		out = append(out, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", msgs))
	}
	return append(out, podutil.GetWarningsForPod(ctx, p, nil)...)
}

func podFields(obj runtime.Object) fields.Set {
	p := obj.(*corev1.Pod)
	ip := ""
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}
