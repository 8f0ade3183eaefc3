package conformance

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var spaces = core("namespaces")

func TestNamespaceIsChanged(t *testing.T) {
	w := newWorld(t)
	client := w.client.CoreV1().Namespaces()
	n, err := client.Patch(w.ctx, w.ns, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	w.must(err)
	if n.Labels["patched"] != "yes" || n.Labels[corev1.LabelMetadataName] != w.ns || n.Status.Phase != corev1.NamespaceActive || !slices.Equal(n.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}) {
		t.Errorf("patched: %+v", n)
	}
	n.Labels["updated"] = "yes"
	n, err = client.Update(w.ctx, n, metav1.UpdateOptions{})
	w.must(err)
	if n.Labels["updated"] != "yes" {
		t.Errorf("updated: %+v", n)
	}
	n, err = client.Patch(w.ctx, w.ns, types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}},"status":{"conditions":[{"type":"StatusPatch","status":"True","reason":"Test","message":"m"}]}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if len(n.Status.Conditions) != 1 || n.Status.Conditions[0].Type != "StatusPatch" {
		t.Errorf("status patched: %+v", n.Status)
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: "StatusUpdate", Status: corev1.ConditionTrue, Reason: "Test"})
	n, err = client.UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
	w.must(err)
	if len(n.Status.Conditions) != 2 {
		t.Errorf("status updated: %+v", n.Status)
	}
}

// TestNamespaceGoesWithWhatIsInIt and does not go, nor take in anything new, while a finalizer holds it.
func TestNamespaceGoesWithWhatIsInIt(t *testing.T) {
	w := newWorld(t)
	client := w.client.CoreV1().Namespaces()
	w.createPod(pod("p"))
	w.running("p")
	_, err := w.client.CoreV1().Services(w.ns).Create(w.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	w.must(err)
	n, err := client.Get(w.ctx, w.ns, metav1.GetOptions{})
	w.must(err)
	n.Spec.Finalizers = append(n.Spec.Finalizers, "conformance.test/hold")
	_, err = client.Finalize(w.ctx, n, metav1.UpdateOptions{})
	w.must(err)
	w.must(client.Delete(w.ctx, w.ns, metav1.DeleteOptions{}))
	w.gone(core("pods"), w.ns, "p")
	w.gone(core("services"), w.ns, "s")
	w.gone(core("configmaps"), w.ns, "kube-root-ca.crt")
	left := await(w, spaces, "", w.ns, "to have only the finalizer of the test", func(n *corev1.Namespace) bool {
		return n != nil && slices.Equal(n.Spec.Finalizers, []corev1.FinalizerName{"conformance.test/hold"})
	})
	if left.Status.Phase != corev1.NamespaceTerminating || left.DeletionTimestamp == nil {
		t.Errorf("while it is deleted: %+v", left)
	}
	_, err = w.client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	w.refused(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }, "because it is being terminated")
	left.Spec.Finalizers = nil
	_, err = client.Finalize(w.ctx, left, metav1.UpdateOptions{})
	w.must(err)
	w.gone(spaces, "", w.ns)
	_, err = w.client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	w.refused(err, apierrors.IsNotFound, `namespaces "`+w.ns+`" not found`)
}

// TestNamespaceDeletesPodsFirst: a pod that a finalizer holds keeps what it may still use.
func TestNamespaceDeletesPodsFirst(t *testing.T) {
	w := newWorld(t)
	held := pod("held")
	held.Finalizers = []string{"conformance.test/hold"}
	w.createPod(held)
	maps{w}.make("used", "a")
	w.must(w.client.CoreV1().Namespaces().Delete(w.ctx, w.ns, metav1.DeleteOptions{}))
	await(w, spaces, "", w.ns, "to say what holds it", func(n *corev1.Namespace) bool {
		return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue
		})
	})
	if c, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.ctx, "used", metav1.GetOptions{}); err != nil || c.DeletionTimestamp != nil {
		t.Errorf("while a pod is left, its ConfigMap is %v, %v", c, err)
	}
	_, err := w.client.CoreV1().Pods(w.ns).Patch(w.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.must(err)
	w.gone(spaces, "", w.ns)
}

func TestManyNamespacesGo(t *testing.T) {
	w := newWorld(t)
	const many = 50
	label := "many=" + w.ns
	stream, err := w.at(spaces, "").Watch(w.ctx, metav1.ListOptions{LabelSelector: label})
	w.must(err)
	defer stream.Stop()
	for i := range many {
		_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.unique(fmt.Sprint("many-", i)), Labels: labelled(label)}}, metav1.CreateOptions{})
		w.must(err)
	}
	for i := range many {
		w.must(w.client.CoreV1().Namespaces().Delete(w.ctx, w.unique(fmt.Sprint("many-", i)), metav1.DeleteOptions{}))
	}
	for gone := 0; gone < many; {
		select {
		case e := <-stream.ResultChan():
			if e.Type == watch.Deleted {
				gone++
			}
		case <-w.ctx.Done():
			t.Fatalf("%d of %d are gone", gone, many)
		}
	}
}

// owned is a ConfigMap with owners, each by its name; block makes the references block their foreground deletion.
func (w *world) owned(name string, finalizers []string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	o := w.object("{apiVersion: v1, kind: ConfigMap}")
	o.SetName(name)
	o.SetFinalizers(finalizers)
	var refs []metav1.OwnerReference
	block := true
	for _, x := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: x.GetAPIVersion(), Kind: x.GetKind(), Name: x.GetName(), UID: x.GetUID(), BlockOwnerDeletion: &block})
	}
	o.SetOwnerReferences(refs)
	made, err := w.at(core("configmaps"), w.ns).Create(w.ctx, o, metav1.CreateOptions{})
	w.must(err)
	return made
}

func (w *world) removeBy(r schema.GroupVersionResource, name string, p metav1.DeletionPropagation) {
	w.t.Helper()
	w.must(w.at(r, w.ns).Delete(w.ctx, name, metav1.DeleteOptions{PropagationPolicy: &p}))
}
