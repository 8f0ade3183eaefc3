package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// writeStatus sums up the replica sets and says how the move goes.
func (r *round) writeStatus(ctx context.Context) error {
	was := r.d.Status
	st := appsv1.DeploymentStatus{ObservedGeneration: r.d.Generation, CollisionCount: was.CollisionCount, Conditions: slices.Clone(was.Conditions)}
	for _, s := range append(slices.Clone(r.old), r.next) {
		if s == nil {
			continue
		}
		st.Replicas += s.Status.Replicas
		st.ReadyReplicas += s.Status.ReadyReplicas
		st.AvailableReplicas += s.Status.AvailableReplicas
		if n := s.Status.TerminatingReplicas; n != nil {
			st.TerminatingReplicas = ptr.To(ptr.Deref(st.TerminatingReplicas, 0) + *n)
		}
		if s == r.next {
			st.UpdatedReplicas = s.Status.Replicas
		}
	}
	want := *r.d.Spec.Replicas
	st.UnavailableReplicas = max(0, r.total()-st.AvailableReplicas)
	now := metav1.NewTime(r.c.env.Clock().Now()).Rfc3339Copy()
	if st.AvailableReplicas >= want-r.unavailable() {
		set(&st, appsv1.DeploymentAvailable, true, "MinimumReplicasAvailable", "Deployment has minimum availability.", now, false)
	} else {
		set(&st, appsv1.DeploymentAvailable, false, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now, false)
	}
	r.progress(&st, was, now)
	if equality.Semantic.DeepEqual(st, was) {
		return nil
	}
	d := r.d.DeepCopy()
	d.Status = st
	if _, err := r.c.env.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// progress keeps the condition by which "kubectl rollout status" knows that a move has got stuck.
func (r *round) progress(st *appsv1.DeploymentStatus, was appsv1.DeploymentStatus, now metav1.Time) {
	if r.d.Spec.ProgressDeadlineSeconds == nil || r.next == nil {
		return
	}
	want := *r.d.Spec.Replicas
	last := find(was.Conditions, appsv1.DeploymentProgressing)
	complete := st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want
	moved := st.UpdatedReplicas > was.UpdatedReplicas || st.ReadyReplicas > was.ReadyReplicas || st.AvailableReplicas > was.AvailableReplicas ||
		st.Replicas-st.UpdatedReplicas < was.Replicas-was.UpdatedReplicas
	switch {
	case r.d.Spec.Paused:
		set(st, appsv1.DeploymentProgressing, true, "DeploymentPaused", "Deployment is paused", now, false)
	case complete:
		set(st, appsv1.DeploymentProgressing, true, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", r.next.Name), now, last == nil || last.Reason != "NewReplicaSetAvailable")
	case r.made:
		set(st, appsv1.DeploymentProgressing, true, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", r.next.Name), now, true)
	case moved || last == nil || last.Reason == "NewReplicaSetAvailable" || last.Reason == "DeploymentPaused":
		set(st, appsv1.DeploymentProgressing, true, "ReplicaSetUpdated", fmt.Sprintf("ReplicaSet %q is progressing.", r.next.Name), now, true)
	default:
		left := last.LastUpdateTime.Add(time.Duration(ptr.Deref(r.d.Spec.ProgressDeadlineSeconds, 600)) * time.Second).Sub(now.Time)
		if left <= 0 {
			set(st, appsv1.DeploymentProgressing, false, "ProgressDeadlineExceeded", fmt.Sprintf("ReplicaSet %q has timed out progressing.", r.next.Name), now, false)
			return
		}
		r.c.queue.AddAfter(nameOf(r.d), left)
	}
}

func find(list []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// set changes a condition. Touch renews the time of the update even if it says the same as before.
func set(st *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, holds bool, reason, message string, now metav1.Time, touch bool) {
	c := appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	have := find(st.Conditions, kind)
	if have == nil {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}
	if have.Status == c.Status && have.Reason == reason && have.Message == message && !touch {
		c.LastUpdateTime = have.LastUpdateTime
	}
	*have = c
}
