package journal

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bare is a cluster with nobody in it who changes what the tests write.
func bare(t *testing.T) client.WithWatch {
	t.Helper()
	cfg, stop, err := startCluster("--api-only")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name, "suite": "clients"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

func untyped(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	must(t, err)
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return u
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused wants an error of a kind.
func refused(t *testing.T, is func(error) bool, err error) {
	t.Helper()
	if !is(err) {
		t.Fatalf("another answer was due: %v", err)
	}
}

// TestClients has typed and unstructured objects go through every verb of a client.
func TestClients(t *testing.T) {
	c := bare(t)
	for flavour, of := range map[string]func(*testing.T, string) (client.Object, client.ObjectList){
		"typed": func(_ *testing.T, name string) (client.Object, client.ObjectList) {
			return deployment(name), &appsv1.DeploymentList{}
		},
		"unstructured": func(t *testing.T, name string) (client.Object, client.ObjectList) {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
			return untyped(t, deployment(name)), l
		},
	} {
		t.Run(flavour, func(t *testing.T) {
			ctx := t.Context()
			o, list := of(t, flavour)
			key := client.ObjectKeyFromObject(o)
			typed := func() *appsv1.Deployment {
				t.Helper()
				d := &appsv1.Deployment{}
				must(t, c.Get(ctx, key, d))
				return d
			}

			tried, _ := of(t, flavour)
			must(t, c.Create(ctx, tried, client.DryRunAll))
			refused(t, apierrors.IsNotFound, c.Get(ctx, key, tried))
			must(t, c.Create(ctx, o))
			again, _ := of(t, flavour)
			refused(t, apierrors.IsAlreadyExists, c.Create(ctx, again))
			if o.GetUID() == "" || o.GetResourceVersion() == "" || o.GetGeneration() != 1 {
				t.Fatalf("what was created is not told: %+v", o)
			}

			stale := o.DeepCopyObject().(client.Object)
			o.SetAnnotations(map[string]string{"a": "1"})
			must(t, c.Update(ctx, o))
			refused(t, apierrors.IsConflict, c.Update(ctx, stale))

			before := o.DeepCopyObject().(client.Object)
			o.SetAnnotations(map[string]string{"a": "2"})
			must(t, c.Patch(ctx, o, client.MergeFrom(before)))
			locked := stale.DeepCopyObject().(client.Object)
			locked.SetAnnotations(map[string]string{"a": "3"})
			refused(t, apierrors.IsConflict, c.Patch(ctx, locked, client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{})))
			must(t, c.Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/replicas","value":3}]`))))
			must(t, c.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"i"}]}}}}`))))
			if d := typed(); *d.Spec.Replicas != 3 || len(d.Spec.Template.Spec.Containers) != 2 || d.Annotations["a"] != "2" || d.Generation != 5 { // annotations of deployments count
				t.Fatalf("after the patches: %+v", d)
			}

			must(t, c.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":9},"status":{"replicas":1,"observedGeneration":3}}`))))
			if d := typed(); *d.Spec.Replicas != 3 || d.Status.Replicas != 1 {
				t.Fatalf("after a patch of the status: %+v", d)
			}
			must(t, c.Get(ctx, key, o))
			must(t, c.Status().Update(ctx, o))
			scale := &autoscalingv1.Scale{}
			must(t, c.SubResource("scale").Get(ctx, typed(), scale))
			scale.Spec.Replicas = 5
			must(t, c.SubResource("scale").Update(ctx, typed(), client.WithSubResourceBody(scale)))
			if d := typed(); *d.Spec.Replicas != 5 {
				t.Fatalf("after the scale: %+v", d)
			}

			must(t, c.List(ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": flavour}, client.MatchingFields{"metadata.name": flavour}))
			if n := meta.LenList(list); n != 1 {
				t.Fatalf("%d found", n)
			}
			must(t, c.List(ctx, list, client.HasLabels{"nobody-has-it"}))
			if n := meta.LenList(list); n != 0 {
				t.Fatalf("%d found by a label that is not there", n)
			}

			other := client.Preconditions{UID: new(types.UID("another"))}
			refused(t, apierrors.IsConflict, c.Delete(ctx, o, other))
			must(t, c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
			if d := typed(); d.DeletionTimestamp == nil || len(d.Finalizers) != 1 || d.Finalizers[0] != metav1.FinalizerOrphanDependents {
				t.Fatalf("it waits for the collector, who is not there: %+v", d.ObjectMeta)
			}
			must(t, c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			refused(t, apierrors.IsNotFound, c.Get(ctx, key, o))
			refused(t, apierrors.IsNotFound, c.Delete(ctx, o))
			must(t, client.IgnoreNotFound(c.Delete(ctx, o)))

			for _, name := range []string{"x", "y", "z"} {
				o, _ := of(t, name)
				must(t, c.Create(ctx, o))
			}
			must(t, c.List(ctx, list, client.InNamespace("default"), client.Limit(2)))
			if n, rest := meta.LenList(list), list.GetContinue(); n != 2 || rest == "" {
				t.Fatalf("a page of %d, continued at %q", n, rest)
			}
			must(t, c.List(ctx, list, client.InNamespace("default"), client.Limit(2), client.Continue(list.GetContinue())))
			if n, rest := meta.LenList(list), list.GetContinue(); n != 1 || rest != "" {
				t.Fatalf("the last page has %d, continued at %q", n, rest)
			}
			all, _ := of(t, "")
			must(t, c.DeleteAllOf(ctx, all, client.InNamespace("default"), client.MatchingLabels{"suite": "clients"}))
			must(t, c.List(ctx, list))
			if n := meta.LenList(list); n != 0 {
				t.Fatalf("%d are left", n)
			}
		})
	}
}

// TestMetadataClient reads, patches and deletes by metadata alone.
func TestMetadataClient(t *testing.T) {
	c, ctx := bare(t), t.Context()
	must(t, c.Create(ctx, deployment("m")))
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
	must(t, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "m"}, m))
	if m.Kind != "Deployment" || m.Labels["app"] != "m" || m.Generation != 1 {
		t.Fatalf("%+v", m)
	}
	before := m.DeepCopy()
	m.Labels["more"] = "yes"
	must(t, c.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	l := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}}
	must(t, c.List(ctx, l, client.MatchingLabels{"more": "yes"}))
	if len(l.Items) != 1 || l.Items[0].Kind != "Deployment" || l.Items[0].APIVersion != "apps/v1" {
		t.Fatalf("%+v", l)
	}
	must(t, c.DeleteAllOf(ctx, m, client.InNamespace("default"), client.HasLabels{"more"}))
	refused(t, apierrors.IsNotFound, c.Get(ctx, client.ObjectKeyFromObject(m), m))
}

// TestApply has two owners of one object.
func TestApply(t *testing.T) {
	c, ctx := bare(t), t.Context()
	desired := func(key, value string) *applycore.ConfigMapApplyConfiguration {
		return applycore.ConfigMap("applied", "default").WithData(map[string]string{key: value})
	}
	must(t, c.Apply(ctx, desired("a", "1"), client.FieldOwner("one")))
	must(t, c.Apply(ctx, desired("b", "1"), client.FieldOwner("two")))
	refused(t, apierrors.IsConflict, c.Apply(ctx, desired("a", "2"), client.FieldOwner("two")))
	must(t, c.Apply(ctx, desired("a", "2"), client.FieldOwner("two"), client.ForceOwnership)) // and gives b up
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "applied"}, "data": map[string]any{"c": "1"}}}
	must(t, c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("three")))
	var got corev1.ConfigMap
	must(t, c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "applied"}, &got))
	if len(got.Data) != 2 || got.Data["a"] != "2" || got.Data["c"] != "1" {
		t.Fatalf("%v", got.Data)
	}
	must(t, client.WithFieldOwner(c, "four").Patch(ctx, &got, client.RawPatch(types.MergePatchType, []byte(`{"data":{"d":"1"}}`))))
	owners := map[string]metav1.ManagedFieldsOperationType{}
	for _, e := range got.ManagedFields {
		owners[e.Manager] = e.Operation
	}
	if owners["two"] != metav1.ManagedFieldsOperationApply || owners["three"] != metav1.ManagedFieldsOperationApply || owners["four"] != metav1.ManagedFieldsOperationUpdate {
		t.Fatalf("%v", owners)
	}
}

// TestSubResources creates what exists only below another object.
func TestSubResources(t *testing.T) {
	c, ctx := bare(t), t.Context()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	must(t, c.Create(ctx, pod))
	must(t, c.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}))
	must(t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	if pod.Spec.NodeName != "n" {
		t.Fatalf("%+v", pod.Spec)
	}
	must(t, c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}}))
	refused(t, apierrors.IsNotFound, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
	must(t, c.Create(ctx, account))
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	must(t, c.SubResource("token").Create(ctx, account, token))
	if token.Status.Token == "" || time.Until(token.Status.ExpirationTimestamp.Time) < 30*time.Minute {
		t.Fatalf("%+v", token.Status)
	}
}

// TestWrappedClients: strict fields, a namespace that is always the same, and writes that are none.
func TestWrappedClients(t *testing.T) {
	c, ctx := bare(t), t.Context()
	u := untyped(t, deployment("w"))
	must(t, unstructured.SetNestedField(u.Object, "yes", "spec", "unheardOf"))
	refused(t, apierrors.IsBadRequest, client.WithFieldValidation(c, metav1.FieldValidationStrict).Create(ctx, u.DeepCopy()))
	must(t, client.NewDryRunClient(c).Create(ctx, deployment("w")))
	refused(t, apierrors.IsNotFound, c.Get(ctx, client.ObjectKeyFromObject(u), u.DeepCopy()))
	within := client.NewNamespacedClient(c, "default")
	d := deployment("w")
	d.Namespace = ""
	must(t, within.Create(ctx, d))
	if d.Namespace != "default" {
		t.Fatalf("%+v", d.ObjectMeta)
	}
	elsewhere := deployment("w")
	elsewhere.Namespace = "kube-system"
	if err := within.Create(ctx, elsewhere); err == nil {
		t.Fatal("it left its namespace")
	}
}

// TestWatchingClient is told of what it selects, and of what leaves the selection.
func TestWatchingClient(t *testing.T) {
	c, ctx := bare(t), t.Context()
	w, err := c.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace("default"), client.MatchingLabels{"suite": "clients"})
	must(t, err)
	defer w.Stop()
	d := deployment("watched")
	must(t, c.Create(ctx, d))
	before := d.DeepCopy()
	d.Labels["suite"] = "none"
	must(t, c.Patch(ctx, d, client.MergeFrom(before)))
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		select {
		case ev := <-w.ResultChan():
			if o, ok := ev.Object.(*appsv1.Deployment); !ok || ev.Type != want || o.Name != "watched" {
				t.Fatalf("%s of %+v, not %s", ev.Type, ev.Object, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event %s", want)
		}
	}
}
