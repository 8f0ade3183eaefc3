package server

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/budget"
	"drydock.dev/drydock/apiserverlite/storage"
)

var budgetsResource = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}

// mostDisrupted is how many pods may be on their way out before the controller has seen one of them go.
const mostDisrupted = 2000

// budgets are those that select a pod.
func (s *Server) budgets(pod *corev1.Pod) []*storage.Entry {
	var found []*storage.Entry
	s.store.Snapshot(budgetsResource).Ascend(pod.Namespace, "", func(e *storage.Entry) bool {
		b, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok {
			return true
		}
		sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && sel.Matches(labels.Set(pod.Labels)) {
			found = append(found, e)
		}
		return true
	})
	return found
}

// freely tells whether a pod may go without anything being spent: it is not ready, so nobody misses it.
func freely(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	if ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// spendBudget takes one disruption from a budget, and leaves word of the pod for its controller.
func (s *Server) spendBudget(ctx context.Context, key storage.Key, pod string, dryRun bool) error {
	for {
		e, ok := s.store.Get(key)
		if !ok {
			return notFound(budgetsResource, key.Name)
		}
		b := e.Object.(*policyv1.PodDisruptionBudget).DeepCopy()
		if err := refused(b); err != nil || dryRun {
			return err
		}
		now := s.clock.Now()
		if b.Status.DisruptionsAllowed--; b.Status.DisruptionsAllowed == 0 {
			budget.Conclude(b, now)
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[pod] = metav1.NewTime(now).Rfc3339Copy()
		_, err := s.store.Write(ctx, storage.Op{Key: e.Key, Object: b, Expect: e.Revision})
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
	}
}

// refused tells why a budget allows no disruption, or nil, in upstream's words.
func refused(b *policyv1.PodDisruptionBudget) error {
	st := &b.Status
	switch {
	case st.ObservedGeneration < b.Generation:
		return tooEarly(b.Name)
	case st.DisruptionsAllowed < 0:
		return because(forbidBudget(b.Name, "pdb disruptions allowed is negative"),
			"The disruption budget %s does not allow evicting pods currently: pdb disruptions allowed is negative", b.Name)
	case len(st.DisruptedPods) > mostDisrupted:
		return because(forbidBudget(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
			"The disruption budget %s does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", b.Name)
	case st.DisruptionsAllowed > 0:
		return nil
	}
	err := apierrors.NewTooManyRequests(tooMany, 0)
	c := meta.FindStatusCondition(st.Conditions, policyv1.DisruptionAllowedCondition)
	says := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case says && c.Reason == policyv1.SyncFailedReason: // then the numbers say nothing
		return because(err, "The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case st.CurrentHealthy <= st.DesiredHealthy:
		return because(err, "The disruption budget %s needs %d healthy pods and has %d currently", b.Name, st.DesiredHealthy, st.CurrentHealthy)
	case says:
		return because(err, "The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return because(err, "The disruption budget %s does not allow evicting pods currently", b.Name)
}

const tooMany = "Cannot evict pod as it would violate the pod's disruption budget."

// tooEarly asks the client to come again when the budget's controller has caught up.
func tooEarly(name string) error {
	return because(apierrors.NewTooManyRequests(tooMany, 10), "The disruption budget %s is still being processed by the server.", name)
}

func forbidBudget(name, why string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, name, errors.New(why))
}

func because(err *apierrors.StatusError, format string, args ...any) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf(format, args...)})
	return err
}
