package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// tell writes a round's outcome into the namespace's conditions.
func (c *Controller) tell(ctx context.Context, ns *corev1.Namespace, r round) error {
	clone := ns.DeepCopy()
	now := metav1.NewTime(c.env.Clock().Now())
	changed := false
	for _, cond := range conditions(r) {
		cond.LastTransitionTime = now
		i := slices.IndexFunc(clone.Status.Conditions, func(o corev1.NamespaceCondition) bool { return o.Type == cond.Type })
		if i < 0 {
			clone.Status.Conditions = append(clone.Status.Conditions, cond)
			changed = true
			continue
		}
		have := &clone.Status.Conditions[i]
		if have.Status == cond.Status {
			cond.LastTransitionTime = have.LastTransitionTime
		}
		if have.Status != cond.Status || have.Reason != cond.Reason || have.Message != cond.Message {
			*have = cond
			changed = true
		}
	}
	if !changed {
		return nil
	}
	_, err := c.client.CoreV1().Namespaces().UpdateStatus(ctx, clone, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say what remains in namespace %s: %w", ns.Name, err)
	}
	return nil
}

// conditions words a round.
func conditions(r round) []corev1.NamespaceCondition {
	var remaining []string
	finalizers := map[string]int{}
	for _, l := range r.left {
		remaining = append(remaining, fmt.Sprintf("%s.%s has %d resource instances", l.resource.Resource, l.resource.Group, l.count))
		for f, n := range l.finalizers {
			finalizers[f] += n
		}
	}
	var held []string
	for f, n := range finalizers {
		held = append(held, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	var failed []string
	for _, err := range r.errs {
		failed = append(failed, err.Error())
	}
	slices.Sort(remaining)
	slices.Sort(held)
	slices.Sort(failed)
	undiscovered := ""
	if r.discovery != nil {
		undiscovered = r.discovery.Error()
		var groups *discovery.ErrGroupDiscoveryFailed
		if errors.As(r.discovery, &groups) {
			undiscovered = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(groups.Groups), groups)
		}
	}
	make := func(t corev1.NamespaceConditionType, badReason, bad, okReason, ok string) corev1.NamespaceCondition {
		if bad != "" {
			return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: badReason, Message: bad}
		}
		return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: okReason, Message: ok}
	}
	return []corev1.NamespaceCondition{
		make(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", undiscovered, "ResourcesDiscovered", "All resources successfully discovered"),
		make(corev1.NamespaceDeletionGVParsingFailure, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		make(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed",
			nonEmpty("Failed to delete all resource types, %d remaining: %s", failed), "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		make(corev1.NamespaceContentRemaining, "SomeResourcesRemain",
			listed("Some resources are remaining: ", remaining), "ContentRemoved", "All content successfully removed"),
		make(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain",
			listed("Some content in the namespace has finalizers remaining: ", held), "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

func listed(prefix string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return prefix + strings.Join(items, ", ")
}

func nonEmpty(format string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return fmt.Sprintf(format, len(items), strings.Join(items, ", "))
}
