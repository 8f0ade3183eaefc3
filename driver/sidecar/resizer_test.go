package sidecar

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const ofStorage = corev1.ResourceStorage

// boundClaim makes a claim of 1Gi that is bound to a volume of a class that may grow.
func (w *world) boundClaim(name string) {
	w.t.Helper()
	ctx, yes, class := w.t.Context(), true, "grows"
	_, err := w.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: testDriver, AllowVolumeExpansion: &yes}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	size := corev1.ResourceList{ofStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "pv-" + name, AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class, Capacity: size, AccessModes: modes,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: "v-" + name}}}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size, AccessModes: modes}
	if _, err = w.client.CoreV1().PersistentVolumeClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) request(claim, size string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	if _, err := w.client.CoreV1().PersistentVolumeClaims("default").Patch(w.t.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) claimIs(fits func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	i, err := w.client.CoreV1().PersistentVolumeClaims("default").Watch(w.t.Context(), metav1.ListOptions{})
	return until(w.t, i, err, func(_ watch.EventType, c *corev1.PersistentVolumeClaim) bool { return fits(c) })
}

func (w *world) eventIs(reason string) {
	w.t.Helper()
	i, err := w.client.CoreV1().Events("default").Watch(w.t.Context(), metav1.ListOptions{})
	until(w.t, i, err, func(_ watch.EventType, e *corev1.Event) bool { return e.Reason == reason })
}

func condition(c *corev1.PersistentVolumeClaim, t corev1.PersistentVolumeClaimConditionType) bool {
	for _, x := range c.Status.Conditions {
		if x.Type == t && x.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func TestResizerLeavesTheRestToTheNode(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	w.boundClaim("c")
	w.run("resizer", RunResizer)
	w.request("c", "3Gi")
	c := w.claimIs(func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[ofStorage] == corev1.PersistentVolumeClaimNodeResizePending
	})
	if q := c.Status.AllocatedResources[ofStorage]; q.String() != "3Gi" || c.Status.Capacity.Storage().String() != "1Gi" || !condition(c, corev1.PersistentVolumeClaimFileSystemResizePending) {
		t.Fatalf("claim %+v", c.Status)
	}
	pv, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), "pv-c", metav1.GetOptions{})
	if err != nil || pv.Spec.Capacity.Storage().String() != "3Gi" || pv.Annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] != "1Gi" {
		t.Fatalf("volume %+v %v", pv, err)
	}
	w.eventIs("Resizing")
	w.eventIs("FileSystemResizeRequired")
	// The node does its part: the annotation goes.
	c.Status.Capacity[ofStorage] = resource.MustParse("3Gi")
	c.Status.AllocatedResourceStatuses, c.Status.Conditions = nil, nil
	if _, err := w.client.CoreV1().PersistentVolumeClaims("default").UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	i, err := w.client.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
	until(t, i, err, func(_ watch.EventType, pv *corev1.PersistentVolume) bool {
		_, there := pv.Annotations["volume.alpha.kubernetes.io/pre-resize-capacity"]
		return pv.Name == "pv-c" && !there
	})
}

func TestResizerEndsWhatNeedsNoNode(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	w.driver.grow = func(int64) (bool, error) { return false, nil }
	w.boundClaim("c")
	w.run("resizer", RunResizer)
	w.request("c", "2Gi")
	c := w.claimIs(func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == "2Gi" })
	if len(c.Status.AllocatedResourceStatuses) != 0 || len(c.Status.Conditions) != 0 || c.Annotations["volume.kubernetes.io/node-expansion-not-required"] != "true" {
		t.Fatalf("claim %+v %+v", c.Annotations, c.Status)
	}
	w.eventIs("VolumeResizeSuccessful")
}

// A size that the driver calls infeasible is given up when the user asks for a smaller one.
func TestResizerRecoversFromAnInfeasibleSize(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	w.driver.grow = func(bytes int64) (bool, error) {
		if bytes > 4<<30 {
			return false, status.Error(codes.OutOfRange, "too large")
		}
		return false, nil
	}
	w.boundClaim("c")
	w.run("resizer", RunResizer)
	w.request("c", "100Gi")
	c := w.claimIs(func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[ofStorage] == corev1.PersistentVolumeClaimControllerResizeInfeasible
	})
	if q := c.Status.AllocatedResources[ofStorage]; q.String() != "100Gi" {
		t.Fatalf("claim %+v", c.Status)
	}
	w.eventIs("VolumeResizeFailed")
	w.request("c", "4Gi")
	c = w.claimIs(func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == "4Gi" })
	if q := c.Status.AllocatedResources[ofStorage]; q.String() != "4Gi" || len(c.Status.Conditions) != 0 {
		t.Fatalf("claim %+v", c.Status)
	}
}

// A driver that enlarges only what no pod uses is asked again when the last pod has gone.
func TestResizerWaitsUntilTheVolumeIsUnused(t *testing.T) {
	noLeaks(t)
	w := newWorld(t)
	var asked atomic.Int32
	w.driver.grow = func(int64) (bool, error) {
		if asked.Add(1) == 1 {
			return false, status.Error(codes.FailedPrecondition, "in use")
		}
		return true, nil
	}
	w.boundClaim("c")
	_, err := w.client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.run("resizer", RunResizer)
	w.request("c", "2Gi")
	w.eventIs("VolumeResizeFailed")
	<-time.After(200 * time.Millisecond) // twenty first pauses
	if n := asked.Load(); n != 1 {
		t.Fatalf("asked %d times while a pod has the volume", n)
	}
	zero := int64(0)
	if err := w.client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	w.claimIs(func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[ofStorage] == corev1.PersistentVolumeClaimNodeResizePending
	})
}
