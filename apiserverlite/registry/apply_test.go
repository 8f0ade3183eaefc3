package registry_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
)

type defaults struct{ registry.Strategy }

func manager(t *testing.T, resource, subresource string) (*managedfields.FieldManager, *registry.Resource) {
	t.Helper()
	r := find(t, resource)
	types, err := reg(t).TypeConverter()
	if err != nil {
		t.Fatal(err)
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	for v, set := range r.Strategy.ResetFields() {
		reset[v] = fieldpath.NewExcludeSetFilter(set)
	}
	m, err := managedfields.NewDefaultFieldManager(types, scheme.Scheme, defaults{r.Strategy}, scheme.Scheme, r.GVK, r.GVK.GroupVersion(), subresource, reset)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

func patch(t *testing.T, doc string) runtime.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// Two appliers share a pod's lists: each keeps its own entries, told apart by the list's keys.
func TestApplyMergesListsByKey(t *testing.T) {
	m, r := manager(t, "pods", "")
	live := r.New()
	live.GetObjectKind().SetGroupVersionKind(r.GVK)
	one, err := m.Apply(live, patch(t, `
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ns}
spec:
  containers:
  - name: a
    image: x
    ports: [{containerPort: 80}]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: c}}]
`), "one", false)
	if err != nil {
		t.Fatal(err)
	}
	two, err := m.Apply(one, patch(t, `
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ns, finalizers: [example.com/two]}
spec:
  containers:
  - name: a
    ports: [{containerPort: 80, protocol: UDP}]
  - name: b
    image: other
  volumes: [{name: scratch, emptyDir: {}}]
`), "two", false)
	if err != nil {
		t.Fatal(err)
	}
	p := two.(*corev1.Pod)
	if len(p.Spec.Containers) != 2 || p.Spec.Containers[0].Image != "x" || len(p.Spec.Containers[0].Ports) != 2 || len(p.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("containers %+v", p.Spec.Containers)
	}
	if len(p.Spec.Volumes) != 2 || len(p.Finalizers) != 1 || len(p.ManagedFields) != 2 {
		t.Errorf("volumes %+v, finalizers %v, %d managers", p.Spec.Volumes, p.Finalizers, len(p.ManagedFields))
	}
	if _, err := m.Apply(two, patch(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {containers: [{name: b, image: z}]}}`), "one", false); err == nil {
		t.Error("two managers set one field and nobody complains")
	}
}

// Every kind can be tracked; a field that a kind does not have is named.
func TestEveryKindCanBeApplied(t *testing.T) {
	for _, r := range reg(t).Resources() {
		t.Run(r.GVR.String(), func(t *testing.T) {
			types, err := reg(t).TypeConverter()
			if err != nil {
				t.Fatal(err)
			}
			m, err := managedfields.NewDefaultFieldManager(types, scheme.Scheme, defaults{r.Strategy}, scheme.Scheme, r.GVK, r.GVK.GroupVersion(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			live := r.New()
			live.GetObjectKind().SetGroupVersionKind(r.GVK)
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(r.GVK)
			u.SetName("x")
			u.SetLabels(map[string]string{"a": "b"})
			out, err := m.Apply(live, u, "me", false)
			if err != nil {
				t.Fatal(err)
			}
			o := out.DeepCopyObject()
			r.Strategy.Default(o)
			if again := m.UpdateNoErrors(out, o, "other"); again == nil {
				t.Error("nothing comes of an update")
			}
			u.Object["nonsense"] = "x"
			if _, err := m.Apply(live, u, "me", false); err == nil {
				t.Error("an unknown field is applied")
			}
		})
	}
}
