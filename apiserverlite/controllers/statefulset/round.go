package statefulset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// round is one look at one set.
type round struct {
	c                *Controller
	set              *appsv1.StatefulSet
	owner            workload.Owner
	current, update  *appsv1.ControllerRevision
	currentT, updatT *corev1.PodTemplateSpec
	status           appsv1.StatefulSetStatus
	collisions       int32
	again            time.Duration // when a pod that is ready becomes available
}

func (r *round) say(kind, reason, format string, args ...any) {
	r.c.events.Eventf(r.set, kind, reason, format, args...)
}

func (r *round) run(ctx context.Context, pods []*corev1.Pod) error {
	all, err := r.c.history.Sync(ctx, r.owner, &r.set.Spec.Template, r.set.Spec.Selector.MatchLabels, &r.collisions)
	if err != nil {
		return err
	}
	if err := r.pickRevisions(all); err != nil {
		return err
	}
	r.count(pods)
	if r.set.DeletionTimestamp != nil {
		return nil
	}
	if err := r.act(ctx, pods); err != nil {
		return err
	}
	live := map[string]bool{r.current.Name: true, r.update.Name: true}
	for _, p := range pods {
		live[revisionOf(p)] = true
	}
	return r.c.history.Truncate(ctx, all, int(ptr.Deref(r.set.Spec.RevisionHistoryLimit, 10)), live)
}

// pickRevisions finds the revision that is being left and the one that is wanted.
func (r *round) pickRevisions(all []*appsv1.ControllerRevision) (err error) {
	r.update = all[len(all)-1]
	r.current = r.update
	for _, rev := range all {
		if rev.Name == r.set.Status.CurrentRevision {
			r.current = rev
		}
	}
	if r.currentT, err = workload.Template(r.current); err != nil {
		return err
	}
	r.updatT, err = workload.Template(r.update)
	return err
}

// act does what is to be done next.
func (r *round) act(ctx context.Context, pods []*corev1.Pod) error {
	first, last := bounds(r.set)
	byOrdinal := map[int]*corev1.Pod{}
	var going []*corev1.Pod
	for _, p := range pods {
		switch n := ordinal(r.set, p); {
		case n >= first && n < last:
			byOrdinal[n] = p
		case n >= 0:
			going = append(going, p)
		}
	}
	ordered := r.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	for n := first; n < last; n++ {
		proceed, err := r.keep(ctx, byOrdinal, n, ordered)
		if err != nil || !proceed {
			return err
		}
	}
	slices.SortFunc(going, func(a, b *corev1.Pod) int { return ordinal(r.set, b) - ordinal(r.set, a) })
	for _, p := range going {
		if p.DeletionTimestamp != nil {
			if ordered {
				return nil // one after the other
			}
			continue
		}
		if err := r.ownClaims(ctx, p, ordinal(r.set, p), true); err != nil {
			return err
		}
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		if ordered {
			return nil
		}
	}
	return r.roll(ctx, byOrdinal, first, last)
}

// keep sees that one ordinal has its pod. Proceed is false when the others have to wait for it.
func (r *round) keep(ctx context.Context, pods map[int]*corev1.Pod, n int, ordered bool) (proceed bool, err error) {
	p := pods[n]
	switch {
	case p == nil:
		if err := r.create(ctx, n); err != nil {
			return false, err
		}
		return !ordered, nil
	case p.DeletionTimestamp != nil:
		return !ordered, nil
	case workload.Ended(p):
		if p.Status.Phase == corev1.PodFailed {
			r.say(corev1.EventTypeWarning, "RecreatingFailedPod", "StatefulSet %s/%s is recreating failed Pod %s", r.set.Namespace, r.set.Name, p.Name)
		} else {
			r.say(corev1.EventTypeNormal, "RecreatingTerminatedPod", "StatefulSet %s/%s is recreating terminated Pod %s", r.set.Namespace, r.set.Name, p.Name)
		}
		return false, r.remove(ctx, p)
	}
	if err := r.repair(ctx, p, n); err != nil {
		return false, err
	}
	_, available := workload.Available(p, r.set.Spec.MinReadySeconds, r.c.env.Clock().Now())
	return !ordered || available, nil
}

// repair mends the identity and the claims of a pod that somebody has changed.
func (r *round) repair(ctx context.Context, p *corev1.Pod, n int) error {
	if p.Labels[appsv1.StatefulSetPodNameLabel] != p.Name {
		p = p.DeepCopy()
		setIdentity(r.set, p, n)
		if _, err := r.c.env.Client.CoreV1().Pods(p.Namespace).Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("restore the identity of pod %s: %w", p.Name, err)
		}
	}
	if err := r.ensureClaims(ctx, p, n); err != nil {
		return err
	}
	return r.ownClaims(ctx, p, n, false)
}

func (r *round) create(ctx context.Context, n int) error {
	revision, t := r.update.Name, r.updatT
	if r.fromCurrent(n) {
		revision, t = r.current.Name, r.currentT
	}
	p := newPod(r.set, r.owner, t, revision, n)
	if err := r.ensureClaims(ctx, p, n); err != nil {
		return err
	}
	made, err := r.c.env.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // ours, which the cache does not show yet, or one that has to go first: its event comes
	}
	if err != nil {
		r.say(corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %s", p.Name, r.set.Name, err)
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	r.say(corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", p.Name, r.set.Name)
	r.c.env.Point(pointCreated, made.Name)
	r.status.Replicas++
	r.countRevision(made, 1)
	return nil
}

// fromCurrent tells whether a new pod of an ordinal is made from the old template: while a rolling update has
// not come to it.
func (r *round) fromCurrent(n int) bool {
	s := r.set.Spec.UpdateStrategy
	if s.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return false
	}
	first, _ := bounds(r.set)
	if s.RollingUpdate == nil {
		return n < first+int(r.status.CurrentReplicas)
	}
	return n < first+int(ptr.Deref(s.RollingUpdate.Partition, 0))
}

func (r *round) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.c.env.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		r.say(corev1.EventTypeWarning, "FailedDelete", "delete Pod %s in StatefulSet %s failed error: %s", p.Name, r.set.Name, err)
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	r.say(corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", p.Name, r.set.Name)
	return nil
}
