package server

import (
	"context"
	"fmt"
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"drydock.dev/drydock/apiserverlite/registry"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scale shows and changes spec.replicas of a workload through the Scale kind.
func (x *exchange) scale(ctx context.Context) (reply, error) {
	switch x.in.verb {
	case "get":
		e, ok := x.s.store.Get(x.res.key(x.in.namespace, x.in.name))
		if !ok {
			return reply{}, notFound(x.res.GR(), x.in.name)
		}
		sc, err := x.res.scaleOf(e.Object)
		return reply{object: sc}, err
	case "update":
		o, err := x.updateOptions()
		if err != nil {
			return reply{}, err
		}
		sc, err := decodeInto(x, o.validation, &autoscalingv1.Scale{}, scaleKind)
		if err != nil {
			return reply{}, err
		}
		return x.rescale(ctx, o, rescaling{next: func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return sc, nil }})
	case "patch":
		return x.patchScale(ctx)
	}
	return reply{}, x.noMethod()
}

// rescaling is how a new scale is made from the current one. Applied ones come with their managedFields.
type rescaling struct {
	next    func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error)
	applied bool
}

// rescale changes the parent by what next makes of its scale. Who set the parent's replicas is who set the
// scale's, and the other way round; of the parent's other fields nobody becomes the owner.
func (x *exchange) rescale(ctx context.Context, o writeOptions, c rescaling) (reply, error) {
	w := x.writing(o)
	w.strategy = x.res.Strategy
	fields, err := x.s.tracker.scales()
	if err != nil {
		return reply{}, err
	}
	paths, err := x.replicasPaths()
	if err != nil {
		return reply{}, err
	}
	r, err := w.change(ctx, change{tracked: true, make: func(old runtime.Object) (runtime.Object, error) {
		obj := old.DeepCopyObject()
		m, err := metaOf(obj)
		if err != nil {
			return nil, err
		}
		h := managedfields.NewScaleHandler(m.GetManagedFields(), x.res.GVR.GroupVersion(), paths)
		cur, err := x.res.scaleOf(old)
		if err != nil {
			return nil, err
		}
		if cur.ManagedFields, err = h.ToSubresource(); err != nil {
			return nil, err
		}
		sc, err := c.next(cur)
		if err != nil {
			return nil, err
		}
		if sc.Spec.Replicas < 0 && x.res.Custom == nil { // custom objects have a rule for the field itself
			return nil, apierrors.NewInvalid(scaleKind.GroupKind(), w.name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), sc.Spec.Replicas, validation.IsNegativeErrorMsg)})
		}
		version := sc.ResourceVersion
		if !c.applied && !w.untracked {
			sc = fields.UpdateNoErrors(cur, sc, w.manager).(*autoscalingv1.Scale)
		}
		if c.applied || !w.untracked {
			owners, err := h.ToParent(sc.ManagedFields)
			if err != nil {
				return nil, err
			}
			m.SetManagedFields(owners)
		}
		m.SetResourceVersion(version)
		return obj, x.res.setReplicas(obj, sc.Spec.Replicas)
	}})
	if err != nil {
		return reply{}, err
	}
	sc, err := x.res.scaleOf(r.object)
	return reply{object: sc}, err
}

// replicasPaths tells where the versions of a workload keep what its scale calls spec.replicas.
func (x *exchange) replicasPaths() (managedfields.ResourcePathMappings, error) {
	if x.res.Custom == nil {
		return managedfields.ResourcePathMappings{x.res.GVR.GroupVersion().String(): fieldpath.MakePathOrDie("spec", "replicas")}, nil
	}
	d := x.s.defined().byName[x.res.definition]
	if d == nil { // deleted since the request came
		return nil, pathNotFound()
	}
	out := managedfields.ResourcePathMappings{}
	for _, v := range d.object.Spec.Versions {
		var path fieldpath.Path
		if v.Subresources != nil && v.Subresources.Scale != nil {
			for _, s := range steps(v.Subresources.Scale.SpecReplicasPath) {
				path = append(path, fieldpath.PathElement{FieldName: &s})
			}
		}
		out[x.res.GVR.Group+"/"+v.Name] = path
	}
	return out, nil
}

func (r *resource) setReplicas(o runtime.Object, n int32) error {
	switch t := o.(type) {
	case *appsv1.StatefulSet:
		t.Spec.Replicas = &n
	case *appsv1.Deployment:
		t.Spec.Replicas = &n
	case *appsv1.ReplicaSet:
		t.Spec.Replicas = &n
	case *corev1.ReplicationController:
		t.Spec.Replicas = &n
	case *unstructured.Unstructured:
		return unstructured.SetNestedField(t.Object, int64(n), steps(r.Custom.Scale.SpecReplicasPath)...)
	default:
		return fmt.Errorf("%T has no scale", o)
	}
	return nil
}

func (r *resource) scaleOf(o runtime.Object) (*autoscalingv1.Scale, error) {
	var m metav1.ObjectMeta
	var want *int32
	var have int32
	var sel *metav1.LabelSelector
	switch t := o.(type) {
	case *appsv1.StatefulSet:
		m, want, have, sel = t.ObjectMeta, t.Spec.Replicas, t.Status.Replicas, t.Spec.Selector
	case *appsv1.Deployment:
		m, want, have, sel = t.ObjectMeta, t.Spec.Replicas, t.Status.Replicas, t.Spec.Selector
	case *appsv1.ReplicaSet:
		m, want, have, sel = t.ObjectMeta, t.Spec.Replicas, t.Status.Replicas, t.Spec.Selector
	case *corev1.ReplicationController:
		m, want, have, sel = t.ObjectMeta, t.Spec.Replicas, t.Status.Replicas, metav1.SetAsLabelSelector(t.Spec.Selector)
	case *unstructured.Unstructured:
		return r.customScale(t), nil
	default:
		return nil, fmt.Errorf("%T has no scale", o)
	}
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil, err
	}
	sc := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp},
		Spec:       autoscalingv1.ScaleSpec{Replicas: ptr.Deref(want, 1)},
		Status:     autoscalingv1.ScaleStatus{Replicas: have, Selector: s.String()},
	}
	sc.SetGroupVersionKind(scaleKind)
	return sc, nil
}

// customScale reads a custom object at the paths of its definition.
func (r *resource) customScale(u *unstructured.Unstructured) *autoscalingv1.Scale {
	at := func(path string) int32 {
		v, _ := registry.Lookup(u, path)
		n, _ := v.(int64)
		return int32(min(max(n, 0), math.MaxInt32))
	}
	p := r.Custom.Scale
	sc := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp()},
		Spec:       autoscalingv1.ScaleSpec{Replicas: at(p.SpecReplicasPath)},
		Status:     autoscalingv1.ScaleStatus{Replicas: at(p.StatusReplicasPath)},
	}
	if p.LabelSelectorPath != nil {
		v, _ := registry.Lookup(u, *p.LabelSelectorPath)
		sc.Status.Selector, _ = v.(string)
	}
	sc.SetGroupVersionKind(scaleKind)
	return sc
}

func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// patchScale patches the Scale as the JSON that a client sees.
func (x *exchange) patchScale(ctx context.Context) (reply, error) {
	kind, body, o, err := x.readPatch()
	if err != nil {
		return reply{}, err
	}
	p := &patching{x: x, opts: o, kind: kind, body: body, w: x.writing(o)}
	if applies(kind) {
		return x.rescale(ctx, o, rescaling{applied: true, next: p.applyScale})
	}
	return x.rescale(ctx, o, rescaling{next: func(cur *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		current, err := x.s.codecs.encodeJSON(cur)
		if err != nil {
			return nil, err
		}
		patched, err := p.patchText(current)
		if err != nil {
			return nil, err
		}
		obj, problems, err := x.s.codecs.decodeBody(patched, mediaJSON, o.validation, &autoscalingv1.Scale{}, scaleKind)
		if err != nil {
			return nil, err
		}
		x.problems(problems)
		return obj.(*autoscalingv1.Scale), nil
	}})
}

// applyScale merges an applied scale into the current one.
func (p *patching) applyScale(cur *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	patch, err := p.configuration()
	if err != nil {
		return nil, err
	}
	fields, err := p.x.s.tracker.scales()
	if err != nil {
		return nil, err
	}
	obj, err := fields.Apply(cur, patch, p.opts.fieldManager, p.opts.force)
	if err != nil {
		return nil, err
	}
	sc, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("an applied scale became %T", obj)
	}
	return sc, nil
}
