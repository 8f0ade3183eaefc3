package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/apiserverlite/budget"
	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// watchOver sees to it that a pod which was told of its end, and does not come to it, is told so.
func (c *Controller) watchOver(p *corev1.Pod) {
	if left, told := c.reprieve(p); told {
		c.stale.AddAfter(nameOf(p), left)
	}
}

// reprieve is how much longer a pod may say that it is going without being deleted. What a kubelet ends may take any time.
func (c *Controller) reprieve(p *corev1.Pod) (left time.Duration, told bool) {
	if p.DeletionTimestamp != nil || workload.Ended(p) {
		return 0, false
	}
	i := slices.IndexFunc(p.Status.Conditions, func(x corev1.PodCondition) bool {
		return x.Type == corev1.DisruptionTarget && x.Status == corev1.ConditionTrue && x.Reason != corev1.PodReasonTerminationByKubelet
	})
	if i < 0 {
		return 0, false
	}
	return max(0, budget.Patience-c.env.Clock().Since(p.Status.Conditions[i].LastTransitionTime.Time)), true
}

func (c *Controller) forgive(ctx context.Context, key types.NamespacedName) error {
	p, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	left, told := c.reprieve(p)
	if !told {
		return nil
	}
	if left > 0 {
		c.stale.AddAfter(key, left)
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{map[string]any{
		"type": corev1.DisruptionTarget, "status": corev1.ConditionFalse, "reason": nil, "message": nil, "lastTransitionTime": metav1.NewTime(c.env.Clock().Now())}}}})
	if err != nil {
		return err
	}
	if _, err := c.env.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("pod %s: take back that it is to go: %w", key, err)
	}
	return nil
}
