package server

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"drydock.dev/drydock/apiserverlite/registry"
)

// testRegistry is a small registry of a few kinds, whose rules are just enough for the server's own tests.
type testRegistry struct{ resources []*registry.Resource }

func (r testRegistry) Resources() []*registry.Resource { return r.resources }
func (r testRegistry) Admission() registry.Admission   { return nil }
func (r testRegistry) Bootstrap() []runtime.Object {
	return []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}}
}

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

func resourceOf(gv schema.GroupVersion, plural, kind string, namespaced bool, obj, list func() runtime.Object, st registry.Strategy) *registry.Resource {
	return &registry.Resource{GVR: gv.WithResource(plural), GVK: gv.WithKind(kind), Singular: plural[:len(plural)-1], Namespaced: namespaced, Verbs: allVerbs,
		New: obj, NewList: list, Protobuf: true, Storage: gv.WithResource(plural).GroupResource(), Strategy: st, Table: nameTable}
}

func nameTable(_ context.Context, o runtime.Object, _ *metav1.TableOptions) (*metav1.Table, error) {
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}}
	add := func(o runtime.Object) error {
		m, err := metaOf(o)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{m.GetName()}})
		return nil
	}
	switch l := o.(type) {
	case *corev1.PersistentVolumeClaimList:
		for i := range l.Items {
			if err := add(&l.Items[i]); err != nil {
				return nil, err
			}
		}
		return t, nil
	case *corev1.ConfigMapList:
		for i := range l.Items {
			if err := add(&l.Items[i]); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
	return t, add(o)
}

func newTestRegistry() testRegistry {
	core := corev1.SchemeGroupVersion
	main := strategy{}
	pods := resourceOf(core, "pods", "Pod", true, func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} }, main)
	pods.Fields = func(o runtime.Object) fields.Set {
		p := o.(*corev1.Pod)
		return fields.Set{"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName}
	}
	pods.FieldLabel = func(l, v string) (string, string, error) {
		switch l {
		case "metadata.name", "metadata.namespace", "spec.nodeName":
			return l, v, nil
		}
		return "", "", &labelError{l}
	}
	status := strategy{status: true}
	rw := []string{"get", "patch", "update"}
	create := []string{"create"}
	pods.Subresources = map[string]registry.Subresource{
		"status": {Verbs: rw, Strategy: status}, "binding": {Verbs: create, GVK: core.WithKind("Binding")},
		"eviction": {Verbs: create, GVK: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}}, "log": {Verbs: []string{"get"}},
	}
	pvcs := resourceOf(core, "persistentvolumeclaims", "PersistentVolumeClaim", true, func() runtime.Object { return &corev1.PersistentVolumeClaim{} },
		func() runtime.Object { return &corev1.PersistentVolumeClaimList{} }, main)
	pvcs.Subresources = map[string]registry.Subresource{"status": {Verbs: rw, Strategy: status}}
	cms := resourceOf(core, "configmaps", "ConfigMap", true, func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }, main)
	sas := resourceOf(core, "serviceaccounts", "ServiceAccount", true, func() runtime.Object { return &corev1.ServiceAccount{} }, func() runtime.Object { return &corev1.ServiceAccountList{} }, main)
	sas.Subresources = map[string]registry.Subresource{"token": {Verbs: create, GVK: schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}}}
	nss := resourceOf(core, "namespaces", "Namespace", false, func() runtime.Object { return &corev1.Namespace{} }, func() runtime.Object { return &corev1.NamespaceList{} }, main)
	nss.Subresources = map[string]registry.Subresource{"finalize": {Verbs: []string{"update"}, Strategy: strategy{finalize: true}}, "status": {Verbs: rw, Strategy: status}}
	nodes := resourceOf(core, "nodes", "Node", false, func() runtime.Object { return &corev1.Node{} }, func() runtime.Object { return &corev1.NodeList{} }, main)
	leases := resourceOf(coordinationv1.SchemeGroupVersion, "leases", "Lease", true, func() runtime.Object { return &coordinationv1.Lease{} },
		func() runtime.Object { return &coordinationv1.LeaseList{} }, strategy{strict: true, upsert: true})
	vas := resourceOf(storagev1.SchemeGroupVersion, "volumeattachments", "VolumeAttachment", false, func() runtime.Object { return &storagev1.VolumeAttachment{} },
		func() runtime.Object { return &storagev1.VolumeAttachmentList{} }, strategy{strict: true})
	return testRegistry{[]*registry.Resource{nss, nodes, pods, pvcs, cms, sas, leases, vas}}
}

type labelError struct{ label string }

func (e *labelError) Error() string { return "field label not supported: " + e.label }

// strategy keeps spec and status apart for pods and claims, and knows few other rules.
type strategy struct{ status, finalize, strict, upsert bool }

func (s strategy) AllowCreateOnUpdate() bool      { return s.upsert }
func (s strategy) AllowUnconditionalUpdate() bool { return !s.strict }
func (s strategy) Default(o runtime.Object) {
	if p, ok := o.(*corev1.PersistentVolumeClaim); ok && p.Status.Phase == "" {
		p.Status.Phase = corev1.ClaimPending
	}
}

func (s strategy) PrepareForCreate(_ context.Context, o runtime.Object) {
	switch t := o.(type) {
	case *corev1.Pod:
		t.Status = corev1.PodStatus{Phase: corev1.PodPending}
		t.Generation = 1
	case *corev1.PersistentVolumeClaim:
		t.Status = corev1.PersistentVolumeClaimStatus{}
	case *corev1.Namespace:
		t.Status.Phase = corev1.NamespaceActive
		t.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	}
}

func (s strategy) Validate(_ context.Context, o runtime.Object) field.ErrorList {
	m, _ := metaOf(o)
	if m.GetName() == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name or generateName is required")}
	}
	if p, ok := o.(*corev1.PersistentVolumeClaim); ok && len(p.Spec.AccessModes) == 0 {
		return field.ErrorList{field.Required(field.NewPath("spec", "accessModes"), "at least 1 access mode is required")}
	}
	return nil
}
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (s strategy) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	switch t := o.(type) {
	case *corev1.Pod:
		if s.status {
			t.Spec = old.(*corev1.Pod).Spec
		} else {
			t.Status = old.(*corev1.Pod).Status
		}
	case *corev1.PersistentVolumeClaim:
		if s.status {
			t.Spec = old.(*corev1.PersistentVolumeClaim).Spec
		} else {
			t.Status = old.(*corev1.PersistentVolumeClaim).Status
		}
	case *corev1.Namespace:
		if !s.finalize {
			t.Spec = old.(*corev1.Namespace).Spec
		}
		if !s.status {
			t.Status = old.(*corev1.Namespace).Status
		}
	}
}
func (s strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (s strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (s strategy) GracePeriod(o runtime.Object, opts *metav1.DeleteOptions) int64 {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return 0
	}
	if opts != nil && opts.GracePeriodSeconds != nil {
		return *opts.GracePeriodSeconds
	}
	if p.Spec.TerminationGracePeriodSeconds != nil {
		return *p.Spec.TerminationGracePeriodSeconds
	}
	return 0
}
func (s strategy) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return nil }
