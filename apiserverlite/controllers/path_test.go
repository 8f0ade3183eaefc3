package controllers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// TestOneVolume follows one claim and one pod all the way and back.
func TestOneVolume(t *testing.T) {
	w := newWorld(t)
	w.start(w.provisioner, w.attacher)
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	c := w.addClaim("data", "blk")
	w.event("data", "WaitForFirstConsumer")
	w.addPod("p", "data")

	p := w.pod("p", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	if p.Spec.NodeName != "n1" {
		t.Errorf("scheduled to %s, want n1, the first by name of equals", p.Spec.NodeName)
	}
	bound := w.claim("data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	if bound.Annotations["volume.kubernetes.io/selected-node"] != "n1" || bound.Annotations["pv.kubernetes.io/bind-completed"] == "" {
		t.Errorf("annotations of the bound claim: %v", bound.Annotations)
	}
	name := control.UniqueName(driver, "vol-"+string(c.UID))
	w.node("n1", func(n *corev1.Node) bool {
		return len(n.Status.VolumesAttached) == 1 && n.Status.VolumesAttached[0].Name == name
	})
	w.event("p", "Scheduled")
	if e := w.event("p", "SuccessfulAttachVolume"); e.Source.Component != "attachdetach-controller" {
		t.Errorf("source of the event: %s", e.Source.Component)
	}

	// While the node uses it, nothing is detached.
	w.setInUse("n1", name)
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "p", metav1.DeleteOptions{}))
	w.setInUse("n1")
	w.node("n1", func(n *corev1.Node) bool { return len(n.Status.VolumesAttached) == 0 })
	w.noAttachments()
}
