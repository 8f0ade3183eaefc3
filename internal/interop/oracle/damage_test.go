package oracle

import (
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
)

// leftDevice matches what is left of a staged volume.
const leftDevice = `^(mount .* on R/|dir |file )plugins/kubernetes.io/csi/oracle.csi.test/[0-9a-f]{64}`

// damage is what a kubelet finds that was killed at a bad moment, or whose files were touched.
func damage() []scenario {
	return []scenario{
		{name: "killed between unpublish and unstage", act: func(w *world) {
			w.addVolume("c")
			w.driver.next("Unstage", slices.Repeat([]outcome{{code: codes.Internal}}, 20)...)
			w.up("p", "c")
			w.deletePod("p")
			w.awaitCalls("Unstage", 1)
			w.awaitGone("p")
			w.kill()
			w.recorded = append(w.recorded, "== killed")
			w.told = len(w.driver.log())
			w.driver.forget()
			w.begin()
			w.awaitIdle()
			w.note("after the restart")
		}, known: []difference{{
			kubelet: leftDevice, nodesim: "^call Unstage ",
			why: "the kubelet looks for volumes in the directories of pods only, and forgets a device that no pod has: it stays mounted while the volume is detached",
		}}},
		{name: "restart without the pod's vol_data.json", act: func(w *world) { w.damaged("pods/*/volumes/*/*/vol_data.json") }, known: []difference{{
			kubelet: leftDevice + `|^(mount .* on R/|dir )pods/UID\(p\)/volumes/`, nodesim: "^call (Unpublish|Unstage) ",
			why: "the kubelet cannot reconstruct the volume, nor unmount it without the file: both mounts stay while the volume is detached; nodesim makes the file again from the PV",
		}}},
		{name: "restart without the device's vol_data.json", act: func(w *world) { w.damaged("plugins/kubernetes.io/csi/*/*/vol_data.json") }},
		{name: "killed after a late stage, and the pod deleted", act: func(w *world) { w.killedAfter("Stage") }, known: []difference{{
			kubelet: leftDevice, nodesim: "^call Unstage ",
			why: "as above: no pod's directory tells of the device",
		}}},
		{name: "killed after a late publish, and the pod deleted", act: func(w *world) { w.killedAfter("Publish") }},
		{name: "block, deleted by force while the kubelet was down", act: func(w *world) {
			w.addVolume("c", block)
			w.createPod("p", []string{"c"}, device)
			w.awaitRunning("p")
			w.kill()
			w.forceDelete("p")
			w.begin()
			w.awaitIdle()
			w.note("after the restart")
		}},
		{name: "restart with a running pod, stage refused at first", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.kill()
			w.driver.next("Stage", outcome{code: codes.InvalidArgument})
			w.begin()
			w.awaitCalls("Publish", 2)
			w.note("after the restart")
			w.down("p")
		}},
		{name: "restart with a running pod, publish refused at first", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.kill()
			w.driver.next("Publish", outcome{code: codes.InvalidArgument})
			w.begin()
			w.awaitCalls("Publish", 3)
			w.note("after the restart")
			w.down("p")
		}},
	}
}

// damaged kills the kubelet, removes a file, deletes the pod by force and begins again.
func (w *world) damaged(pattern string) {
	w.t.Helper()
	w.addVolume("c")
	w.up("p", "c")
	w.kill()
	found, err := filepath.Glob(w.path(pattern))
	w.must(err)
	if len(found) != 1 {
		w.t.Fatalf("%v match %s", found, pattern)
	}
	w.must(os.Remove(found[0]))
	w.forceDelete("p")
	w.begin()
	w.awaitIdle()
	w.note("after the restart")
}

// killedAfter kills the kubelet after the first call of a method, which was done and came late, deletes the pod by force and begins again.
func (w *world) killedAfter(method string) {
	w.t.Helper()
	w.addVolume("c")
	w.driver.next(method, slices.Repeat([]outcome{{code: codes.DeadlineExceeded, done: true}}, 20)...)
	w.createPod("p", []string{"c"})
	w.awaitCalls(method, 1)
	w.until("the failure", func() bool { return len(w.events()) > 0 })
	w.kill()
	w.recorded = append(w.recorded, "== killed")
	w.told = len(w.driver.log())
	w.driver.forget()
	w.forceDelete("p")
	w.begin()
	w.awaitIdle()
	w.note("after the restart")
}
