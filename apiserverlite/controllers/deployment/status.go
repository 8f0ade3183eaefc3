package deployment

import (
	"context"
	"fmt"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// writeStatus sums up the replica sets and says how the move goes.
func (r *round) writeStatus(ctx context.Context) error {
	if r.rewritten {
		return nil
	}
	was := r.d.Status
	st := appsv1.DeploymentStatus{ObservedGeneration: r.d.Generation, CollisionCount: was.CollisionCount, Conditions: slices.Clone(was.Conditions)}
	for _, s := range r.sets() {
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
	st.UnavailableReplicas = max(0, r.total()-st.AvailableReplicas)
	now := metav1.NewTime(r.c.env.Clock().Now()).Rfc3339Copy()
	if r.d.DeletionTimestamp == nil {
		r.pausing(&st, now)
	}
	if st.AvailableReplicas >= *r.d.Spec.Replicas-r.unavailable() {
		set(&st, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.", now))
	} else {
		set(&st, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now))
	}
	if r.moving {
		r.progress(&st, was, now)
		r.failures(&st)
	}
	if equality.Semantic.DeepEqual(st, was) && !r.noted {
		return nil
	}
	d := r.d.DeepCopy()
	d.Status = st
	if _, err := r.c.env.Client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// sets are the deployment's, that of its template last.
func (r *round) sets() []*appsv1.ReplicaSet {
	out := slices.Clone(r.old)
	if r.next != nil {
		out = append(out, r.next)
	}
	return out
}

// deadline is how long a move may make no progress; zero is for ever.
func (r *round) deadline() int32 {
	if n := r.d.Spec.ProgressDeadlineSeconds; n != nil && *n != math.MaxInt32 {
		return *n
	}
	return 0
}

// complete tells whether a status says that all pods are of the template and available.
func (r *round) complete(st *appsv1.DeploymentStatus) bool {
	want := *r.d.Spec.Replicas
	return st.UpdatedReplicas == want && st.Replicas == want && st.AvailableReplicas == want && st.ObservedGeneration >= r.d.Generation
}

// Reasons of the condition Progressing that later rounds look at.
const (
	reasonPaused    = "DeploymentPaused"
	reasonAvailable = "NewReplicaSetAvailable"
	reasonTimedOut  = "ProgressDeadlineExceeded"
)

// pausing stops the clock of a paused deployment and starts it again, but does not take back that it had run out; and it
// starts that of a deployment which had none.
func (r *round) pausing(st *appsv1.DeploymentStatus, now metav1.Time) {
	if r.deadline() == 0 {
		return
	}
	last := find(st.Conditions, appsv1.DeploymentProgressing)
	switch {
	case last != nil && last.Reason == reasonTimedOut:
	case r.d.Spec.Paused:
		set(st, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now))
	case last != nil && last.Reason == reasonPaused:
		set(st, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed", now))
	case last == nil && r.next != nil && !r.made:
		set(st, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", r.next.Name), now))
	}
}

// progress keeps the condition by which "kubectl rollout status" knows that a move has got stuck.
func (r *round) progress(st *appsv1.DeploymentStatus, was appsv1.DeploymentStatus, now metav1.Time) {
	say := func(status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
		return condition(appsv1.DeploymentProgressing, status, reason, message, now)
	}
	if r.deadline() == 0 {
		drop(st, appsv1.DeploymentProgressing)
		return
	}
	who := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.next != nil {
		who = fmt.Sprintf("ReplicaSet %q", r.next.Name)
	}
	last := find(st.Conditions, appsv1.DeploymentProgressing)
	moved := st.UpdatedReplicas > was.UpdatedReplicas || st.ReadyReplicas > was.ReadyReplicas || st.AvailableReplicas > was.AvailableReplicas ||
		st.Replicas-st.UpdatedReplicas < was.Replicas-was.UpdatedReplicas
	switch {
	case r.failure != "":
		set(st, say(corev1.ConditionFalse, "ReplicaSetCreateError", r.failure))
		return
	case r.made:
		set(st, say(corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", r.next.Name)))
	case st.Replicas == st.UpdatedReplicas && last != nil && last.Reason == reasonAvailable:
		return // it has arrived, whatever becomes of its pods
	case r.complete(st):
		set(st, say(corev1.ConditionTrue, reasonAvailable, who+" has successfully progressed."))
		return
	case moved:
		c := say(corev1.ConditionTrue, "ReplicaSetUpdated", who+" is progressing.")
		if last != nil && last.Status == c.Status {
			c.LastTransitionTime = last.LastTransitionTime
		}
		drop(st, appsv1.DeploymentProgressing) // for the time of the update to be set even if the reason is the same
		set(st, c)
	}
	r.await(st, who, now)
}

// await sees to it that a move which makes no progress is called stuck when its time is over.
func (r *round) await(st *appsv1.DeploymentStatus, who string, now metav1.Time) {
	last := find(st.Conditions, appsv1.DeploymentProgressing)
	if last == nil || last.Reason == reasonAvailable || last.Reason == reasonTimedOut {
		return
	}
	left := last.LastUpdateTime.Add(seconds(r.deadline())).Sub(now.Time)
	if left <= 0 {
		set(st, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, who+" has timed out progressing.", now))
		return
	}
	r.c.queue.AddAfter(nameOf(r.d), left)
}

// failures passes on what keeps the sets from making their pods: the template's own first.
func (r *round) failures(st *appsv1.DeploymentStatus) {
	sets := r.sets()
	slices.Reverse(sets)
	for _, s := range sets {
		for _, c := range s.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				set(st, appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
					LastUpdateTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message})
				return
			}
		}
	}
	drop(st, appsv1.DeploymentReplicaFailure)
}
