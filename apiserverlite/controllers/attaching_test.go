package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// usedOn brings a pod with a volume onto a node that lists it as in use, and returns the volume's name.
func usedOn(w *world, node string) corev1.UniqueVolumeName {
	w.t.Helper()
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	c := w.addClaim("data", "blk")
	w.addPodOn("first", node, "data")
	name := control.UniqueName(driver, "vol-"+string(c.UID))
	w.attached(node, name)
	w.setInUse(node, name)
	return name
}

// addPodOn adds a pod that runs on that node and takes 30 seconds to go.
func (w *world) addPodOn(name, node string, claims ...string) {
	w.t.Helper()
	p := pod(name, claims...)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
}

// setReady plays a kubelet's word about its node.
func (w *world) setReady(node string, status corev1.ConditionStatus) {
	w.t.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	w.check(err)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(w.lab.Clock.Now())}}
	_, err = w.client.CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
	w.check(err)
}

// running plays a kubelet's word about a pod's containers.
func (w *world) running(name string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	w.check(err)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	_, err = w.client.CoreV1().Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
	w.check(err)
}

// TestMultiAttach: a volume for one node is not attached to a second; the pod there is
// told who has it, and gets it when the first node has let go.
func TestMultiAttach(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.start(w.provisioner, w.attacher)
	name := usedOn(w, "n1")
	w.running("first")
	w.addPodOn("second", "n2", "data")
	e := w.event("second", "FailedAttachVolume")
	if !strings.HasPrefix(e.Message, `Multi-Attach error for volume "pvc-`) || !strings.HasSuffix(e.Message, `Volume is already used by pod(s) first`) {
		t.Errorf("event: %s", e.Message)
	}
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	w.setInUse("n1")
	w.attached("n1")
	w.attached("n2", name)
}

// TestForcedDetach: the pod of a dead node is deleted by force; six minutes later, not
// before, its volume is taken off.
func TestForcedDetach(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.start(w.provisioner, w.attacher)
	name := usedOn(w, "n1")
	w.setReady("n1", corev1.ConditionUnknown)
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	deleted := w.lab.Clock.Now()
	w.addPodOn("second", "n2", "data")
	if e := w.event("second", "FailedAttachVolume"); !strings.Contains(e.Message, "Multi-Attach error") {
		t.Errorf("event: %s", e.Message)
	}
	fast := w.timeFlies(5 * time.Second)
	// The silent nodes are tainted meanwhile; the pod on n2 stays.
	w.attached("n2", name)
	fast()
	if passed := w.lab.Clock.Since(deleted); passed < 6*time.Minute {
		t.Errorf("detached after %s", passed)
	}
}

// TestOutOfService: a tainted dead node loses its terminating pods and volumes at once.
func TestOutOfService(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.start(w.provisioner, w.attacher)
	name := usedOn(w, "n1")
	w.running("first")
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "first", metav1.DeleteOptions{}))
	w.addPodOn("second", "n2", "data")
	w.event("second", "FailedAttachVolume")
	w.setReady("n1", corev1.ConditionFalse)
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
	w.check(err)
	for {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		if _, err = w.client.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{}); err == nil {
			break
		}
		n, err = w.client.CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
		w.check(err)
	}
	w.attached("n2", name)
	// The collector first says that the pod has failed, which frees its volumes, and then deletes it.
	pods := w.client.CoreV1().Pods("default")
	w.none("pod on the dead node", pods.Watch, func() (string, error) {
		p, err := pods.Get(w.ctx, "first", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return p.Name, err
	})
}

// TestAttachError: the attacher's error is told, and a later success needs no backoff to
// be noticed.
func TestAttachError(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.provisioner)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	c := w.addClaim("data", "blk")
	w.addPod("p", "data")
	handle := "vol-" + string(c.UID)
	vaName := control.AttachmentName(handle, driver, "n1")
	vas := w.client.StorageV1().VolumeAttachments()
	va := until(w, "the attachment", lister(vas.List), vas.Watch, func(va *storagev1.VolumeAttachment) bool { return va.Name == vaName })
	if va.Spec.Attacher != driver || va.Spec.NodeName != "n1" || *va.Spec.Source.PersistentVolumeName != "pvc-"+string(c.UID) {
		t.Errorf("attachment: %+v", va.Spec)
	}
	va.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: code = Internal desc = no", Time: metav1.Now()}
	va, err := vas.UpdateStatus(w.ctx, va, metav1.UpdateOptions{})
	w.check(err)
	e := w.event("p", "FailedAttachVolume")
	if want := `AttachVolume.Attach failed for volume "pvc-` + string(c.UID) + `" : rpc error: code = Internal desc = no`; e.Message != want {
		t.Errorf("event: %s", e.Message)
	}
	va, err = vas.Get(w.ctx, va.Name, metav1.GetOptions{})
	w.check(err)
	va.Status.AttachError, va.Status.Attached = nil, true
	_, err = vas.UpdateStatus(w.ctx, va, metav1.UpdateOptions{})
	w.check(err)
	w.attached("n1", control.UniqueName(driver, handle))
}

// TestPodGoesWhileAttaching: the detach follows as soon as the attach has settled.
func TestPodGoesWhileAttaching(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	stop := w.start(w.provisioner)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	w.addClaim("data", "blk")
	w.addPod("p", "data")
	vas := w.client.StorageV1().VolumeAttachments()
	until(w, "the attachment", lister(vas.List), vas.Watch, func(va *storagev1.VolumeAttachment) bool { return true })
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "p", metav1.DeleteOptions{}))
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, w.attacher)
	w.noAttachments()
	w.attached("n1")
	cancel()
	wait()
	stop()
}

// TestNames are the vectors of upstream's naming rules.
func TestNames(t *testing.T) {
	if got := control.AttachmentName("vol-00a1", "blk.sim.example.com", "node-1"); got != "csi-a30979af53b40e60bec35a2421357b3b0446bb0f8276e48d749a73a2819e0b65" {
		t.Errorf("attachment name %s", got)
	}
	name := control.UniqueName("blk.sim.example.com", "vol/1")
	if name != "kubernetes.io/csi/blk.sim.example.com^vol/1" {
		t.Errorf("volume name %s", name)
	}
	if d, h, err := control.SplitUniqueName(name); d != "blk.sim.example.com" || h != "vol/1" || err != nil {
		t.Errorf("split into %s %s: %v", d, h, err)
	}
	if _, _, err := control.SplitUniqueName("kubernetes.io/csi/d^a^b"); err == nil {
		t.Error("a handle with ^ was split")
	}
}
