package nodesim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// TestDamagedVolumesStayInUse: with every record of a volume damaged the kubelet does not know at its start what is mounted.
// What was in use before stays so until the directory is dealt with; else it were detached while it is mounted.
func TestDamagedVolumesStayInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.addVolume("d", "vol-2")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.createPod(pod("other", "d"))
	w.waitRunning("p", "other")
	w.killKubelet()
	w.forceDelete("p")
	root := KubeletRoot(w.root)
	for _, dir := range []string{"pods/uid-p/volumes/kubernetes.io~csi/pv-c", filepath.Join("plugins/kubernetes.io/csi", driverName, csi.StagingName("vol-1"))} {
		w.must(nil, os.Truncate(filepath.Join(root, dir, "vol_data.json"), 0))
	}
	w.startKubelet()
	w.waitCall("Detach vol-1", 1)
	calls := w.guest.log()
	at := func(call string) int { return slices.Index(calls, call) }
	if at("Unpublish vol-1") < 0 || at("Unpublish vol-1") > at("Unstage vol-1") || at("Unstage vol-1") > at("Detach vol-1") {
		t.Errorf("calls %v", calls)
	}
	w.deletePod("other")
	w.waitGone("other")
	w.checkClean()
	w.checkOrder()
}

// TestDamagedVolumeOfAPodThatGoes: the pod is deleted before its SetUp has repaired the record. It is repaired then, and the pod goes.
func TestDamagedVolumeOfAPodThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.killKubelet()
	w.must(nil, os.Remove(filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumes/kubernetes.io~csi/pv-c/vol_data.json")))
	w.guest.set(failing("Stage", codes.Internal, -1), nil)
	w.startKubelet()
	w.waitEvent("FailedMount: MountVolume.MountDevice failed")
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	if n := w.guest.count("Unpublish vol-1"); n != 1 {
		t.Errorf("unpublished %d times: %v", n, w.guest.log())
	}
	w.checkOrder()
}
