package pvbinder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// Reasons of the events on claims and volumes.
const (
	reasonFailedBinding        = "FailedBinding"
	reasonVolumeMismatch       = "VolumeMismatch"
	reasonWaitForFirstConsumer = "WaitForFirstConsumer"
	reasonWaitForPodScheduled  = "WaitForPodScheduled"
	reasonExternalProvisioning = "ExternalProvisioning"
	reasonProvisioningFailed   = "ProvisioningFailed"
	reasonClaimLost            = "ClaimLost"
	reasonClaimMisbound        = "ClaimMisbound"
	reasonVolumeFailedDelete   = "VolumeFailedDelete"
	reasonUnknownReclaimPolicy = "VolumeUnknownReclaimPolicy"
)

func (c *Controller) syncClaimKey(ctx context.Context, key string) error {
	claim := c.store.claim(key)
	if claim == nil {
		return nil // its volume was queued by the deletion
	}
	var err error
	if metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		err = c.syncBound(ctx, claim)
	} else {
		err = c.syncUnbound(ctx, claim)
	}
	if now := c.store.claim(key); err == nil && now != nil && now.Status.Phase != corev1.ClaimBound && now.Status.Phase != corev1.ClaimLost {
		c.again()
	}
	return err
}

// syncUnbound moves a claim that was never bound forward by one step.
func (c *Controller) syncUnbound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" {
		return c.syncPreBound(ctx, claim)
	}
	delayed, err := volume.IsDelayBindingMode(claim, c.classes)
	if err != nil {
		return fmt.Errorf("find the binding mode of claim %s: %w", claimKey(claim), err)
	}
	match, err := c.store.reserve(claimKey(claim), func(free []*corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
		return bestMatch(claim, free, delayed)
	})
	if err != nil {
		return fmt.Errorf("find a volume for claim %s: %w", claimKey(claim), err)
	}
	if match != nil {
		defer c.store.release(match.Name)
		return c.bind(ctx, match, claim)
	}

	// Only now, so that a claim without a class can take a volume without one.
	if assigned, err := c.assignDefaultClass(ctx, claim); assigned || err != nil {
		return err
	}
	switch {
	case delayed && !volume.IsDelayBindingProvisioning(claim):
		c.sayWaiting(claim)
	case volume.GetPersistentVolumeClaimClass(claim) != "":
		return c.provision(ctx, claim)
	default:
		c.events.Event(claim, corev1.EventTypeNormal, reasonFailedBinding, "no persistent volumes available for this claim and no storage class is set")
	}
	_, err = c.setClaimPhase(ctx, claim, corev1.ClaimPending, nil)
	return err
}

// syncPreBound handles a claim whose author named the volume.
func (c *Controller) syncPreBound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	v := c.store.volume(claim.Spec.VolumeName)
	stayPending := func() error {
		_, err := c.setClaimPhase(ctx, claim, corev1.ClaimPending, nil)
		return err
	}
	switch {
	case v == nil:
		return stayPending()
	case v.Spec.ClaimRef == nil:
		if err := satisfies(v, claim); err != nil {
			c.events.Event(claim, corev1.EventTypeWarning, reasonVolumeMismatch, fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, err))
			return stayPending()
		}
		mine, err := c.store.reserve(claimKey(claim), func(free []*corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
			if i := slices.IndexFunc(free, func(f *corev1.PersistentVolume) bool { return f.Name == v.Name }); i >= 0 {
				return free[i], nil
			}
			return nil, nil
		})
		if err != nil || mine == nil {
			return stayPending() // another claim is being bound to it; its outcome wakes this one
		}
		defer c.store.release(mine.Name)
		return c.bind(ctx, mine, claim)
	case volume.IsVolumeBoundToClaim(v, claim):
		// Both name each other: no further questions.
		return c.bind(ctx, v, claim)
	}
	c.events.Event(claim, corev1.EventTypeWarning, reasonFailedBinding, fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
	if metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBoundByController) {
		return fmt.Errorf("bind claim %s to volume %s: the volume belongs to claim %s", claimKey(claim), v.Name, refKey(v.Spec.ClaimRef))
	}
	return stayPending()
}

// syncBound checks a claim whose binding was completed once. A lost claim stays lost.
func (c *Controller) syncBound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	lost := func(reason, message string) error {
		if claim.Status.Phase == corev1.ClaimLost && claim.Status.Capacity == nil && claim.Status.AccessModes == nil {
			return nil
		}
		stored, err := c.setClaimPhase(ctx, claim, corev1.ClaimLost, nil)
		if err == nil && claim.Status.Phase != corev1.ClaimLost {
			c.events.Event(stored, corev1.EventTypeWarning, reason, message)
		}
		return err
	}
	if claim.Spec.VolumeName == "" {
		return lost(reasonClaimLost, "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, err := c.volumeOf(ctx, claim)
	switch {
	case err != nil:
		return err
	case v == nil:
		return lost(reasonClaimLost, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == claim.UID:
		return c.bind(ctx, v, claim)
	}
	return lost(reasonClaimMisbound, "Two claims are bound to the same volume, this one is bound incorrectly")
}

// volumeOf returns the volume that a claim names, or nil when it certainly does not
// exist: the watch of volumes may be behind that of claims, and "lost" frightens people.
func (c *Controller) volumeOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if v := c.store.volume(claim.Spec.VolumeName); v != nil {
		return v, nil
	}
	v, err := c.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for volume %s of claim %s: %w", claim.Spec.VolumeName, claimKey(claim), err)
	}
	return v, nil
}

// sayWaiting tells what a claim with delayed binding waits for.
func (c *Controller) sayWaiting(claim *corev1.PersistentVolumeClaim) {
	var names []string
	for _, pod := range control.Pods(c.pods, control.PodsByClaim, claimKey(claim)) {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		c.events.Event(claim, corev1.EventTypeNormal, reasonWaitForFirstConsumer, "waiting for first consumer to be created before binding")
	case 1:
		c.events.Event(claim, corev1.EventTypeNormal, reasonWaitForPodScheduled, fmt.Sprintf("waiting for pod %s to be scheduled", names[0]))
	default:
		c.events.Event(claim, corev1.EventTypeNormal, reasonWaitForPodScheduled, fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(names, ",")))
	}
}
