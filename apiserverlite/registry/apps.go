package registry

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	claimutil "k8s.io/kubernetes/pkg/api/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

// appsKinds are those of apps/v1, in the order of discovery.
func appsKinds(Options) []*Resource {
	return []*Resource{controllerRevisions(), daemonSets(), deployments(), replicaSets(), statefulSets()}
}

var (
	inAll     = []string{"all"}
	scaleSubs = map[string]Subresource{"scale": {Verbs: objectVerbs, GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale")}}
)

func controllerRevisions() *Resource {
	return resource(kind[apps.ControllerRevision, apps.ControllerRevisionList]{
		gvk: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), plural: "controllerrevisions",
		object: alloc[appsv1.ControllerRevision](), list: alloc[appsv1.ControllerRevisionList](),
		rules: rules[apps.ControllerRevision]{unconditional: true, validate: validation.ValidateControllerRevisionCreate, validateUpdate: validation.ValidateControllerRevisionUpdate},
	})
}

func daemonSets() *Resource {
	main, status := workload[apps.DaemonSet, apps.DaemonSetSpec, apps.DaemonSetStatus]{
		meta: func(d *apps.DaemonSet) *metav1.ObjectMeta { return &d.ObjectMeta }, spec: func(d *apps.DaemonSet) *apps.DaemonSetSpec { return &d.Spec },
		status: func(d *apps.DaemonSet) *apps.DaemonSetStatus { return &d.Status }, template: func(d *apps.DaemonSet) *core.PodTemplateSpec { return &d.Spec.Template },
		create: validation.ValidateDaemonSet,
		update: func(d, old *apps.DaemonSet, o corevalidation.PodValidationOptions) field.ErrorList {
			o.AllowInvalidLabelValueInSelector = o.AllowInvalidLabelValueInSelector || badSelector(old.Spec.Selector)
			return validation.ValidateDaemonSetUpdate(d, old, o)
		},
		updateStatus: validation.ValidateDaemonSetStatusUpdate,
	}.rules()
	create, update := main.prepareCreate, main.prepareUpdate
	main.prepareCreate = func(d *apps.DaemonSet) {
		create(d)
		d.Spec.TemplateGeneration = max(d.Spec.TemplateGeneration, 1)
	}
	main.prepareUpdate = func(d, old *apps.DaemonSet) {
		d.Spec.TemplateGeneration = old.Spec.TemplateGeneration
		if !equality.Semantic.DeepEqual(old.Spec.Template, d.Spec.Template) {
			d.Spec.TemplateGeneration++
		}
		update(d, old)
	}
	r := resource(kind[apps.DaemonSet, apps.DaemonSetList]{
		gvk: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), plural: "daemonsets", shortNames: []string{"ds"}, categories: inAll,
		object: alloc[appsv1.DaemonSet](), list: alloc[appsv1.DaemonSetList](),
		rules: main, parts: map[string]rules[apps.DaemonSet]{"status": status},
	})
	r.Readable = func(obj runtime.Object) error { // the generation of the template is in an annotation
		return upstream.Convert(obj, &apps.DaemonSet{}, nil)
	}
	return r
}

func deployments() *Resource {
	main, status := workload[apps.Deployment, apps.DeploymentSpec, apps.DeploymentStatus]{
		meta: func(d *apps.Deployment) *metav1.ObjectMeta { return &d.ObjectMeta }, spec: func(d *apps.Deployment) *apps.DeploymentSpec { return &d.Spec },
		status: func(d *apps.Deployment) *apps.DeploymentStatus { return &d.Status }, template: func(d *apps.Deployment) *core.PodTemplateSpec { return &d.Spec.Template },
		create: validation.ValidateDeployment, update: validation.ValidateDeploymentUpdate, updateStatus: validation.ValidateDeploymentStatusUpdate, podNames: true,
	}.rules()
	update, keep := main.prepareUpdate, status.prepareUpdate
	main.prepareUpdate = func(d, old *apps.Deployment) {
		update(d, old)
		if !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) { // the revision's annotations are copied to replica sets
			d.Generation = old.Generation + 1
		}
	}
	status.prepareUpdate = func(d, old *apps.Deployment) {
		keep(d, old)
		d.Labels = old.Labels
	}
	status.ignored = append(status.ignored, path("metadata", "labels"))
	return resource(kind[apps.Deployment, apps.DeploymentList]{
		gvk: appsv1.SchemeGroupVersion.WithKind("Deployment"), plural: "deployments", shortNames: []string{"deploy"}, categories: inAll,
		object: alloc[appsv1.Deployment](), list: alloc[appsv1.DeploymentList](),
		rules: main, parts: map[string]rules[apps.Deployment]{"status": status}, others: scaleSubs,
	})
}

func replicaSets() *Resource {
	main, status := workload[apps.ReplicaSet, apps.ReplicaSetSpec, apps.ReplicaSetStatus]{
		meta: func(r *apps.ReplicaSet) *metav1.ObjectMeta { return &r.ObjectMeta }, spec: func(r *apps.ReplicaSet) *apps.ReplicaSetSpec { return &r.Spec },
		status: func(r *apps.ReplicaSet) *apps.ReplicaSetStatus { return &r.Status }, template: func(r *apps.ReplicaSet) *core.PodTemplateSpec { return &r.Spec.Template },
		create: validation.ValidateReplicaSet, update: validation.ValidateReplicaSetUpdate, updateStatus: validation.ValidateReplicaSetStatusUpdate, podNames: true,
	}.rules()
	return resource(kind[apps.ReplicaSet, apps.ReplicaSetList]{
		gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), plural: "replicasets", shortNames: []string{"rs"}, categories: inAll,
		object: alloc[appsv1.ReplicaSet](), list: alloc[appsv1.ReplicaSetList](),
		rules: main, parts: map[string]rules[apps.ReplicaSet]{"status": status}, others: scaleSubs,
		fields: func(o runtime.Object) fields.Set {
			return fields.Set{"status.replicas": fmtInt(o.(*appsv1.ReplicaSet).Status.Replicas)}
		},
	})
}

func statefulSets() *Resource {
	main, status := workload[apps.StatefulSet, apps.StatefulSetSpec, apps.StatefulSetStatus]{
		meta: func(s *apps.StatefulSet) *metav1.ObjectMeta { return &s.ObjectMeta }, spec: func(s *apps.StatefulSet) *apps.StatefulSetSpec { return &s.Spec },
		status: func(s *apps.StatefulSet) *apps.StatefulSetStatus { return &s.Status }, template: func(s *apps.StatefulSet) *core.PodTemplateSpec { return &s.Spec.Template },
		create: func(s *apps.StatefulSet, o corevalidation.PodValidationOptions) field.ErrorList {
			return validation.ValidateStatefulSet(s, validation.StatefulSetValidationOptions{}, o)
		},
		update: func(s, old *apps.StatefulSet, o corevalidation.PodValidationOptions) field.ErrorList {
			return validation.ValidateStatefulSetUpdate(s, old, validation.StatefulSetValidationOptions{AllowInvalidServiceName: true, SkipValidateVolumeClaimTemplates: true}, o)
		},
		updateStatus: validation.ValidateStatefulSetStatusUpdate,
	}.rules()
	warnCreate, warnUpdate := main.warnCreate, main.warnUpdate
	main.warnCreate = func(ctx context.Context, s *apps.StatefulSet) []string {
		return append(warnCreate(ctx, s), setWarnings(s, func(i *field.Path) *field.Path { return i })...)
	}
	main.warnUpdate = func(ctx context.Context, s, old *apps.StatefulSet) []string {
		return append(warnUpdate(ctx, s, old), setWarnings(s, func(i *field.Path) *field.Path { return i.Child("Spec") })...)
	}
	return resource(kind[apps.StatefulSet, apps.StatefulSetList]{
		gvk: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), plural: "statefulsets", shortNames: []string{"sts"}, categories: inAll,
		object: alloc[appsv1.StatefulSet](), list: alloc[appsv1.StatefulSetList](),
		rules: main, parts: map[string]rules[apps.StatefulSet]{"status": status}, others: scaleSubs,
	})
}

// setWarnings are those about what is not in the template. The path of a claim's spec is upstream's.
func setWarnings(s *apps.StatefulSet, spec func(claim *field.Path) *field.Path) (out []string) {
	for i, c := range s.Spec.VolumeClaimTemplates {
		out = append(out, claimutil.GetWarningsForPersistentVolumeClaimSpec(spec(field.NewPath("spec", "volumeClaimTemplates").Index(i)), c.Spec)...)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}
