package oracle

import (
	"slices"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// others are drivers of other kinds, refusals and races of pods.
func others() []scenario {
	life := func(w *world) {
		w.addVolume("c")
		w.up("p", "c")
		w.down("p")
	}
	return []scenario{
		{name: "driver that does not attach", act: life, spec: func(s *storagev1.CSIDriverSpec) { no := false; s.AttachRequired = &no }},
		{name: "driver that wants no pod info", act: life, spec: func(s *storagev1.CSIDriverSpec) { no := false; s.PodInfoOnMount = &no }},
		{name: "driver that does not stage", act: life, unstaged: true},
		{name: "driver that does not stage, restart", unstaged: true, act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.kill()
			w.begin()
			w.awaitCalls("Publish", 2)
			w.note("after the restart")
			w.down("p")
		}},
		{name: "driver that republishes", spec: func(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }, act: func(w *world) {
			w.addVolume("c")
			w.createPod("p", []string{"c"})
			w.awaitRunning("p")
			w.note("running")
			before := w.driver.count("Publish")
			w.touch("p")
			w.awaitCalls("Publish", before+1)
			w.note("synced")
			w.down("p")
			w.recorded = slices.Compact(w.recorded) // each sync publishes; how many there were is chance
		}},
		{name: "claim that is not there", act: func(w *world) {
			w.createPod("p", []string{"c"})
			w.until("an event", func() bool { return len(w.events()) > 0 })
			w.note("waiting")
			w.deletePod("p")
			w.awaitGone("p")
			w.note("gone")
		}},
		{name: "volume that no container uses", act: func(w *world) {
			w.addVolume("c")
			w.createPod("p", []string{"c"}, func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts = nil })
			w.awaitRunning("p")
			w.note("running")
			w.deletePod("p")
			w.awaitGone("p")
			w.note("gone")
		}},
		{name: "filesystem wanted of a block volume", act: func(w *world) {
			w.addVolume("c", block)
			w.createPod("p", []string{"c"})
			w.until("an event", func() bool { return len(w.events()) > 0 })
			w.note("waiting")
			w.deletePod("p")
			w.awaitGone("p")
			w.note("gone")
		}},
		{name: "second pod of ReadWriteOncePod", act: func(w *world) {
			w.addVolume("c", func(pv *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) {
				only := []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
				pv.Spec.AccessModes, pvc.Spec.AccessModes = only, only
			})
			w.up("p", "c")
			w.createPod("q", []string{"c"})
			w.until("an event", func() bool { return len(w.events()) > 0 })
			w.note("q refused")
			w.deletePod("q")
			w.awaitGone("q")
			w.note("q gone")
			w.down("p")
		}},
		{name: "next pod while the device goes down", act: func(w *world) {
			hold := make(chan struct{})
			w.addVolume("c")
			w.driver.next("Unstage", outcome{hold: hold})
			w.up("p", "c")
			w.deletePod("p")
			w.awaitCalls("Unstage", 1)
			w.awaitGone("p")
			w.createPod("q", []string{"c"})
			w.note("q waits")
			close(hold)
			w.awaitRunning("q")
			w.note("q running")
			w.down("q")
		}},
		{name: "next pod after a late publish", act: func(w *world) {
			hold := make(chan struct{})
			w.addVolume("c")
			w.driver.next("Publish", outcome{code: codes.DeadlineExceeded, done: true, hold: hold})
			w.createPod("p", []string{"c"})
			w.awaitCalls("Publish", 1)
			w.createPod("q", []string{"c"})
			w.deletePod("p")
			w.note("publish under way")
			close(hold)
			w.awaitGone("p")
			w.awaitRunning("q")
			w.note("q running")
			w.down("q")
		}},
		{name: "growth refused while it is unused, then done", act: func(w *world) {
			growing(w)
			w.grow("c")
			w.driver.next("Expand", outcome{code: codes.Internal})
			w.up("p", "c")
			w.noteClaim("c")
			w.down("p")
		}},
		{name: "growth late while it is unused, then done", act: func(w *world) {
			growing(w)
			w.grow("c")
			w.driver.next("Expand", outcome{code: codes.DeadlineExceeded, done: true})
			w.up("p", "c")
			w.noteClaim("c")
			w.down("p")
		}},
		{name: "two PVs of one handle", act: func(w *world) {
			w.addVolume("c")
			w.addVolume("d", func(pv *v1.PersistentVolume, _ *v1.PersistentVolumeClaim) { pv.Spec.CSI.VolumeHandle = "vol-c" })
			w.up("p", "c")
			w.up("q", "d")
			w.deletePod("p")
			w.awaitGone("p")
			w.note("p gone")
			w.down("q")
		}},
		{name: "growth in use refused for good", act: func(w *world) {
			growing(w)
			w.up("p", "c")
			w.driver.next("Expand", outcome{code: codes.InvalidArgument})
			w.grow("c")
			w.touch("p")
			w.awaitCalls("Expand", 1)
			w.until("an event", func() bool { return len(w.events()) > 0 })
			w.note("refused")
			w.down("p")
		}},
		{name: "claim deleted under a running pod", act: func(w *world) {
			w.addVolume("c", func(_ *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) {
				pvc.Finalizers = []string{"kubernetes.io/pvc-protection"}
			})
			w.up("p", "c")
			w.must(w.client.CoreV1().PersistentVolumeClaims(namespace).Delete(w.ctx, "c", metav1.DeleteOptions{}))
			w.note("claim deleted")
			w.down("p")
		}},
	}
}
