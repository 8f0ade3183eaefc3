package pluginmanager

import (
	"context"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func newNodeInfo(node *v1.Node) *NodeInfo {
	return &NodeInfo{Client: fake.NewSimpleClientset(node), Name: node.Name, //nolint:staticcheck // SA1019: no field management is wanted
		Retry: func(_ context.Context, try func() error) error { return try() }}
}

func TestNodeInfo(t *testing.T) {
	ctx := t.Context()
	n := newNodeInfo(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Labels: map[string]string{"zone": "a"}}})
	if err := n.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	info := func(id string, max int64, segments map[string]string) *csipb.NodeGetInfoResponse {
		return &csipb.NodeGetInfoResponse{NodeId: id, MaxVolumesPerNode: max, AccessibleTopology: &csipb.Topology{Segments: segments}}
	}
	between := false
	if err := n.Install(ctx, "a.example.com", info("ida", 7, map[string]string{"region": "r", "zone": "a"}), func() { between = true }); err != nil || !between {
		t.Fatal(err)
	}
	if err := n.Install(ctx, "b.example.com", info("idb", 1<<40, nil), func() {}); err != nil {
		t.Fatal(err)
	}
	if err := n.Install(ctx, "c.example.com", info("idc", 0, map[string]string{"zone": "b"}), func() {}); err == nil || !strings.Contains(err.Error(), "collision") {
		t.Errorf("a topology value that collides: %v", err)
	}
	node, _ := n.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if got := node.Annotations[nodeIDAnnotation]; got != `{"a.example.com":"ida","b.example.com":"idb"}` || node.Labels["region"] != "r" {
		t.Errorf("annotation %s labels %v", got, node.Labels)
	}
	c, _ := n.Client.StorageV1().CSINodes().Get(ctx, "n1", metav1.GetOptions{})
	if len(c.Spec.Drivers) != 2 || c.OwnerReferences[0].UID != "u" {
		t.Fatalf("CSINode %+v", c)
	}
	a, b := c.Spec.Drivers[0], c.Spec.Drivers[1]
	if *a.Allocatable.Count != 7 || strings.Join(a.TopologyKeys, ",") != "region,zone" || *b.Allocatable.Count != 1<<31-1 {
		t.Errorf("drivers %+v %+v", a, b)
	}
	if err := n.Uninstall(ctx, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	node, _ = n.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	c, _ = n.Client.StorageV1().CSINodes().Get(ctx, "n1", metav1.GetOptions{})
	if len(c.Spec.Drivers) != 1 || node.Annotations[nodeIDAnnotation] != `{"b.example.com":"idb"}` || node.Labels["region"] != "r" {
		t.Errorf("after removal: %v %v %v", c.Spec.Drivers, node.Annotations, node.Labels)
	}
}

func TestCSINodeOfAnEarlierNodeIsReplaced(t *testing.T) {
	ctx := t.Context()
	n := newNodeInfo(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "new"}})
	old := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "old"}}}}
	if _, err := n.Client.StorageV1().CSINodes().Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := n.Initialize(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := n.Client.StorageV1().CSINodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil || c.OwnerReferences[0].UID != "new" || c.Annotations[migratedAnnotation] == "" {
		t.Errorf("%+v %v", c, err)
	}
}
