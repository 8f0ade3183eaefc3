package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
)

// An owner whose cached copy is out of date adopts nothing.
func TestOnlyWhatStaysAdopts(t *testing.T) {
	now := metav1.Now()
	apps := appsv1.SchemeGroupVersion
	for _, c := range []struct {
		kind   schema.GroupVersionKind
		object func(m metav1.ObjectMeta) runtime.Object
	}{
		{apps.WithKind("DaemonSet"), func(m metav1.ObjectMeta) runtime.Object { return &appsv1.DaemonSet{ObjectMeta: m} }},
		{apps.WithKind("Deployment"), func(m metav1.ObjectMeta) runtime.Object { return &appsv1.Deployment{ObjectMeta: m} }},
		{apps.WithKind("ReplicaSet"), func(m metav1.ObjectMeta) runtime.Object { return &appsv1.ReplicaSet{ObjectMeta: m} }},
		{apps.WithKind("StatefulSet"), func(m metav1.ObjectMeta) runtime.Object { return &appsv1.StatefulSet{ObjectMeta: m} }},
		{batchv1.SchemeGroupVersion.WithKind("Job"), func(m metav1.ObjectMeta) runtime.Object { return &batchv1.Job{ObjectMeta: m} }},
	} {
		t.Run(c.kind.Kind, func(t *testing.T) {
			cached := &metav1.ObjectMeta{Namespace: "default", Name: "o", UID: "1"}
			for what, x := range map[string]struct {
				live []runtime.Object
				want bool
			}{
				"it stays":            {[]runtime.Object{c.object(*cached)}, true},
				"it is gone":          {nil, false},
				"it is another":       {[]runtime.Object{c.object(metav1.ObjectMeta{Namespace: "default", Name: "o", UID: "2"})}, false},
				"it is being deleted": {[]runtime.Object{c.object(metav1.ObjectMeta{Namespace: "default", Name: "o", UID: "1", DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerOrphanDependents}})}, false},
			} {
				got, err := MayAdopt(t.Context(), fake.NewSimpleClientset(x.live...), cached, c.kind)
				if err != nil || got != x.want {
					t.Errorf("%s: %v, %v", what, got, err)
				}
			}
		})
	}
}
