package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestFiftyAtOnce: many pods at once spread evenly and no node gets more volumes than it
// takes, at no moment; the one too many is told why, and fits when another goes.
func TestFiftyAtOnce(t *testing.T) {
	w := newWorld(t)
	const limit, count = 17, 51
	for _, n := range []string{"n1", "n2", "n3"} {
		w.addNode(n, limit)
	}
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	most := map[string]int{}
	now := map[string]map[string]bool{}
	stop := w.start(w.provisioner, w.attacher, func(ctx context.Context) {
		pods := w.client.CoreV1().Pods("default")
		each(ctx, lister(pods.List), pods.Watch, func(o runtime.Object, gone bool) bool {
			p := o.(*corev1.Pod)
			if now[p.Spec.NodeName] == nil {
				now[p.Spec.NodeName] = map[string]bool{}
			}
			now[p.Spec.NodeName][p.Name] = !gone
			n := 0
			for _, there := range now[p.Spec.NodeName] {
				if there {
					n++
				}
			}
			most[p.Spec.NodeName] = max(most[p.Spec.NodeName], n)
			return false
		})
	})
	for i := range count {
		name := fmt.Sprintf("p%02d", i)
		w.addClaim(name, "blk")
		w.addPod(name, name)
	}
	nodes := map[string]int{}
	for i := range count {
		nodes[w.pod(fmt.Sprintf("p%02d", i), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }).Spec.NodeName]++
	}
	if nodes["n1"] != limit || nodes["n2"] != limit || nodes["n3"] != limit {
		t.Errorf("pods by node: %v", nodes)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.node(n, func(n *corev1.Node) bool { return len(n.Status.VolumesAttached) == limit })
	}
	w.addClaim("more", "blk")
	w.addPod("more", "more")
	const why = "0/3 nodes are available: 3 node(s) exceed max volume count. "
	p := w.pod("more", func(p *corev1.Pod) bool { return len(p.Status.Conditions) > 0 })
	if c := p.Status.Conditions[0]; c.Type != corev1.PodScheduled || c.Reason != corev1.PodReasonUnschedulable || !strings.HasPrefix(c.Message, why) {
		t.Errorf("condition: %+v", c)
	}
	if e := w.event("more", "FailedScheduling"); !strings.HasPrefix(e.Message, why) || e.Source.Component != "default-scheduler" {
		t.Errorf("event: %+v", e)
	}
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "p07", metav1.DeleteOptions{}))
	w.pod("more", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	stop()
	for n, c := range most {
		if n != "" && c > limit {
			t.Errorf("%s had %d pods at once", n, c)
		}
	}
}

// TestImmediate: the claim is bound without a pod, and a pod that came too early is
// brought back when it is.
func TestImmediate(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.provisioner, w.attacher)
	w.addPod("p", "data")
	if e := w.event("p", "FailedScheduling"); !strings.Contains(e.Message, `persistentvolumeclaim "data" not found`) {
		t.Errorf("event: %s", e.Message)
	}
	w.addClaim("data", "now")
	w.event("data", "ProvisioningFailed") // no such class
	w.addClass("now", storagev1.VolumeBindingImmediate)
	w.event("data", "ExternalProvisioning")
	w.claim("data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	w.pod("p", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	w.event("p", "SuccessfulAttachVolume")
}

// TestNodeRules: cordoned, tainted, not ready and not selected nodes are left out, in words.
func TestNodeRules(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		w.addNode(n, 7)
	}
	change := func(name string, f func(*corev1.Node)) {
		n, err := w.client.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
		w.check(err)
		f(n)
		_, err = w.client.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
		w.check(err)
	}
	change("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	change("n2", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
	})
	change("n3", func(n *corev1.Node) { n.Labels["zone"] = "a" })
	w.start()
	p := pod("p")
	p.Spec.NodeSelector = map[string]string{"zone": "b"}
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	e := w.event("p", "FailedScheduling")
	const want = "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector. " +
		"preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
	if e.Message != want {
		t.Errorf("got  %s\nwant %s", e.Message, want)
	}
	change("n4", func(n *corev1.Node) { n.Labels["zone"] = "b" })
	if p := w.pod("p", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); p.Spec.NodeName != "n4" {
		t.Errorf("scheduled to %s", p.Spec.NodeName)
	}
	if e := w.event("p", "Scheduled"); e.Message != "Successfully assigned default/p to n4" {
		t.Errorf("event: %s", e.Message)
	}
}

// TestProvisioningFailsOnOneNode: the provisioner gives the node back, and the pod goes elsewhere.
func TestProvisioningFailsOnOneNode(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	full := func(ctx context.Context) {
		claims := w.client.CoreV1().PersistentVolumeClaims("default")
		each(ctx, lister(claims.List), claims.Watch, func(o runtime.Object, gone bool) bool {
			c := o.(*corev1.PersistentVolumeClaim)
			if gone || c.Annotations["volume.kubernetes.io/selected-node"] != "n1" || c.Annotations["volume.kubernetes.io/storage-provisioner"] == "" {
				return false
			}
			delete(c.Annotations, "volume.kubernetes.io/selected-node")
			_, _ = claims.Update(ctx, c, metav1.UpdateOptions{})
			return false
		})
	}
	w.start(full)
	w.addClaim("data", "blk")
	w.addPod("p", "data")
	w.claim("data", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations["volume.kubernetes.io/selected-node"] == "n2"
	})
	if e := w.event("p", "FailedScheduling"); !strings.Contains(e.Message, `provisioning failed for PVC "data"`) {
		t.Errorf("event: %s", e.Message)
	}
}
