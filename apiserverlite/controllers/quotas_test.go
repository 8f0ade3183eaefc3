package controllers_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const bollards = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"bollards.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"bollards","kind":"Bollard"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// post sends what the typed client has no words for.
func (w *world) post(path, body string) {
	w.t.Helper()
	w.check(w.client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.ctx).Error())
}

// TestQuotaStatusFollowsEveryKind counts leases, and objects of a kind that is defined later and withdrawn again.
func TestQuotaStatusFollowsEveryKind(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.client.CoreV1().ResourceQuotas("default")
	_, err := c.Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/leases.coordination.k8s.io": resource.MustParse("5"), "count/bollards.example.com": resource.MustParse("5"), "secrets": resource.MustParse("5")}}}, metav1.CreateOptions{})
	w.check(err)
	used := func(leases, own, secrets int64) {
		t.Helper()
		until(w, "quota", lister(c.List), c.Watch, func(q *corev1.ResourceQuota) bool {
			l, b, s := q.Status.Used["count/leases.coordination.k8s.io"], q.Status.Used["count/bollards.example.com"], q.Status.Used["secrets"]
			return len(q.Status.Used) == 3 && l.Value() == leases && b.Value() == own && s.Value() == secrets
		})
	}
	used(0, 0, 0)
	leases := w.client.CoordinationV1().Leases("default")
	for _, name := range []string{"a", "b"} {
		_, err = leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.check(err)
	}
	_, err = w.client.CoreV1().Secrets("default").Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	w.check(err)
	used(2, 0, 1)
	w.check(leases.Delete(w.ctx, "a", metav1.DeleteOptions{}))
	used(1, 0, 1)
	w.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", bollards)
	w.post("/apis/example.com/v1/namespaces/default/bollards", `{"apiVersion":"example.com/v1","kind":"Bollard","metadata":{"name":"x"}}`)
	used(1, 1, 1)
	w.post("/apis/example.com/v1/namespaces/default/bollards", `{"apiVersion":"example.com/v1","kind":"Bollard","metadata":{"name":"y"}}`)
	used(1, 2, 1)
	w.check(w.client.CoreV1().RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bollards.example.com").Do(w.ctx).Error())
	used(1, 0, 1)
}
