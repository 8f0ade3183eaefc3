package nodesim

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Each check of a claim and its volume fails the pod's wait at once, with its words.
func TestChecksOfAClaim(t *testing.T) {
	t.Parallel()
	claim := func(f func(*v1.PersistentVolumeClaim)) func(*world) {
		return func(w *world) { w.changeClaim("c", f) }
	}
	volume := func(f func(*v1.PersistentVolume)) func(*world) {
		return func(w *world) {
			pv, err := w.client.CoreV1().PersistentVolumes().Get(w.ctx, "pv-c", metav1.GetOptions{})
			w.must(pv, err)
			f(pv)
			w.must(w.client.CoreV1().PersistentVolumes().Update(w.ctx, pv, metav1.UpdateOptions{}))
		}
	}
	for name, c := range map[string]struct {
		change func(*world)
		block  bool
		want   string
	}{
		"no claim": {func(w *world) {
			w.must(nil, w.client.CoreV1().PersistentVolumeClaims(namespace).Delete(w.ctx, "c", metav1.DeleteOptions{}))
		}, false, `failed to fetch PVC from API server: persistentvolumeclaims "c" not found`},
		"being deleted":    {claim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.Now()) }), false, "PVC is being deleted"},
		"not bound":        {claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending }), false, "PVC is not bound"},
		"no volume name":   {claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), false, "PVC has empty pvc.Spec.VolumeName"},
		"no volume":        {claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "none" }), false, `failed to fetch PV none from API server`},
		"not claimed":      {volume(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }), false, "nil pv.Spec.ClaimRef indicating it is not yet bound"},
		"somebody else's":  {volume(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" }), false, "pv.Spec.ClaimRef.UID other does not point to claim.UID claim-c"},
		"block is mounted": {volume(asBlock), false, "volume vol-c has volumeMode Block, but is specified in volumeMounts"},
		"files are mapped": {func(*world) {}, true, "volume vol-c has volumeMode Filesystem, but is specified in volumeDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("c", "vol-1")
			c.change(w)
			w.startKubelet()
			p := pod("p", "c")
			if c.block {
				p = blockPod("p", "c")
			}
			w.createPod(p)
			e := w.waitEvent(c.want)
			if e.Reason != "FailedMount" || !strings.Contains(e.Message, "unmounted volumes=[vol-c], unattached volumes=[], failed to process volumes=[vol-c]: ") {
				t.Errorf("event %s: %s", e.Reason, e.Message)
			}
			if calls := w.guest.log(); len(calls) != 0 {
				t.Errorf("calls %v", calls)
			}
		})
	}
	t.Run("deleted, but protected", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		})
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitRunning("p")
	})
}

func TestEphemeralClaimMustBeThePods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner types.UID
		ok    bool
	}{"its own": {"uid-p", true}, "another's": {"uid-q", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("p-own", "vol-1")
			w.changeClaim("p-own", func(claim *v1.PersistentVolumeClaim) {
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: c.owner, Controller: new(true)}}
			})
			w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.AttachRequired = new(false) })
			w.startKubelet()
			p := pod("p")
			p.Spec.Volumes = []v1.Volume{{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "own", MountPath: "/own"}}
			w.createPod(p)
			if !c.ok {
				w.waitEvent("FailedMount: Unable to attach or mount volumes: unmounted volumes=[own]")
				w.waitEvent("was not created for pod default/p (pod is not owner)")
				return
			}
			w.waitRunning("p")
			w.guest.mu.Lock()
			if w.guest.pubs[0].Readonly {
				t.Error("a generic ephemeral volume is never read-only")
			}
			w.guest.mu.Unlock()
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
}

// Only what some container mounts or maps is brought up.
func TestUnusedVolumesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	p := pod("p", "c")
	p.Spec.Containers[0].VolumeMounts = nil
	w.createPod(p)
	w.waitRunning("p")
	if calls := w.guest.log(); len(calls) != 0 {
		t.Errorf("calls %v", calls)
	}
}

// A wait that only ran out of time is not told; what stands in the way is.
func TestATimeoutIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.full.Store(true)
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.eventually("in use", func() bool { return slices.Contains(w.nodeObject().Status.VolumesInUse, uniqueName("vol-1")) })
	for range 20 {
		advance(w, time.Minute)
		w.pause()
	}
	if e := w.eventLines(); slices.ContainsFunc(e, func(s string) bool { return strings.HasPrefix(s, "FailedMount") }) {
		t.Errorf("events %v", e)
	}
	w.full.Store(false)
}

// In use means wanted: from before the attachment until the device is down.
func TestVolumesInUseFromWantedToUnstaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.full.Store(true)
	w.startKubelet()
	w.createPod(pod("p", "c"))
	inUse := func() bool { return slices.Contains(w.nodeObject().Status.VolumesInUse, uniqueName("vol-1")) }
	w.watchUntil("in use before it is attached", "nodes", inUse)
	w.eventually("attachment refused", func() bool {
		_, err := w.client.StorageV1().VolumeAttachments().Get(w.ctx, attachmentName("vol-1"), metav1.GetOptions{})
		return err == nil
	})
	w.full.Store(false)
	w.must(nil, w.client.StorageV1().VolumeAttachments().Delete(w.ctx, attachmentName("vol-1"), metav1.DeleteOptions{}))
	w.must(w.client.CoreV1().Nodes().Patch(w.ctx, nodeName, types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{}))
	w.waitRunning("p")
	w.guest.set(func(call string) error {
		if strings.HasPrefix(call, "Unstage") && !inUse() {
			w.t.Error("not in use any more while the device is up")
		}
		return nil
	}, nil)
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}
