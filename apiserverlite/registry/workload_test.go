package registry

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func created(t *testing.T, r *Resource, o runtime.Object) {
	t.Helper()
	r.Strategy.Default(o)
	r.Strategy.PrepareForCreate(context.Background(), o)
	r.Strategy.Default(o)
	if errs := r.Strategy.Validate(context.Background(), o); len(errs) > 0 {
		t.Fatalf("%T: %v", o, errs)
	}
}

func TestStatefulSetHasUpstreamsDefaultsAndFixedFields(t *testing.T) {
	r := statefulSets()
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", ResourceVersion: "1"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: template(),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claimOf("data")},
	}, Status: appsv1.StatefulSetStatus{Replicas: 3}}
	created(t, r, s)
	if *s.Spec.Replicas != 1 || s.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement || *s.Spec.RevisionHistoryLimit != 10 || s.Generation != 1 || s.Status.Replicas != 0 ||
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType || s.Spec.VolumeClaimTemplates[0].Kind != "PersistentVolumeClaim" {
		t.Errorf("defaults: %+v", s)
	}
	next := s.DeepCopy()
	next.Spec.Replicas = ptr.To[int32](2)
	next.Status.Replicas = 9
	r.Strategy.PrepareForUpdate(context.Background(), next, s)
	if next.Generation != 2 || next.Status.Replicas != 0 {
		t.Errorf("update: generation %d, status %+v", next.Generation, next.Status)
	}
	next.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = *s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage()
	next.Spec.VolumeClaimTemplates[0].Name = "other"
	if errs := r.Strategy.ValidateUpdate(context.Background(), next, s); len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.volumeClaimTemplates: Invalid value") {
		t.Errorf("changed template of claims: %v", errs)
	}
	next.Spec = *s.Spec.DeepCopy()
	next.Spec.Selector.MatchLabels["app"] = "b"
	if errs := r.Strategy.ValidateUpdate(context.Background(), next, s); len(errs) == 0 {
		t.Error("a changed selector is accepted")
	}
}

func claimOf(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resourceapi.MustParse("1Gi")}
	return c
}

func TestJobSelectsItsOwnPods(t *testing.T) {
	r := jobs()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"}, Spec: batchv1.JobSpec{Template: template()}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	created(t, r, j)
	if j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] != "u" || j.Spec.Template.Labels[batchv1.JobNameLabel] != "j" || *j.Spec.BackoffLimit != 6 || !r.Orphans {
		t.Errorf("%+v", j.Spec)
	}
}
