package protection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// volumes guards PersistentVolumes: they are used while they are Bound.
type volumes struct{ *guard }

func newVolumes(env control.Env) *volumes {
	pvs := env.Informers.Core().V1().PersistentVolumes()
	v := &volumes{&guard{
		env:       env,
		finalizer: VolumeFinalizer,
		queue:     control.NewQueue[types.NamespacedName](env),
		get:       func(k types.NamespacedName) (metav1.Object, error) { return pvs.Lister().Get(k.Name) },
		inUse: func(_ context.Context, o metav1.Object) (bool, error) {
			return o.(*corev1.PersistentVolume).Status.Phase == corev1.VolumeBound, nil
		},
		patch: func(ctx context.Context, k types.NamespacedName, body []byte) error {
			_, err := env.Client.CoreV1().PersistentVolumes().Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		},
	}}
	control.Register(pvs.Informer(), control.On[*corev1.PersistentVolume]{
		Add:    func(o *corev1.PersistentVolume) { v.seen(o) },
		Update: func(_, o *corev1.PersistentVolume) { v.seen(o) },
	})
	return v
}

// classes guards VolumeAttributesClasses: they are used by the claims and volumes that name them.
type classes struct{ *guard }

func newClasses(env control.Env) *classes {
	core := env.Informers.Core().V1()
	vacs := env.Informers.Storage().V1().VolumeAttributesClasses()
	c := &classes{&guard{
		env:       env,
		finalizer: ClassFinalizer,
		queue:     control.NewQueue[types.NamespacedName](env),
		get:       func(k types.NamespacedName) (metav1.Object, error) { return vacs.Lister().Get(k.Name) },
		inUse: func(ctx context.Context, o metav1.Object) (bool, error) {
			claims, err := env.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, fmt.Errorf("list the claims that may use class %s: %w", o.GetName(), err)
			}
			for i := range claims.Items {
				if claimNames(&claims.Items[i], o.GetName()) {
					return true, nil
				}
			}
			volumes, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, fmt.Errorf("list the volumes that may use class %s: %w", o.GetName(), err)
			}
			for i := range volumes.Items {
				if ptr.Deref(volumes.Items[i].Spec.VolumeAttributesClassName, "") == o.GetName() {
					return true, nil
				}
			}
			return false, nil
		},
		patch: func(ctx context.Context, k types.NamespacedName, body []byte) error {
			_, err := env.Client.StorageV1().VolumeAttributesClasses().Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		},
	}}
	control.Register(vacs.Informer(), control.On[*storagev1.VolumeAttributesClass]{
		Add:    func(o *storagev1.VolumeAttributesClass) { c.seen(o) },
		Update: func(_, o *storagev1.VolumeAttributesClass) { c.seen(o) },
	})
	recheck := func(name *string) {
		if name == nil {
			return
		}
		if o, err := vacs.Lister().Get(*name); err == nil && o.DeletionTimestamp != nil {
			c.seen(o)
		}
	}
	claimRecheck := func(o *corev1.PersistentVolumeClaim) {
		recheck(o.Spec.VolumeAttributesClassName)
		recheck(o.Status.CurrentVolumeAttributesClassName)
		if m := o.Status.ModifyVolumeStatus; m != nil {
			recheck(&m.TargetVolumeAttributesClassName)
		}
	}
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Update: func(old, _ *corev1.PersistentVolumeClaim) { claimRecheck(old) },
		Delete: claimRecheck,
	})
	control.Register(core.PersistentVolumes().Informer(), control.On[*corev1.PersistentVolume]{
		Update: func(old, _ *corev1.PersistentVolume) { recheck(old.Spec.VolumeAttributesClassName) },
		Delete: func(o *corev1.PersistentVolume) { recheck(o.Spec.VolumeAttributesClassName) },
	})
	return c
}

func claimNames(c *corev1.PersistentVolumeClaim, class string) bool {
	m := c.Status.ModifyVolumeStatus
	return ptr.Deref(c.Spec.VolumeAttributesClassName, "") == class ||
		ptr.Deref(c.Status.CurrentVolumeAttributesClassName, "") == class ||
		m != nil && m.TargetVolumeAttributesClassName == class
}
