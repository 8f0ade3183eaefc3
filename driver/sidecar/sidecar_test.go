package sidecar

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func TestProvisionAttachDetachDelete(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	ctx := t.Context()
	w.run("provisioner", RunProvisioner)
	w.run("attacher", RunAttacher)

	claim := w.claim("c", "now", nil)
	pv := w.volume(claim)
	if pv.Spec.CSI.VolumeHandle != id(pv) || pv.Spec.ClaimRef.UID != claim.UID || pv.Spec.Capacity.Storage().Value() != 1<<30 ||
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key != "region" {
		t.Fatalf("volume: %+v", pv.Spec)
	}
	w.driver.mu.Lock()
	r := w.driver.volumes[id(pv)]
	w.driver.mu.Unlock()
	if r.GetParameters()["csi.storage.k8s.io/pvc/name"] != "c" || r.GetParameters()["csi.storage.k8s.io/pv/name"] != pv.Name {
		t.Fatalf("extra metadata is missing: %v", r.GetParameters())
	}

	w.attach(pv.Name, "va")
	va := w.attachment(func(_ watch.EventType, va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	if va.Status.AttachmentMetadata["device"] != "/dev/"+id(pv) || va.Annotations["csi.alpha.kubernetes.io/node-id"] != "droplet-1" {
		t.Fatalf("attachment: %+v", va)
	}
	gone, watchErr := w.client.StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
	if err := w.client.StorageV1().VolumeAttachments().Delete(ctx, "va", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, gone, watchErr, func(e watch.EventType, _ *storagev1.VolumeAttachment) bool { return e == watch.Deleted })

	// The claim goes, and the volume is released as the PV controller does it.
	if err := w.client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, []byte(`{"status":{"phase":"Released"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	i, err := w.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	until(t, i, err, func(_ watch.EventType, pv *corev1.PersistentVolume) bool {
		// What still holds the object is what the protection controller would take off it.
		return pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{"kubernetes.io/pv-protection"})
	})
	if w.driver.has(id(pv)) {
		t.Fatal("the PV is gone, the volume is not")
	}
	i, err = w.client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{})
	until(t, i, err, func(_ watch.EventType, e *corev1.Event) bool { return e.Reason == "ProvisioningSucceeded" })
}

func TestProvisionerWaitsForASelectedNode(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	w.run("provisioner", RunProvisioner)
	waiting := w.claim("waiting", "later", nil)
	chosen := w.claim("chosen", "later", map[string]string{"volume.kubernetes.io/selected-node": "n1"})
	if pv := w.volume(chosen); pv.Spec.NodeAffinity == nil {
		t.Fatalf("no topology: %+v", pv.Spec)
	}
	if w.driver.has("id-pvc-" + string(waiting.UID)) {
		t.Fatal("a volume was made before a node was selected")
	}
}

func TestProvisionerPublishesCapacity(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	w.run("provisioner", RunProvisioner, func(c *Config) { c.CapacityNamespace = "kube-system" })
	i, err := w.client.StorageV1().CSIStorageCapacities("kube-system").Watch(t.Context(), metav1.ListOptions{})
	c := until(t, i, err, func(_ watch.EventType, c *storagev1.CSIStorageCapacity) bool { return c.Capacity != nil })
	if c.StorageClassName != "later" || c.Capacity.Value() != 1<<40 || c.NodeTopology.MatchLabels["region"] != "here" {
		t.Fatalf("capacity: %+v", c)
	}
}

// A killed provisioner makes no call any more, and the next one finds what it left.
func TestProvisionerIsKilledWithinACall(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	release := make(chan struct{})
	w.driver.held, w.driver.entered = release, make(chan struct{}, 16)
	stop := w.run("provisioner", RunProvisioner)
	claim := w.claim("c", "now", nil)
	<-w.driver.entered
	stop()
	pvs, err := w.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pvs.Items) != 0 {
		t.Fatalf("%v %v", pvs.Items, err)
	}
	close(release)
	w.run("provisioner", RunProvisioner)
	w.volume(claim)
}

func TestSidecarsStartOverAndOver(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	for i := range 5 {
		stopP, stopA := w.run("provisioner", RunProvisioner), w.run("attacher", RunAttacher)
		pv := w.volume(w.claim("c"+strings.Repeat("x", i), "now", nil))
		w.attach(pv.Name, "va"+strings.Repeat("x", i))
		w.attachment(func(_ watch.EventType, va *storagev1.VolumeAttachment) bool {
			return *va.Spec.Source.PersistentVolumeName == pv.Name && va.Status.Attached
		})
		stopA()
		stopP()
	}
}

func TestTwoClustersInOneProcess(t *testing.T) {
	noLeaks(t)
	a, b := newWorld(t), newWorld(t)
	for _, w := range []*world{a, b} {
		w.run("provisioner", RunProvisioner)
		w.run("attacher", RunAttacher)
	}
	pa, pb := a.volume(a.claim("c", "now", nil)), b.volume(b.claim("c", "now", nil))
	if !a.driver.has(id(pa)) || !b.driver.has(id(pb)) || a.driver.has(id(pb)) {
		t.Fatal("the clusters are mixed up")
	}
}

func TestSidecarWaitsForItsDriver(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	late := tempDir(t) + "/late.sock"
	appeared := make(chan struct{})
	go func() { // the first attempts find nobody
		defer close(appeared)
		serveDriver(t, late, w.driver)
	}()
	w.run("attacher", RunAttacher, func(c *Config) { c.Address = late })
	<-appeared
}

func TestSidecarRefusesAnotherDriver(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	err := lifetime(t.Context(), "attacher", w.nolog(), &Config{RESTConfig: w.config, Address: w.socket, DriverName: "other.test"}, attachOnce)
	if err == nil || !strings.Contains(err.Error(), "calls itself tiny.csi.test, not other.test") {
		t.Fatal(err)
	}
	if err := RunAttacher(t.Context(), Config{}); err == nil {
		t.Fatal("ran without an address")
	}
}

func TestSidecarEndsWithItsDriver(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	socket := tempDir(t) + "/d.sock"
	stop := serveDriver(t, socket, w.driver)
	started := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- lifetime(t.Context(), "attacher", w.nolog(), &Config{RESTConfig: w.config, Address: socket, Started: func() { started <- struct{}{} }}, attachOnce)
	}()
	<-started
	stop()
	if err := <-done; err != ErrDriverLost {
		t.Fatal(err)
	}
}
