package pvbinder

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"drydock.dev/drydock/internal/lab"
)

// annPreResizeCapacity holds the size that the filesystem on a grown volume still has.
const annPreResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"

var (
	pointVolumeClaimed = lab.Point{Component: "controllers", Name: "after the volume's claimRef is written, before its phase"}
	pointVolumeBound   = lab.Point{Component: "controllers", Name: "after the volume is Bound, before the claim names it"}
	pointClaimNames    = lab.Point{Component: "controllers", Name: "after the claim names its volume, before its status"}
	pointUnbound       = lab.Point{Component: "controllers", Name: "after the volume's claimRef is withdrawn, before its phase"}
	pointReleased      = lab.Point{Component: "controllers", Name: "after the volume is Released, before it is reclaimed"}
)

// Points lists the kill points of this package.
func Points() []lab.Point {
	return []lab.Point{pointVolumeClaimed, pointVolumeBound, pointClaimNames, pointUnbound, pointReleased}
}

// bind writes what is still missing of a binding, in the order of the package
// comment. Any of the writes may fail; the next sync goes on from there.
func (c *Controller) bind(ctx context.Context, v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (err error) {
	if c.bindingDone(v, claim) {
		return nil
	}
	_, span := c.env.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "bind", Volume: v.Name, Attrs: map[string]string{"claim": claimKey(claim)}})
	defer func() { span.End("", err) }()

	clone, dirty, err := volume.GetBindVolumeToClaim(v, claim)
	if err != nil {
		return fmt.Errorf("bind volume %s to claim %s: %w", v.Name, claimKey(claim), err)
	}
	if dirty {
		if v, err = c.client.CoreV1().PersistentVolumes().Update(ctx, clone, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("bind volume %s to claim %s: %w", clone.Name, claimKey(claim), err)
		}
		c.store.wroteVolume(v)
	}
	c.env.Point(pointVolumeClaimed, v.Name)
	if v, err = c.setVolumePhase(ctx, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	c.env.Point(pointVolumeBound, v.Name)
	if claim, err = c.nameVolume(ctx, claim, v.Name); err != nil {
		return err
	}
	c.env.Point(pointClaimNames, v.Name)
	_, err = c.setClaimPhase(ctx, claim, corev1.ClaimBound, v)
	return err
}

// bindingDone tells whether nothing of the binding is missing, which is the usual answer.
func (c *Controller) bindingDone(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Name == claim.Name && ref.Namespace == claim.Namespace &&
		v.Status.Phase == corev1.VolumeBound && v.Status.Message == "" &&
		claim.Spec.VolumeName == v.Name && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) &&
		claim.Status.Phase == corev1.ClaimBound && slices.Equal(claim.Status.AccessModes, v.Spec.AccessModes)
}

// nameVolume writes the volume's name into the claim and marks the binding complete.
func (c *Controller) nameVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) (*corev1.PersistentVolumeClaim, error) {
	if claim.Spec.VolumeName == name && metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		return claim, nil
	}
	clone := claim.DeepCopy()
	if clone.Spec.VolumeName != name {
		clone.Spec.VolumeName = name
		if !metav1.HasAnnotation(clone.ObjectMeta, volume.AnnBoundByController) {
			metav1.SetMetaDataAnnotation(&clone.ObjectMeta, volume.AnnBoundByController, "yes")
		}
	}
	metav1.SetMetaDataAnnotation(&clone.ObjectMeta, volume.AnnBindCompleted, "yes")
	stored, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("bind claim %s to volume %s: %w", claimKey(claim), name, err)
	}
	c.store.wroteClaim(stored)
	return stored, nil
}

// setClaimPhase writes the claim's status: with v nil a claim that has no volume.
// Capacity is written only when the claim becomes Bound: afterwards it is the
// resizer's, and differs from the volume's while a filesystem is yet to grow.
func (c *Controller) setClaimPhase(ctx context.Context, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	clone := claim.DeepCopy()
	clone.Status.Phase = phase
	if v == nil {
		clone.Status.AccessModes, clone.Status.Capacity, clone.Status.CurrentVolumeAttributesClassName = nil, nil, nil
	} else {
		clone.Status.AccessModes = v.Spec.AccessModes
		if claim.Status.Phase != phase {
			size, err := capacity(v)
			if err != nil {
				return nil, err
			}
			if clone.Status.Capacity == nil {
				clone.Status.Capacity = corev1.ResourceList{}
			}
			clone.Status.Capacity[corev1.ResourceStorage] = size
		}
		if claim.Status.Phase == corev1.ClaimPending && phase == corev1.ClaimBound {
			clone.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		}
	}
	if equality.Semantic.DeepEqual(claim.Status, clone.Status) {
		return claim, nil
	}
	stored, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("set claim %s to %s: %w", claimKey(claim), phase, err)
	}
	c.store.wroteClaim(stored)
	return stored, nil
}

func capacity(v *corev1.PersistentVolume) (resource.Quantity, error) {
	size, ok := v.Spec.Capacity[corev1.ResourceStorage]
	if !ok {
		return size, fmt.Errorf("read the size of volume %s: it has no storage capacity", v.Name)
	}
	if old, ok := v.Annotations[annPreResizeCapacity]; ok {
		if q, err := resource.ParseQuantity(old); err == nil {
			return q, nil
		}
	}
	return size, nil
}

// setVolumePhase writes the volume's phase if it differs.
func (c *Controller) setVolumePhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	clone := v.DeepCopy()
	clone.Status.Phase = phase
	clone.Status.Message = message
	stored, err := c.client.CoreV1().PersistentVolumes().UpdateStatus(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("set volume %s to %s: %w", v.Name, phase, err)
	}
	c.store.wroteVolume(stored)
	c.wakeClaims(stored)
	return stored, nil
}

// unbind withdraws a binding that lost: of one that we made everything, of one that
// the volume's author asked for only the claim's UID.
func (c *Controller) unbind(ctx context.Context, v *corev1.PersistentVolume) error {
	clone := v.DeepCopy()
	if metav1.HasAnnotation(v.ObjectMeta, volume.AnnBoundByController) {
		clone.Spec.ClaimRef = nil
		delete(clone.Annotations, volume.AnnBoundByController)
	} else {
		clone.Spec.ClaimRef.UID = ""
	}
	stored, err := c.client.CoreV1().PersistentVolumes().Update(ctx, clone, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("unbind volume %s from claim %s: %w", v.Name, refKey(v.Spec.ClaimRef), err)
	}
	c.store.wroteVolume(stored)
	c.env.Point(pointUnbound, v.Name)
	_, err = c.setVolumePhase(ctx, stored, corev1.VolumeAvailable, "")
	return err
}
