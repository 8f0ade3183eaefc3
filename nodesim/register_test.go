package nodesim

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestANodeMadeAgainIsToldAll deletes the Node of a kubelet that uses a volume. A controller that does not read there that
// it is in use would take it away.
func TestANodeMadeAgainIsToldAll(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*world)
	}{
		{"by the kubelet, with its next report", func(w *world) { advance(w, statusReport) }},
		{"by somebody else", func(w *world) {
			w.must(w.client.CoreV1().Nodes().Create(w.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: types.UID("another")}}, metav1.CreateOptions{}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("c", "vol-1")
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitRunning("p")
			w.waitTold(1, true)
			for _, err := range []error{
				w.client.CoreV1().Nodes().Delete(w.ctx, nodeName, metav1.DeleteOptions{}),
				w.client.StorageV1().CSINodes().Delete(w.ctx, nodeName, metav1.DeleteOptions{}), // as the garbage collector does
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			c.make(w)
			w.watchUntil("the new Node", "nodes", func() bool {
				n := w.nodeObject()
				return slices.Contains(n.Status.VolumesInUse, uniqueName("vol-1")) && n.Labels["region"] == "nyc3" && n.Annotations["csi.volume.kubernetes.io/nodeid"] != "" &&
					n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] == "true" &&
					slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
			})
			w.watchUntil("the new CSINode", "csinodes", func() bool {
				cn, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
				return err == nil && len(cn.Spec.Drivers) == 1
			})
		})
	}
}
