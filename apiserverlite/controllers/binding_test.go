package controllers_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestRetroactiveDefault: a claim without a class gets the default that appears later, the
// newest of several; a claim with the empty class and one that was bound are left alone.
func TestRetroactiveDefault(t *testing.T) {
	w := newWorld(t)
	w.start(w.provisioner)
	w.addVolume(static("old", ""))
	none := func(name string) *corev1.PersistentVolumeClaim {
		c := claim(name, "")
		c.Spec.StorageClassName = nil
		c, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, c, metav1.CreateOptions{})
		w.check(err)
		return c
	}
	none("bound")
	w.claim("bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	none("waits")
	w.addClaim("empty", "")
	w.event("waits", "FailedBinding")
	w.event("empty", "FailedBinding")

	mode := storagev1.VolumeBindingImmediate
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "blk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: driver, VolumeBindingMode: &mode, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)}, metav1.CreateOptions{})
	w.check(err)
	c := w.claim("waits", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	if *c.Spec.StorageClassName != "blk" {
		t.Errorf("class %q", *c.Spec.StorageClassName)
	}
	for name, want := range map[string]*string{"empty": ptr.To(""), "bound": nil} {
		c, err := w.client.CoreV1().PersistentVolumeClaims("default").Get(w.ctx, name, metav1.GetOptions{})
		w.check(err)
		if ptr.Deref(c.Spec.StorageClassName, "nil") != ptr.Deref(want, "nil") {
			t.Errorf("claim %s has class %v", name, c.Spec.StorageClassName)
		}
	}
}

// TestReleasedVolume: a released volume keeps its claimRef and serves nobody until its
// admin clears the UID; then just the claim that it names gets it.
func TestReleasedVolume(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.addVolume(static("kept", ""))
	w.volume("kept", func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeAvailable })
	w.addClaim("data", "")
	w.claim("data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "data", metav1.DeleteOptions{}))
	v := w.volume("kept", func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeReleased })
	w.noClaims("default")

	again := claim("data", "")
	again.Spec.VolumeName = "kept"
	_, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, again, metav1.CreateOptions{})
	w.check(err)
	if e := w.event("data", "FailedBinding"); e.Message != `volume "kept" already bound to a different claim.` {
		t.Errorf("event: %s", e.Message)
	}
	v.Spec.ClaimRef.UID, v.Spec.ClaimRef.ResourceVersion = "", ""
	_, err = w.client.CoreV1().PersistentVolumes().Update(w.ctx, v, metav1.UpdateOptions{})
	w.check(err)
	w.claim("data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// TestForeignClaim: a claim that happens to have the name of a pod's ephemeral volume is
// not used; when it is gone the pod gets its own.
func TestForeignClaim(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	w.start(w.provisioner, w.attacher)
	w.addClaim("q-scratch", "blk")
	p := pod("q")
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "blk").Spec}}}}}
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	if e := w.event("q", "FailedBinding"); !strings.Contains(e.Message, "was not created for pod") {
		t.Errorf("event: %s", e.Message)
	}
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "q-scratch", metav1.DeleteOptions{}))
	q := w.pod("q", func(p *corev1.Pod) bool { return p.Spec.NodeName == "n1" })
	c := w.claim("q-scratch", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	if !metav1.IsControlledBy(c, q) {
		t.Errorf("owners: %v", c.OwnerReferences)
	}
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "q", metav1.DeleteOptions{}))
	w.noClaims("default") // with its pod
	w.noAttachments()
}
