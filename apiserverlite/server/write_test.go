package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

var ctx = context.Background()

func TestGenerateName(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	seen := map[string]bool{}
	for range 50 {
		cm, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if seen[cm.Name] || len(cm.Name) != 7 || !strings.HasPrefix(cm.Name, "x-") {
			t.Fatalf("generated %q", cm.Name)
		}
		seen[cm.Name] = true
	}
	long, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.Repeat("a", 80)}}, metav1.CreateOptions{})
	if err != nil || len(long.Name) != 63 {
		t.Fatalf("generated %q: %v", long.Name, err)
	}
}

func TestDryRun(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	all := []string{metav1.DryRunAll}
	dry, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{DryRun: all})
	if err != nil || dry.UID == "" || dry.ResourceVersion != "" {
		t.Fatalf("%+v: %v", dry, err)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run created it: %v", err)
	}
	real1, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	real1.Data = map[string]string{"k": "v"}
	up, err := c.Update(ctx, real1, metav1.UpdateOptions{DryRun: all})
	if err != nil || up.Data["k"] != "v" || up.ResourceVersion != real1.ResourceVersion {
		t.Fatalf("%+v: %v", up, err)
	}
	if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{DryRun: all}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("dry run over an existing object: %v", err)
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, "a", metav1.GetOptions{}); err != nil || got.Data != nil {
		t.Fatalf("after dry runs: %+v %v", got, err)
	}
}

func TestPatches(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "1"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "i"}}}}
	if _, err := c.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(kind types.PatchType, body string, subs ...string) *corev1.Pod {
		t.Helper()
		p, err := c.Pods("default").Patch(ctx, "p", kind, []byte(body), metav1.PatchOptions{}, subs...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := patch(types.MergePatchType, `{"metadata":{"labels":{"a":null,"b":"2"}}}`); fmt.Sprint(p.Labels) != "map[b:2]" {
		t.Fatal(p.Labels)
	}
	if p := patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/labels/b","value":"2"},{"op":"add","path":"/metadata/labels/c","value":"3"}]`); fmt.Sprint(p.Labels) != "map[b:2 c:3]" {
		t.Fatal(p.Labels)
	}
	if p := patch(types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"d","image":"j"}]}}`); len(p.Spec.Containers) != 2 || p.Spec.Containers[1].Image != "j" && p.Spec.Containers[0].Image != "j" {
		t.Fatalf("%+v", p.Spec.Containers)
	}
	if p := patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"},"metadata":{"labels":{"z":"1"}}}`, "status"); p.Status.Phase != corev1.PodRunning {
		t.Fatalf("%+v", p.Status)
	}
	if p := patch(types.MergePatchType, `{"status":{"phase":"Failed"}}`); p.Status.Phase != corev1.PodRunning {
		t.Fatalf("the main endpoint changed the status: %+v", p.Status)
	}
	before, _ := c.Pods("default").Get(ctx, "p", metav1.GetOptions{})
	if p := patch(types.MergePatchType, `{"metadata":{"labels":{"b":"2"}}}`); p.ResourceVersion != before.ResourceVersion {
		t.Fatal("a patch without effect made a revision")
	}
}

// TestPatchesUnderContention has ten clients that patch one object without a version: each patch counts.
func TestPatchesUnderContention(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for n := range 20 {
				if _, err := c.Patch(ctx, "a", types.MergePatchType, fmt.Appendf(nil, `{"data":{"k%d-%d":"v"}}`, i, n), metav1.PatchOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 5 {
				err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					cm, err := c.Get(ctx, "a", metav1.GetOptions{})
					if err != nil {
						return err
					}
					if cm.Labels == nil {
						cm.Labels = map[string]string{}
					}
					cm.Labels[fmt.Sprintf("l%d-%d", i, len(cm.Labels))] = ""
					_, err = c.Update(ctx, cm, metav1.UpdateOptions{})
					return err
				})
				if err != nil && !apierrors.IsConflict(err) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if cm, err := c.Get(ctx, "a", metav1.GetOptions{}); err != nil || len(cm.Data) != 200 {
		t.Fatalf("%d keys: %v", len(cm.Data), err)
	}
}

func TestServerSideApply(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	made, err := c.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"k": "1"}), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || made.UID == "" || len(made.ManagedFields) != 1 || made.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Fatalf("%+v: %v", made, err)
	}
	again, err := c.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"k": "1"}), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil || again.ResourceVersion != made.ResourceVersion {
		t.Fatalf("an apply without effect made revision %s after %s: %v", again.ResourceVersion, made.ResourceVersion, err)
	}
	_, err = c.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"k": "2"}), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `Apply failed with 1 conflict: conflict with "one"`) {
		t.Fatalf("conflicting apply: %v", err)
	}
	forced, err := c.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"k": "2", "l": "3"}), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil || forced.Data["k"] != "2" {
		t.Fatalf("%+v: %v", forced, err)
	}
	dropped, err := c.Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"k": "2"}), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil || len(dropped.Data) != 1 {
		t.Fatalf("what a manager stops to apply must go: %+v: %v", dropped.Data, err)
	}
	// An ordinary update is recorded as well.
	dropped.Data["m"] = "4"
	up, err := c.Update(ctx, dropped, metav1.UpdateOptions{FieldManager: "three"})
	if err != nil || len(up.ManagedFields) < 2 {
		t.Fatalf("%+v: %v", up.ManagedFields, err)
	}
}

func TestDeletionWaitsForFinalizers(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().PersistentVolumeClaims("default")
	pvc := claim("a")
	pvc.Finalizers = []string{"kubernetes.io/pvc-protection"}
	pvc, err := c.Create(ctx, pvc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: pvc.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err) // again is fine
	}
	ev := <-w.ResultChan()
	term := ev.Object.(*corev1.PersistentVolumeClaim)
	if ev.Type != "MODIFIED" || term.DeletionTimestamp == nil || ptr.Deref(term.DeletionGracePeriodSeconds, -1) != 0 {
		t.Fatalf("%s %+v", ev.Type, term)
	}
	_, err = c.Create(ctx, claim("a"), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) || err.Error() != `object is being deleted: persistentvolumeclaims "a" already exists` {
		t.Fatalf("create while deleting: %v", err)
	}
	more := term.DeepCopy()
	more.Finalizers = append(more.Finalizers, "example.com/late")
	if _, err := c.Update(ctx, more, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("a new finalizer on a dying object: %v", err)
	}
	last, err := c.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ev = <-w.ResultChan()
	gone := ev.Object.(*corev1.PersistentVolumeClaim)
	if ev.Type != "DELETED" || last.ResourceVersion != term.ResourceVersion || gone.ResourceVersion == term.ResourceVersion { // the answer is the object as it was written, the event has the deletion's own
		t.Fatalf("%s at %s, answered %s", ev.Type, gone.ResourceVersion, last.ResourceVersion)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestPropagation(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	for _, p := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground, metav1.DeletePropagationBackground} {
		name := strings.ToLower(string(p))
		if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &p}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, name, metav1.GetOptions{})
		switch p {
		case metav1.DeletePropagationBackground:
			if !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		case metav1.DeletePropagationOrphan:
			if err != nil || fmt.Sprint(got.Finalizers) != "[orphan]" {
				t.Fatalf("%v: %v", got.Finalizers, err)
			}
		default:
			if err != nil || fmt.Sprint(got.Finalizers) != "[foregroundDeletion]" {
				t.Fatalf("%v: %v", got.Finalizers, err)
			}
		}
	}
}

func TestPodEndsGracefully(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: ptr.To[int64](30)}}
	made, err := c.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := c.Get(ctx, "p", metav1.GetOptions{})
	if err != nil || ptr.Deref(a.DeletionGracePeriodSeconds, 0) != 30 || a.DeletionTimestamp == nil || a.Generation != made.Generation+1 {
		t.Fatalf("%+v: %v", a.ObjectMeta, err)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](60)}); err != nil {
		t.Fatal(err)
	}
	if b, _ := c.Get(ctx, "p", metav1.GetOptions{}); b.ResourceVersion != a.ResourceVersion {
		t.Fatal("a longer period was honoured")
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](10)}); err != nil {
		t.Fatal(err)
	}
	if b, _ := c.Get(ctx, "p", metav1.GetOptions{}); ptr.Deref(b.DeletionGracePeriodSeconds, 0) != 10 || !b.DeletionTimestamp.Before(a.DeletionTimestamp) {
		t.Fatalf("a shorter period was not honoured: %+v", b.ObjectMeta)
	}
	wrong := types.UID("x")
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestDeleteCollection(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	for i := range 6 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}}
		if _, err := c.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=true"}); err != nil {
		t.Fatal(err)
	}
	left, err := c.List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) != 3 {
		t.Fatalf("%d left: %v", len(left.Items), err)
	}
	code, _, body := f.call(t, call{method: "DELETE", path: nsPath + "/configmaps"})
	if m := decode(t, body); code != 200 || m["kind"] != "ConfigMapList" || len(m["items"].([]any)) != 3 {
		t.Fatalf("%d %s", code, body)
	}
}

func TestNamespaceLife(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1()
	if _, err := c.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	code, _, body := f.call(t, call{method: "DELETE", path: "/api/v1/namespaces/x"})
	m := decode(t, body)
	if code != 200 || m["kind"] != "Namespace" || m["status"].(map[string]any)["phase"] != "Terminating" {
		t.Fatalf("%d %s", code, body)
	}
	_, err := c.ConfigMaps("x").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Fatalf("create in an ending namespace: %v", err)
	}
	ns, err := c.Namespaces().Get(ctx, "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := c.Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Namespaces().Get(ctx, "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestUpsertAndWarnings(t *testing.T) {
	f := start(t, "", newTestRegistry())
	code, h, body := f.call(t, call{method: "PUT", path: "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
		body: `{"metadata":{"name":"l"},"spec":{"holderIdentity":"me","unknown":1},"spec":{"holderIdentity":"me","unknown":1}}`})
	if code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	if w := h.Values("Warning"); len(w) != 2 || !strings.Contains(strings.Join(w, "\n"), `299 - "unknown field \"spec.unknown\""`) {
		t.Fatalf("warnings: %q", w)
	}
	refs := `[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]`
	code, h, body = f.call(t, call{method: "POST", path: nsPath + "/configmaps", body: `{"metadata":{"name":"o","ownerReferences":` + refs + `}}`})
	if code != 201 || strings.Count(body, `"uid":"u"`) != 1 || len(h.Values("Warning")) != 1 {
		t.Fatalf("%d %v %s", code, h.Values("Warning"), body)
	}
}

// TestOurComponentsSkipManagedFields shows that their writes keep what others have recorded.
func TestOurComponentsSkipManagedFields(t *testing.T) {
	f := start(t, "", newTestRegistry())
	made, err := f.typed(t).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := made.DeepCopy()
	u.Data["l"] = "w"
	u.ManagedFields = nil
	own := f.as(t, "drydock-kubelet/n1")
	got, err := own.CoreV1().ConfigMaps("default").Update(ctx, u, metav1.UpdateOptions{})
	if err != nil || len(got.ManagedFields) != 1 || got.ManagedFields[0].Manager != made.ManagedFields[0].Manager {
		t.Fatalf("%+v: %v", got.ManagedFields, err)
	}
	f.cfg.TrackComponents = true
	got.Data["m"] = "x"
	got, err = own.CoreV1().ConfigMaps("default").Update(ctx, got, metav1.UpdateOptions{})
	if err != nil || !slices.ContainsFunc(got.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == "kubelet" && string(e.FieldsV1.Raw) == `{"f:data":{"f:m":{}}}`
	}) {
		t.Fatalf("%+v: %v", got.ManagedFields, err)
	}
}

func TestDynamicClientSeesTypedErrors(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.dynamic(t).Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": "v"}}}
	if _, err := c.Create(ctx, u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, u, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	l, err := c.List(ctx, metav1.ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].GetKind() != "ConfigMap" || l.GetKind() != "ConfigMapList" {
		t.Fatalf("%+v: %v", l, err)
	}
}

// TestClosedStoreAnswers503 shows how a store that cannot write looks to a client.
func TestClosedStoreAnswers503(t *testing.T) {
	f := start(t, "", newTestRegistry())
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := f.typed(t).CoreV1().ConfigMaps("default").Create(done, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		t.Fatal(err)
	}
}
