// Package budget is what the controller that keeps PodDisruptionBudgets and the evictions that spend them agree on.
package budget

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patience is how long a pod whose eviction was granted counts as going although it is not being deleted.
const Patience = 2 * time.Minute

// Conclude makes the condition DisruptionAllowed say what DisruptionsAllowed says.
func Conclude(b *policyv1.PodDisruptionBudget, now time.Time) {
	c := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
	if b.Status.DisruptionsAllowed > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	set(b, c, now)
}

// Fail makes the condition say that nobody knows how many pods may go, so that none may.
func Fail(b *policyv1.PodDisruptionBudget, why error, now time.Time) {
	b.Status.DisruptionsAllowed = 0
	set(b, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: why.Error()}, now)
}

func set(b *policyv1.PodDisruptionBudget, c metav1.Condition, now time.Time) {
	c.ObservedGeneration = b.Status.ObservedGeneration
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	meta.SetStatusCondition(&b.Status.Conditions, c)
}
