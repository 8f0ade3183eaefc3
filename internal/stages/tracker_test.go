package stages

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"drydock.dev/drydock/internal/lab"
)

func TestOneLifeThereAndBack(t *testing.T) {
	w := newWorld(t)
	w.claim()
	w.event("PersistentVolumeClaim", w.pvc, "Normal", "WaitForFirstConsumer", "waiting for first consumer")
	w.want("claimed:done created:pending bound:pending")
	w.health(Waiting, "waiting for first consumer")

	w = newWorld(t)
	w.up("web", "n1")
	w.want("claimed:done created:done bound:done scheduled:done attached:done device:done formatted:done staged:done published:done running:done")
	w.health(InUse, "in use by web on n1")
	for name, ms := range map[Name]float64{Created: 10, Attached: 20, DeviceReady: 1, Formatted: 25, Staged: 32, Published: 1, Running: 1} {
		if s := w.step(name); s.Millis != ms || s.Coarse {
			t.Errorf("%s took %v ms (coarse %v), want %v", name, s.Millis, s.Coarse, ms)
		}
	}
	if tr := w.life().Truths; len(tr.Mismatch) != 0 || tr.Recorded.Attached[0] != "n1" || tr.Desired.Published[0] != "n1" || tr.Actual.Published[0] != "n1" {
		t.Errorf("truths %+v", tr)
	}
	if l := w.life(); l.Handle != handle || l.Size != "1Gi" || l.PV != w.pv.Name || l.Class != "drydock" {
		t.Errorf("life %+v", l)
	}

	w.podDelete("web")
	w.health(Leaving, "unpublishing")
	w.call("NodeUnpublishVolume", "kubelet", "n1", w.pv.Name, time.Millisecond, "OK", "")
	w.podGone("web")
	w.health(Leaving, "unstaging")
	w.call("NodeUnstageVolume", "kubelet", "n1", w.pv.Name, time.Millisecond, "OK", "")
	w.health(Leaving, "before detaching")
	w.vaDelete("n1")
	w.health(Leaving, "detaching")
	w.call("ControllerUnpublishVolume", "attacher", "", handle, time.Millisecond, "OK", "")
	w.health(Leaving, "detaching")
	w.vaGone("n1")
	w.health(Idle, "bound; no pod uses it")
	if u := w.life().Uses[0]; !u.Over {
		t.Error("the use is not over")
	}

	now := w.stamp()
	w.pvc.DeletionTimestamp = &now
	w.tr.Object(w.pvc.DeepCopy())
	w.tr.Deleted(w.pvc.DeepCopy())
	w.health(Leaving, "deleting the volume")
	w.call("DeleteVolume", "provisioner", "", handle, 3*time.Millisecond, "OK", "")
	w.health(Leaving, "deleting the volume")
	w.tr.Deleted(w.pv.DeepCopy())
	w.health(Gone, "deleted")
	w.want(`claimed:done created:done bound:done scheduled:done attached:done device:done formatted:done staged:done published:done running:done
		unpublished:done unstaged:done detached:done deleted:done`)
}

func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		name     Name
		op, by   string
		failures int
		wait     time.Duration
	}{
		{Created, "CreateVolume", "provisioner", 1, time.Second},
		{Created, "CreateVolume", "provisioner", 3, 4 * time.Second},
		{Created, "CreateVolume", "provisioner", 40, 5 * time.Minute},
		{Attached, "ControllerPublishVolume", "attacher", 2, 2 * time.Second},
		{Staged, "NodeStageVolume", "kubelet", 1, 500 * time.Millisecond},
		{Staged, "NodeStageVolume", "kubelet", 3, 2 * time.Second},
		{Published, "NodePublishVolume", "kubelet", 20, 2*time.Minute + 2*time.Second},
		{Published, "NodePublishVolume", "guest", 2, 0},
	} {
		t.Run(string(tc.name), func(t *testing.T) {
			w := newWorld(t)
			w.claim()
			w.provisioning()
			node := ""
			if tc.name != Created {
				w.volume()
				w.bind()
				w.pod("web")
				w.schedule("web", "n1")
				w.va("n1", nil)
				node = "n1"
			}
			for range tc.failures {
				w.pass(time.Millisecond)
				w.call(tc.op, tc.by, node, w.pvName(), time.Millisecond, "Internal", errInternal.Error())
			}
			s := w.step(tc.name)
			if s.State != Failed || s.Code != "Internal" || s.Error != errInternal.Error() || s.Attempts != tc.failures {
				t.Fatalf("step %+v", s)
			}
			if len(s.Tries) > maxTries {
				t.Errorf("%d tries kept", len(s.Tries))
			}
			var next time.Duration
			if !s.NextTry.IsZero() {
				next = s.NextTry.Sub(w.clock.Now())
			}
			if next != tc.wait {
				t.Errorf("next try in %s, want %s", next, tc.wait)
			}
			w.health(Broken, tc.name.Doing()+" failed")

			// The next try is under way: the step is active again, its failures stay countable.
			running := lab.Span{ID: "again", Op: tc.op, Component: tc.by, Node: node, Volume: w.pvName(), Start: w.clock.Now()}
			w.tr.Span(running)
			if s = w.step(tc.name); s.State != Active || s.Error != "" || s.Attempts != tc.failures+1 || !s.End.IsZero() {
				t.Fatalf("step %+v", s)
			}
			w.pass(time.Second)
			running.End, running.Code = w.clock.Now(), "OK"
			w.tr.Span(running)
			if tc.name == Attached {
				w.attached("n1")
			}
			if s = w.step(tc.name); s.State != Done || s.Attempts != tc.failures+1 || s.Error != "" || !s.NextTry.IsZero() {
				t.Fatalf("step %+v", s)
			}
		})
	}
}

func TestInvalidArgumentWaitsLong(t *testing.T) {
	w := newWorld(t)
	w.claim()
	w.provisioning()
	w.call("CreateVolume", "provisioner", "", w.pvName(), time.Millisecond, "InvalidArgument", "too small")
	if s := w.step(Created); s.NextTry.Sub(w.clock.Now()) != 5*time.Minute {
		t.Errorf("next try %s", s.NextTry)
	}
}

func TestEventsExplainWhatNoCallDoes(t *testing.T) {
	w := newWorld(t)
	w.claim()
	w.event("PersistentVolumeClaim", w.pvc, "Warning", "ProvisioningFailed", `storageclass.storage.k8s.io "nope" not found`)
	if s := w.step(Created); s.State != Failed || !strings.Contains(s.Error, "nope") {
		t.Fatalf("step %+v", s)
	}
	w.pod("web")
	w.event("Pod", w.pods["web"], "Warning", "FailedScheduling", "0/3 nodes are available")
	if s := w.step(Scheduled); s.State != Failed || s.Error != "0/3 nodes are available" {
		t.Fatalf("step %+v", s)
	}
	w.pass(3 * time.Second)
	w.provisioning()
	w.call("CreateVolume", "provisioner", "", w.pvName(), time.Millisecond, "OK", "")
	w.volume()
	w.bind()
	w.schedule("web", "n2")
	w.event("Pod", w.pods["web"], "Warning", "FailedAttachVolume", `Multi-Attach error for volume "`+w.pv.Name+`" Volume is already used by pod(s) old`)
	w.health(Broken, "attaching failed")
	if s := w.step(Attached); !strings.HasPrefix(s.Error, "Multi-Attach") {
		t.Fatalf("step %+v", s)
	}
	w.pass(3 * time.Second)
	w.va("n2", nil)
	w.health(Working, "attaching")
	w.attached("n2")
	if s := w.step(Attached); s.State != Done || s.Error != "" {
		t.Fatalf("step %+v", s)
	}
	w.event("Pod", w.pods["web"], "Warning", "FailedMount", `MountVolume.MountDevice failed for volume "`+w.pv.Name+`" : rpc error: code = Internal desc = no`)
	if s := w.step(Staged); s.State != Failed || s.Code != "Internal" {
		t.Fatalf("step %+v", s)
	}
}

func TestEventOfAnotherVolumeOfThePod(t *testing.T) {
	w := newWorld(t)
	w.up("web", "n1")
	p := w.pods["web"]
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "o", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "other"}}})
	p.Status.Phase, p.UID, p.Name = corev1.PodPending, "uid-2", "second"
	w.pods["second"] = p
	w.tr.Object(p.DeepCopy())
	w.event("Pod", p, "Warning", "FailedMount", `MountVolume.MountDevice failed for volume "pvc-other" : no`)
	if s := w.step(Staged); s.State == Failed {
		t.Fatalf("blamed for another volume: %+v", s)
	}
}

func TestSecondUseOnAnotherNode(t *testing.T) {
	w := newWorld(t)
	w.up("a", "n1")
	w.pass(10 * time.Second)
	w.down("a", "n1")
	w.pass(10 * time.Second)
	w.pod("b")
	w.schedule("b", "n2")
	w.va("n2", nil)
	w.call("ControllerPublishVolume", "attacher", "", handle, 20*time.Millisecond, "OK", "")
	w.attached("n2")
	w.call("wait for device", "driver", "n2", handle, time.Millisecond, "", "")
	w.call("NodeStageVolume", "kubelet", "n2", w.pv.Name, time.Millisecond, "OK", "")
	w.call("NodePublishVolume", "kubelet", "n2", w.pv.Name, time.Millisecond, "OK", "")
	w.run("b")
	l := w.life()
	if len(l.Uses) != 2 || !l.Uses[0].Over || l.Uses[1].Over || l.Uses[1].Node != "n2" {
		t.Fatalf("uses %+v", l.Uses)
	}
	if s := w.step(Formatted); s.State != Skipped || s.Note != "it held a filesystem already" {
		t.Errorf("formatted %+v", s)
	}
	if s := w.step(Attached); s.Millis != 20 || s.Attempts != 1 {
		t.Errorf("attached %+v", s)
	}
	w.health(InUse, "in use by b on n2")
}

func TestSecondPodOnTheSameNode(t *testing.T) {
	w := newWorld(t)
	w.up("a", "n1")
	w.pass(5 * time.Second)
	w.pod("b")
	w.schedule("b", "n1")
	w.call("NodePublishVolume", "kubelet", "n1", w.pv.Name, time.Millisecond, "OK", "")
	w.run("b")
	for _, n := range []Name{Attached, Staged} {
		if s := w.step(n); s.State != Skipped {
			t.Errorf("%+v", s)
		}
	}
	w.podDelete("b")
	w.call("NodeUnpublishVolume", "kubelet", "n1", w.pv.Name, time.Millisecond, "OK", "")
	w.podGone("b")
	if s := w.step(Unstaged); s.State != Skipped || s.Note != "a still uses it on n1" {
		t.Errorf("unstaged %+v", s)
	}
	if u := w.life().Uses[1]; !u.Over {
		t.Errorf("use %+v", u)
	}
}

func TestAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.up("web", "n1")
	w.pass(time.Hour)
	w.tr = NewTracker(w.clock)
	w.tr.Object(w.pods["web"].DeepCopy()) // the order of informers is not given
	w.tr.Object(w.vas["n1"].DeepCopy())
	w.tr.Object(w.pvc.DeepCopy())
	w.tr.Object(w.pv.DeepCopy())
	w.health(InUse, "in use by web on n1")
	for _, s := range w.life().Steps() {
		if !s.State.Over() {
			t.Errorf("%+v", s)
		}
		if s.Millis != 0 || (!s.Start.IsZero() && !s.Coarse) {
			t.Errorf("a time was made up: %+v", s)
		}
	}
	if m := w.life().Truths.Mismatch; len(m) != 0 {
		t.Errorf("mismatch %v", m)
	}
	w.down("web", "n1")
	w.health(Idle, "bound; no pod uses it")
}

func TestForceDeletedPodLeavesItsMount(t *testing.T) {
	w := newWorld(t)
	w.up("web", "n1")
	w.podGone("web")
	l := w.life()
	if l.Health != Leaving || l.Doing != "the pod is gone, and n1 has not unpublished its volume" {
		t.Fatalf("%s %s", l.Health, l.Doing)
	}
	if len(l.Truths.Mismatch) == 0 {
		t.Error("no mismatch is reported")
	}
	w.vaDelete("n1")
	w.vaGone("n1")
	if s := w.step(Unpublished); s.State != Skipped {
		t.Errorf("%+v", s)
	}
	w.health(Idle, "bound; no pod uses it")
}

func TestPodDeletedWhileAttachFails(t *testing.T) {
	w := newWorld(t)
	w.claim()
	w.provisioning()
	w.volume()
	w.bind()
	w.pod("web")
	w.schedule("web", "n1")
	w.va("n1", func(a *storagev1.VolumeAttachment) {
		a.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: code = ResourceExhausted desc = limit"}
	})
	w.health(Broken, "attaching failed")
	if s := w.step(Attached); s.Code != "ResourceExhausted" {
		t.Fatalf("%+v", s)
	}
	w.podDelete("web")
	w.podGone("web")
	w.vaDelete("n1")
	w.vaGone("n1")
	w.health(Idle, "bound; no pod uses it")
}

func TestStaticVolumeAndRetain(t *testing.T) {
	w := newWorld(t)
	w.claim()
	w.volume()
	w.pv.Annotations = nil
	w.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	w.tr.Object(w.pv.DeepCopy())
	w.bind()
	if s := w.step(Created); s.State != Skipped {
		t.Fatalf("%+v", s)
	}
	w.tr.Deleted(w.pvc.DeepCopy())
	w.health(Gone, "claim deleted; kept: the reclaim policy is Retain")
}

func TestBlockVolumeIsNotFormatted(t *testing.T) {
	w := newWorld(t)
	w.claim()
	block := corev1.PersistentVolumeBlock
	w.pvc.Spec.VolumeMode = &block
	w.provisioning()
	w.volume()
	w.bind()
	w.pod("web")
	w.schedule("web", "n1")
	w.call("NodeStageVolume", "kubelet", "n1", w.pv.Name, time.Millisecond, "OK", "")
	if s := w.step(Formatted); s.State != Skipped || s.Note != "a block volume has no filesystem" {
		t.Errorf("%+v", s)
	}
	if s := w.step(Attached); s.State != Skipped || s.Note != "this driver needs no attach" {
		t.Errorf("%+v", s)
	}
}

func TestRecreatedClaimIsANewLife(t *testing.T) {
	w := newWorld(t)
	w.up("web", "n1")
	w.down("web", "n1")
	w.tr.Deleted(w.pvc.DeepCopy())
	w.tr.Deleted(w.pv.DeepCopy())
	w.health(Gone, "deleted")
	w.pass(time.Second)
	w.claim()
	w.want("claimed:done created:pending bound:pending")
	if got := len(w.tr.Claims()); got != 1 {
		t.Errorf("%d lives", got)
	}
}

func TestFinishedLivesAreBounded(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	tr := NewTracker(c)
	for i := range maxGone + 50 {
		id := fmt.Sprint(i)
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "c" + id, UID: types.UID("u" + id)}}
		tr.Object(pvc)
		tr.Deleted(pvc)
	}
	if n := len(tr.Claims()); n > maxGone {
		t.Errorf("%d lives on record", n)
	}
}

func TestCallsNameTheirNodeAndPod(t *testing.T) {
	w := newWorld(t)
	w.tr.Object(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.drydock.dev", NodeID: "4711"}}}})
	w.claim()
	w.volume()
	w.bind()
	w.pod("web")
	w.schedule("web", "n1")
	at := w.clock.Now()
	w.tr.Span(lab.Span{ID: "a", Op: "ControllerPublishVolume", Volume: handle, Start: at, End: at, Attrs: map[string]string{"request": `{"node_id":"4711","volume_id":"x"}`}})
	w.tr.Span(lab.Span{ID: "b", Op: "ControllerPublishVolume", Volume: handle, Start: at, End: at, Attrs: map[string]string{"request": `{"node_id":"4712","volume_id":"x"}`}})
	w.tr.Span(lab.Span{ID: "c", Op: "NodePublishVolume", Node: "n1", Volume: handle, Start: at, End: at, Attrs: map[string]string{"request": `{"target_path":"/k/pods/uid-web/volumes/x"}`}})
	w.tr.Span(lab.Span{ID: "d", Op: "NodePublishVolume", Node: "n1", Volume: handle, Start: at, End: at, Attrs: map[string]string{"request": `{"target_path":"/k/pods/uid-other/volumes/x"}`}})
	if s := w.step(Attached); s.Attempts != 1 || s.Tries[0].Node != "n1" {
		t.Errorf("attached %+v", s)
	}
	if s := w.step(Published); s.Attempts != 1 {
		t.Errorf("published %+v", s)
	}
	if got := w.life().Truths.Actual.Attached; len(got) != 2 {
		t.Errorf("actual %v", got)
	}
}
