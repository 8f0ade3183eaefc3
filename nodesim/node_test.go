package nodesim

import (
	"flag"
	"slices"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests wait for pauses most of the time, so more of them run at once than there are cores.
func TestMain(m *testing.M) {
	flag.Parse()
	set := map[string]string{"test.parallel": "16", "rapid.checks": "20"}
	flag.Visit(func(f *flag.Flag) { delete(set, f.Name) }) // what the command line says stands
	for name, value := range set {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

func TestOneVolumeLife(t *testing.T) {
	w := newWorld(t)
	w.addVolume("c", "vol-00a1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.waitTold(1, true) // the driver serves calls a moment before its node id is written

	if got, want := w.guest.log(), []string{"Stage vol-00a1", "Publish vol-00a1"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	node := w.nodeObject()
	if !slices.Contains(node.Status.VolumesInUse, uniqueName("vol-00a1")) {
		t.Errorf("volumesInUse %v", node.Status.VolumesInUse)
	}
	if node.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"blk.sim.example.com":"id-n1"}` || node.Labels["region"] != "nyc3" {
		t.Errorf("node annotations %v labels %v", node.Annotations, node.Labels)
	}
	cn, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
	if err != nil || len(cn.Spec.Drivers) != 1 || *cn.Spec.Drivers[0].Allocatable.Count != 7 {
		t.Errorf("CSINode %+v %v", cn, err)
	}
	p, _ := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	if s := p.Status.ContainerStatuses; len(s) != 1 || !s[0].Ready || s[0].State.Running == nil || p.Status.PodIP == "" || p.Status.StartTime == nil {
		t.Errorf("status %+v", p.Status)
	}
	path, err := w.node.PodVolumePath(p, "vol-c", "pv-c")
	if err != nil {
		t.Fatal(err)
	}
	if not, err := w.mounter.IsLikelyNotMountPoint(path); err != nil || not {
		t.Errorf("nothing is mounted at %s: %v", path, err)
	}

	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	want := []string{"Stage vol-00a1", "Publish vol-00a1", "Unpublish vol-00a1", "Unstage vol-00a1", "Detach vol-00a1"}
	if got := w.guest.log(); !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	if w.podPhase("p") != v1.PodPhase("") {
		t.Error("the pod's object is still there")
	}
}
