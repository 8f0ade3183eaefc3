package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// ensureClaims creates the claims of an ordinal that are missing.
func (r *round) ensureClaims(ctx context.Context, pod *corev1.Pod, n int) error {
	for _, want := range claims(r.set, n) {
		have, err := r.c.claims.PersistentVolumeClaims(want.Namespace).Get(want.Name)
		switch {
		case apierrors.IsNotFound(err):
			want.OwnerReferences = r.claimOwners(want, pod, false)
			_, err := r.c.env.Client.CoreV1().PersistentVolumeClaims(want.Namespace).Create(ctx, want, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				r.say(corev1.EventTypeWarning, "FailedCreate", "create Claim %s for Pod %s in StatefulSet %s failed error: %s", want.Name, pod.Name, r.set.Name, err)
				return fmt.Errorf("create claim %s: %w", want.Name, err)
			}
			if err == nil {
				r.say(corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", want.Name, pod.Name, r.set.Name)
				r.c.env.Point(pointClaimed, want.Name)
			}
		case err != nil:
			return err
		case have.DeletionTimestamp != nil:
			return fmt.Errorf("pvc %s is being deleted", have.Name)
		}
	}
	return nil
}

// ownClaims makes the claims of a pod follow the retention policy. Going says that the pod is scaled away.
func (r *round) ownClaims(ctx context.Context, pod *corev1.Pod, n int, going bool) error {
	if r.set.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		return nil
	}
	for _, want := range claims(r.set, n) {
		have, err := r.c.claims.PersistentVolumeClaims(want.Namespace).Get(want.Name)
		if err != nil {
			continue // the next round creates it
		}
		owners := r.claimOwners(have, pod, going)
		if equality.Semantic.DeepEqual(owners, have.OwnerReferences) {
			continue
		}
		have = have.DeepCopy()
		have.OwnerReferences = owners
		if _, err := r.c.env.Client.CoreV1().PersistentVolumeClaims(have.Namespace).Update(ctx, have, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set owners of claim %s: %w", have.Name, err)
		}
	}
	return nil
}

// claimOwners says whose a claim is: the set's, if it is to go with the set; the pod's, if it is to go with a
// pod that is scaled away; else nobody's. Other owners stay.
func (r *round) claimOwners(c *corev1.PersistentVolumeClaim, pod *corev1.Pod, going bool) []metav1.OwnerReference {
	owners := slices.DeleteFunc(slices.Clone(c.OwnerReferences), func(o metav1.OwnerReference) bool {
		return o.UID == r.set.UID || o.Kind == podKind.Kind && o.Name == pod.Name
	})
	policy := r.set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return owners
	}
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	switch {
	case going && policy.WhenScaled == remove:
		return append(owners, *metav1.NewControllerRef(pod, podKind))
	case policy.WhenDeleted == remove:
		return append(owners, *metav1.NewControllerRef(r.set, kind))
	}
	if len(owners) == 0 {
		return nil
	}
	return owners
}
