package registry

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// defaultClass gives a claim that names no class the default one: the newest of those marked so.
func defaultClass(_ context.Context, a Attributes) error {
	c := a.Obj.(*corev1.PersistentVolumeClaim)
	if _, beta := c.Annotations[corev1.BetaStorageClassAnnotation]; beta || c.Spec.StorageClassName != nil {
		return nil
	}
	var best *storagev1.StorageClass
	for _, o := range a.Reader.List(classResource, "") {
		sc, ok := o.(*storagev1.StorageClass)
		if !ok || !isDefaultClass(sc) {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&sc.CreationTimestamp) || best.CreationTimestamp.Equal(&sc.CreationTimestamp) && sc.Name < best.Name {
			best = sc
		}
	}
	if best != nil {
		name := best.Name
		c.Spec.StorageClassName = &name
	}
	return nil
}

func isDefaultClass(sc *storagev1.StorageClass) bool {
	return sc.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" || sc.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// protect adds the finalizer that keeps an object while it is in use.
func protect(finalizer string) func(context.Context, Attributes) error {
	return func(_ context.Context, a Attributes) error {
		m := accessor(a.Obj)
		if f := m.GetFinalizers(); !slices.Contains(f, finalizer) {
			m.SetFinalizers(append(f, finalizer))
		}
		return nil
	}
}

var (
	errUnboundGrows = errors.New("Only bound persistent volume claims can be expanded") //nolint:staticcheck // upstream's text
	errFixedClass   = errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
)

// claimResize lets a claim grow only when its class allows it.
func claimResize(_ context.Context, a Attributes) error {
	c, ok := a.Obj.(*corev1.PersistentVolumeClaim)
	old, wasOne := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || !wasOne {
		return nil
	}
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case size.Cmp(before) <= 0:
		return nil
	case old.Status.Phase != corev1.ClaimBound:
		return forbid(a, errUnboundGrows)
	}
	class := claimClass(c)
	if class == "" || class != claimClass(old) {
		return forbid(a, errFixedClass)
	}
	o, err := a.Reader.Get(classResource, "", class)
	if err != nil {
		return forbid(a, errFixedClass)
	}
	if sc, ok := o.(*storagev1.StorageClass); !ok || sc.AllowVolumeExpansion == nil || !*sc.AllowVolumeExpansion {
		return forbid(a, errFixedClass)
	}
	return nil
}

func claimClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}
