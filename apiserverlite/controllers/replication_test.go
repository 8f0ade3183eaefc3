package controllers_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// addController makes a replication controller of pods that nobody else selects.
func (w *world) addController(replicas int32) *corev1.ReplicationController {
	w.t.Helper()
	template := workloadTemplate("one")
	template.Labels = map[string]string{"app": "elder"}
	rc, err := w.client.CoreV1().ReplicationControllers("default").Create(w.ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "elder"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: map[string]string{"app": "elder"}, Template: &template}}, metav1.CreateOptions{})
	w.check(err)
	return rc
}

// controllerHas waits until the controller says that all of its n pods are available.
func (w *world) controllerHas(n int32) {
	w.t.Helper()
	c := w.client.CoreV1().ReplicationControllers("default")
	until(w, "replication controller", lister(c.List), c.Watch, func(rc *corev1.ReplicationController) bool {
		return rc.Status.ObservedGeneration == rc.Generation && rc.Status.Replicas == n && rc.Status.FullyLabeledReplicas == n && rc.Status.AvailableReplicas == n
	})
}

// elders are its pods that are to stay.
func (w *world) elders() []corev1.Pod {
	w.t.Helper()
	l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "app=elder"})
	w.check(err)
	return slices.DeleteFunc(l.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// TestReplicationControllerKeepsItsPods scales one, takes a pod from it, and deletes it: without its pods, and with them.
func TestReplicationControllerKeepsItsPods(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 10)
	w.start((&kubelet{w: w}).run)
	c, pods := w.client.CoreV1().ReplicationControllers("default"), w.client.CoreV1().Pods("default")
	first := w.addController(3)
	w.controllerHas(3)
	w.event("elder", "SuccessfulCreate")
	_, err := c.Patch(w.ctx, "elder", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
	w.check(err)
	w.controllerHas(2)
	_, err = pods.Patch(w.ctx, w.elders()[0].Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"younger"}}}`), metav1.PatchOptions{})
	w.check(err)
	until(w, "the pod that is let go", lister(pods.List), pods.Watch, func(p *corev1.Pod) bool { return p.Labels["app"] == "younger" && len(p.OwnerReferences) == 0 })
	w.controllerHas(2)

	w.check(c.Delete(w.ctx, "elder", metav1.DeleteOptions{})) // its pods stay unless it is said otherwise
	w.none("replication controller", c.Watch, func() (string, error) {
		l, err := c.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
	if list := w.elders(); len(list) != 2 || len(list[0].OwnerReferences) > 0 {
		t.Fatalf("the pods that stay: %+v", list)
	}
	again := w.addController(2)
	w.controllerHas(2)
	for _, p := range w.elders() {
		if ref := metav1.GetControllerOf(&p); ref == nil || ref.UID != again.UID || ref.Kind != "ReplicationController" || p.CreationTimestamp.Before(&first.CreationTimestamp) {
			t.Errorf("not adopted: %+v", p.ObjectMeta)
		}
	}
	w.check(c.Delete(w.ctx, "elder", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	w.none("pods of the controller", pods.Watch, func() (string, error) {
		l, err := pods.List(w.ctx, metav1.ListOptions{LabelSelector: "app=elder"})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
}

// elderKeeps is a story: a replication controller replaces a pod that goes.
func elderKeeps(w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, (&kubelet{w: w}).run)
	defer func() { cancel(); wait() }()
	w.addNode("n1", 7)
	w.addController(2)
	w.controllerHas(2)
	pods := w.client.CoreV1().Pods("default")
	kept := w.elders()
	gone := kept[0]
	w.check(pods.Delete(w.ctx, gone.Name, metav1.DeleteOptions{}))
	until(w, "another pod", lister(pods.List), pods.Watch, func(p *corev1.Pod) bool {
		return p.Labels["app"] == "elder" && p.Status.Phase == corev1.PodRunning && p.UID != gone.UID && !slices.ContainsFunc(kept, func(k corev1.Pod) bool { return k.UID == p.UID })
	})
	if n := len(w.elders()); n != 2 {
		w.t.Errorf("%d pods for two", n)
	}
}
