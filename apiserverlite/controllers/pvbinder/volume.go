package pvbinder

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
)

func (c *Controller) syncVolumeKey(ctx context.Context, name string) error {
	v := c.store.volume(name)
	if v == nil {
		return nil // its claim was queued by the deletion
	}
	err := c.syncVolume(ctx, v)
	if now := c.store.volume(name); err == nil && now != nil && unsettled(now) {
		c.again()
	}
	return err
}

// syncVolume makes a volume's phase say what its claimRef and the claim say.
//
//	no claimRef, or one without UID          -> Available
//	the claim names it                       -> Bound
//	the claim has no volume yet              -> the claim's sync goes on
//	the claim is gone, or another of its name -> Released, then reclaimed
//	the claim took another volume            -> unbound, or Released if it was made for the claim
func (c *Controller) syncVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		_, err := c.setVolumePhase(ctx, v, corev1.VolumeAvailable, "")
		return err
	}
	claim, err := c.claimOf(ctx, v)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return c.release(ctx, v)
	case claim.Spec.VolumeName == "":
		if volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec) {
			c.events.Event(v, corev1.EventTypeWarning, reasonVolumeMismatch,
				fmt.Sprintf("Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name))
			c.events.Event(claim, corev1.EventTypeWarning, reasonVolumeMismatch,
				fmt.Sprintf("Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name))
			return nil
		}
		c.claimQueue.Add(claimKey(claim))
		return nil
	case claim.Spec.VolumeName == v.Name:
		_, err := c.setVolumePhase(ctx, v, corev1.VolumeBound, "")
		return err
	case metav1.HasAnnotation(v.ObjectMeta, volume.AnnDynamicallyProvisioned) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return c.release(ctx, v)
	}
	return c.unbind(ctx, v)
}

// claimOf returns the claim that a volume is claimed by, or nil when that claim is
// certainly gone. Nobody's cache alone is believed about an absence: a provisioner
// may have made the volume before our watch showed us the claim.
func (c *Controller) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	claim := c.store.claim(refKey(ref))
	if claim != nil && claim.UID == ref.UID {
		return claim, nil
	}
	if claim == nil && (v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed) {
		return nil, nil // was asked before
	}
	if claim, err := c.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name); err == nil && claim.UID == ref.UID {
		return claim, nil
	}
	claim, err := c.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for claim %s of volume %s: %w", refKey(ref), v.Name, err)
	case claim.UID != ref.UID:
		return nil, nil
	}
	return claim, nil
}

// release marks a volume whose claim is gone and reclaims it. A failure that is
// already shown is not overwritten.
func (c *Controller) release(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		stored, err := c.setVolumePhase(ctx, v, corev1.VolumeReleased, "")
		if err != nil {
			return err
		}
		v = stored
		c.env.Point(pointReleased, v.Name)
	}
	return c.reclaim(ctx, v)
}

// reclaim does what the policy says. What an external provisioner made, and every
// CSI volume, is deleted by its provisioner, which sees the phase.
func (c *Controller) reclaim(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Annotations[volume.AnnMigratedTo] != "" {
		return nil
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return nil
	case corev1.PersistentVolumeReclaimDelete:
		by := v.Annotations[volume.AnnDynamicallyProvisioned]
		if by != "" && !strings.HasPrefix(by, "kubernetes.io/") || by == "" && v.Spec.CSI != nil {
			return nil
		}
		return c.fail(ctx, v, reasonVolumeFailedDelete, fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
	case corev1.PersistentVolumeReclaimRecycle:
		return c.fail(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	}
	return c.fail(ctx, v, reasonUnknownReclaimPolicy, "Volume has unrecognized PersistentVolumeReclaimPolicy")
}

func (c *Controller) fail(ctx context.Context, v *corev1.PersistentVolume, reason, message string) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	stored, err := c.setVolumePhase(ctx, v, corev1.VolumeFailed, message)
	if err == nil {
		c.events.Event(stored, corev1.EventTypeWarning, reason, message)
	}
	return err
}
