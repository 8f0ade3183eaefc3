package pvbinder

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The answer to a write may arrive after the object's end was seen by the watch.
func TestAnswerToAWriteDoesNotBringBackTheDeleted(t *testing.T) {
	claim := func(version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "1", ResourceVersion: version}}
	}
	volume := func(version string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "2", ResourceVersion: version}}
	}
	s := newStore()
	s.putClaim(claim("5"))
	s.putVolume(volume("6"))
	if !s.wroteClaim(claim("7")) || !s.wroteVolume(volume("8")) || s.wroteClaim(claim("6")) {
		t.Fatal("a newer answer is kept, an older one is not")
	}
	s.dropClaim(claim("9"))
	s.dropVolume(volume("9"))
	if s.wroteClaim(claim("8")) || s.wroteVolume(volume("9")) || s.claim("a/c") != nil || s.volume("v") != nil {
		t.Fatal("a deleted object came back")
	}
}
