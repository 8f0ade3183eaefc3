package conformance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/internal/cluster"
)

// class is a storage class of drydock's driver that is the test's own.
func (w *world) class(mode storagev1.VolumeBindingMode) string {
	w.t.Helper()
	name := w.unique("class")
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: cluster.DefaultDriver, VolumeBindingMode: &mode}, metav1.CreateOptions{})
	w.must(err)
	return name
}

func claimSpec(class, size string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}
}

func (w *world) claim(name string, spec corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	c, err := w.client.CoreV1().PersistentVolumeClaims(w.ns).Create(w.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	w.must(err)
	return c
}

func (w *world) bound(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	return await(w, core("persistentvolumeclaims"), w.ns, name, "to be bound", func(c *corev1.PersistentVolumeClaim) bool { return c != nil && c.Status.Phase == corev1.ClaimBound })
}

// volume makes one by hand, of a driver that nobody runs.
func (w *world) volume(class string) *corev1.PersistentVolume {
	w.t.Helper()
	v, err := w.client.CoreV1().PersistentVolumes().Create(w.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: w.unique("volume")}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "nobody.test", VolumeHandle: "h"}}}}, metav1.CreateOptions{})
	w.must(err)
	return v
}

var volumes = core("persistentvolumes")

func (w *world) phase(volume string, p corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	w.t.Helper()
	return await(w, volumes, "", volume, "to be "+string(p), func(v *corev1.PersistentVolume) bool { return v != nil && v.Status.Phase == p })
}

// TestVolumeAndClaimBindAndPart: a volume made by hand goes from Available over Bound to Released, and tells when.
func TestVolumeAndClaimBindAndPart(t *testing.T) {
	w := newWorld(t)
	v := w.volume(w.ns)
	free := w.phase(v.Name, corev1.VolumeAvailable)
	w.claim("c", claimSpec(w.ns, "1Gi"))
	c := w.bound("c")
	v = w.phase(v.Name, corev1.VolumeBound)
	if c.Spec.VolumeName != v.Name || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID || !c.Status.Capacity.Storage().Equal(resource.MustParse("2Gi")) {
		t.Errorf("bound: %+v to %+v", c.Spec, v.Spec.ClaimRef)
	}
	if a, b := free.Status.LastPhaseTransitionTime, v.Status.LastPhaseTransitionTime; a == nil || b == nil || b.Before(a) {
		t.Errorf("phase transitions at %v and %v", a, b)
	}
	w.must(w.client.CoreV1().PersistentVolumeClaims(w.ns).Delete(w.ctx, "c", metav1.DeleteOptions{}))
	w.phase(v.Name, corev1.VolumeReleased)
	w.must(w.client.CoreV1().PersistentVolumes().Delete(w.ctx, v.Name, metav1.DeleteOptions{}))
	w.gone(volumes, "", v.Name)
}

func TestVolumesBindWhereTheyAreTold(t *testing.T) {
	w := newWorld(t)
	v := w.volume(w.ns)
	spec := claimSpec(w.ns, "1Gi")
	spec.VolumeName = v.Name
	w.claim("told", spec)
	if c := w.bound("told"); c.Spec.VolumeName != v.Name {
		t.Errorf("bound to %s", c.Spec.VolumeName)
	}
}

func TestVolumeInUseIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	v := w.volume(w.ns)
	w.phase(v.Name, corev1.VolumeAvailable)
	w.claim("c", claimSpec(w.ns, "1Gi"))
	w.bound("c")
	w.must(w.client.CoreV1().PersistentVolumes().Delete(w.ctx, v.Name, metav1.DeleteOptions{}))
	v = w.phase(v.Name, corev1.VolumeBound)
	if v.DeletionTimestamp == nil || !same(v.Finalizers, []string{"kubernetes.io/pv-protection"}) {
		t.Errorf("deleted while bound: %+v", v.ObjectMeta)
	}
	w.must(w.client.CoreV1().PersistentVolumeClaims(w.ns).Delete(w.ctx, "c", metav1.DeleteOptions{}))
	w.gone(volumes, "", v.Name)
}

// TestClaimInUseIsNotRemoved, and no other pod gets it once it is to go.
func TestClaimInUseIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	w.claim("c", claimSpec(w.class("WaitForFirstConsumer"), "1Gi"))
	using := func(name string) *corev1.Pod {
		p := pod(name)
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		return p
	}
	w.createPod(using("p"))
	w.running("p")
	claims := w.client.CoreV1().PersistentVolumeClaims(w.ns)
	w.must(claims.Delete(w.ctx, "c", metav1.DeleteOptions{}))
	c, err := claims.Get(w.ctx, "c", metav1.GetOptions{})
	w.must(err)
	if c.DeletionTimestamp == nil || !same(c.Finalizers, []string{"kubernetes.io/pvc-protection"}) {
		t.Errorf("deleted while in use: %+v", c.ObjectMeta)
	}
	for late := ""; ; { // the scheduler may be told late
		late += "x"
		w.createPod(using(late))
		placed := corev1.ConditionUnknown
		await(w, core("pods"), w.ns, late, "to be placed or not", func(p *corev1.Pod) bool {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && (c.Status == corev1.ConditionTrue || c.Reason == corev1.PodReasonUnschedulable) {
					placed = c.Status
				}
			}
			return placed != corev1.ConditionUnknown
		})
		w.must(w.client.CoreV1().Pods(w.ns).Delete(w.ctx, late, metav1.DeleteOptions{}))
		if placed == corev1.ConditionFalse {
			break
		}
	}
	w.must(w.client.CoreV1().Pods(w.ns).Delete(w.ctx, "p", metav1.DeleteOptions{}))
	w.gone(core("persistentvolumeclaims"), w.ns, "c")
	w.gone(volumes, "", c.Spec.VolumeName)
}

// TestStatusesOfVolumeAndClaim are written by their subresources, and nothing else is by them.
func TestStatusesOfVolumeAndClaim(t *testing.T) {
	w := newWorld(t)
	v := w.volume(w.ns)
	w.claim("c", claimSpec(w.ns, "1Gi"))
	w.bound("c")
	pvs, claims := w.client.CoreV1().PersistentVolumes(), w.client.CoreV1().PersistentVolumeClaims(w.ns)
	c, err := claims.Patch(w.ctx, "c", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}},"spec":{"volumeName":"z"},"status":{"conditions":[{"type":"Tested","status":"True","message":"m"}]}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if len(c.Status.Conditions) != 1 || c.Spec.VolumeName != v.Name || c.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim: %+v", c)
	}
	v, err = pvs.Patch(w.ctx, v.Name, types.MergePatchType, []byte(`{"spec":{"capacity":{"storage":"9Gi"}},"status":{"message":"m","reason":"R"}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if v.Status.Message != "m" || v.Status.Reason != "R" || !v.Spec.Capacity.Storage().Equal(resource.MustParse("2Gi")) {
		t.Errorf("the volume: %+v", v)
	}
	v.Status.Message = "n"
	v, err = pvs.UpdateStatus(w.ctx, v, metav1.UpdateOptions{})
	w.must(err)
	if v.Status.Message != "n" {
		t.Errorf("the volume: %+v", v.Status)
	}
}

func TestVolumesAreProvisionedAndRemoved(t *testing.T) {
	w := newWorld(t)
	w.claim("c", claimSpec(w.class("Immediate"), "1Gi"))
	c := w.bound("c")
	v := w.phase(c.Spec.VolumeName, corev1.VolumeBound)
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != cluster.DefaultDriver || v.Annotations["pv.kubernetes.io/provisioned-by"] != cluster.DefaultDriver || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("provisioned: %+v", v)
	}
	w.must(w.client.CoreV1().PersistentVolumeClaims(w.ns).Delete(w.ctx, "c", metav1.DeleteOptions{}))
	w.gone(volumes, "", v.Name)
}

// TestAttachmentStatus is the attacher's: the rest of the object stays what it was.
func TestAttachmentStatus(t *testing.T) {
	w := newWorld(t)
	c := w.client.StorageV1().VolumeAttachments()
	name := w.unique("attachment")
	_, err := c.Create(w.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "nobody.test", NodeName: "nowhere",
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("none")}}}, metav1.CreateOptions{})
	w.must(err)
	a, err := c.Patch(w.ctx, name, types.StrategicMergePatchType, []byte(`{"metadata":{"annotations":{"patched":"yes"}},"spec":{"nodeName":"other"},"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if !a.Status.Attached || a.Spec.NodeName != "nowhere" {
		t.Errorf("attached: %+v", a)
	}
	a.Status.DetachError = &storagev1.VolumeError{Message: "m", Time: metav1.Now()}
	a, err = c.UpdateStatus(w.ctx, a, metav1.UpdateOptions{})
	w.must(err)
	if a.Status.DetachError == nil || a.Status.DetachError.Message != "m" {
		t.Errorf("detach error: %+v", a.Status)
	}
	w.must(c.Delete(w.ctx, name, metav1.DeleteOptions{}))
	_, err = c.Get(w.ctx, name, metav1.GetOptions{})
	w.refused(err, apierrors.IsNotFound)
}

// TestPodWithAVolumeThatIsNotThereCanBeRemoved: it never ran.
func TestPodWithAVolumeThatIsNotThereCanBeRemoved(t *testing.T) {
	for what, source := range map[string]corev1.VolumeSource{
		"secret":    {Secret: &corev1.SecretVolumeSource{SecretName: "none"}},
		"configmap": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
		"claim":     {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			p := pod("p")
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}}
			w.createPod(p)
			if what != "claim" {
				await(w, core("pods"), w.ns, "p", "to be scheduled", func(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" })
			}
			w.must(w.client.CoreV1().Pods(w.ns).Delete(w.ctx, "p", metav1.DeleteOptions{}))
			w.gone(core("pods"), w.ns, "p")
		})
	}
}
