package controllers_test

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestQuotaStatusIsRightAfterItsWriteWasSeenLate has the controller work out what its cache already shows, while
// a write of its own that says otherwise is on its way.
func TestQuotaStatusIsRightAfterItsWriteWasSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStill(t)
		c := w.client.CoreV1().ResourceQuotas("default")
		_, err := c.Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"requests.storage": resource.MustParse("2Gi")}}}, metav1.CreateOptions{})
		w.check(err)
		used := func(want string) {
			t.Helper()
			w.settle()
			q, err := c.Get(w.ctx, "q", metav1.GetOptions{})
			w.check(err)
			if s := q.Status.Used["requests.storage"]; s.String() != want {
				t.Errorf("used: %s, not %s", s.String(), want)
			}
		}
		w.addClaim("one", "nobody")
		used("1Gi")
		w.held.Hold("resourcequotas")
		w.addClaim("two", "nobody")
		used("2Gi")
		w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "two", metav1.DeleteOptions{}))
		used("2Gi")
		w.held.LetGo()
		used("1Gi")
	})
}
