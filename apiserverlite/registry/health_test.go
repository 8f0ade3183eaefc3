package registry_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
)

// What drivers say of health is kept with the feature gate CSIVolumeHealth only, and once it is there without it.
func TestVolumeHealthIsGated(t *testing.T) {
	open, err := registry.NewWith(registry.Options{VolumeHealth: true})
	if err != nil {
		t.Fatal(err)
	}
	shut, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	conditions := []corev1.VolumeHealthCondition{{Status: corev1.VolumeHealthDegraded, Reason: "Slow"}}
	for _, x := range []struct {
		gvr schema.GroupVersionResource
		doc string
		set func(runtime.Object)
		has func(runtime.Object) bool
	}{
		{corev1.SchemeGroupVersion.WithResource("pods"), `{metadata: {name: p, namespace: n}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, emptyDir: {}}]}}`,
			func(o runtime.Object) {
				o.(*corev1.Pod).Status.VolumeHealth = []corev1.PodVolumeHealth{{Name: "v", HealthConditions: conditions}}
			},
			func(o runtime.Object) bool { return len(o.(*corev1.Pod).Status.VolumeHealth) == 1 }},
		{corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), `{metadata: {name: c, namespace: n}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
			func(o runtime.Object) {
				o.(*corev1.PersistentVolumeClaim).Status.HealthStatus = &corev1.VolumeHealthStatus{HealthConditions: conditions}
			},
			func(o runtime.Object) bool { return o.(*corev1.PersistentVolumeClaim).Status.HealthStatus != nil }},
		{storagev1.SchemeGroupVersion.WithResource("csinodes"), `{metadata: {name: n1}, spec: {drivers: [{name: d, nodeID: x}]}}`,
			func(o runtime.Object) {
				o.(*storagev1.CSINode).Status.StorageHealth = []storagev1.StorageHealth{{Name: "d", HealthConditions: []storagev1.StorageHealthCondition{{Status: storagev1.StorageDegraded, Reason: "Slow"}}}}
			},
			func(o runtime.Object) bool { return len(o.(*storagev1.CSINode).Status.StorageHealth) == 1 }},
	} {
		t.Run(x.gvr.Resource, func(t *testing.T) {
			with, _ := open.Lookup(x.gvr)
			without, _ := shut.Lookup(x.gvr)
			old, errs := create(t, with, x.doc)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			ill, errs := update(t, with, "status", old, x.set)
			if len(errs) > 0 || !x.has(ill) {
				t.Errorf("with the gate: %v %v", ill, errs)
			}
			if got, errs := update(t, without, "status", old, x.set); len(errs) > 0 || x.has(got) {
				t.Errorf("without the gate: %v %v", got, errs)
			}
			if got, errs := update(t, without, "status", ill, func(runtime.Object) {}); len(errs) > 0 || !x.has(got) {
				t.Errorf("what was there: %v %v", got, errs)
			}
		})
	}
}
