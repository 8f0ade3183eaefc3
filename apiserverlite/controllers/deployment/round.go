package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// round is one look at one deployment.
type round struct {
	c    *Controller
	d    *appsv1.Deployment
	next *appsv1.ReplicaSet   // of the deployment's template; nil until it is made
	old  []*appsv1.ReplicaSet // of other templates, the oldest first
	made bool                 // next was made in this round
	// noted tells that the deployment's revision is another than it was.
	noted bool
	// moving tells that this is a round of a move, of which the progress is judged, and not of one that is paused or only scaled.
	moving bool
	// rewritten tells that the deployment is another than this round knows; what is so comes with the next.
	rewritten bool
	// failure says why next could not be made.
	failure string
}

func size(s *appsv1.ReplicaSet) int32 { return ptr.Deref(s.Spec.Replicas, 1) }

// sameTemplate compares templates without the label that tells their replica sets apart.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

func (r *round) surge() int32 {
	u := r.d.Spec.Strategy.RollingUpdate
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || u == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(u.MaxSurge, intstr.FromInt32(0))), int(*r.d.Spec.Replicas), true) // validated
	return int32(n)
}

func (r *round) unavailable() int32 {
	u := r.d.Spec.Strategy.RollingUpdate
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || u == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(u.MaxUnavailable, intstr.FromInt32(0))), int(*r.d.Spec.Replicas), false) // validated
	if n == 0 && r.surge() == 0 {
		return 1 // else nothing could move
	}
	return min(int32(n), *r.d.Spec.Replicas)
}

func (r *round) run(ctx context.Context) error {
	if r.next != nil {
		if err := r.renew(ctx); err != nil {
			return err
		}
	}
	if r.d.Spec.Paused {
		if err := r.rescale(ctx); err != nil {
			return err
		}
		return r.forget(ctx)
	}
	if asked, err := r.rollBack(ctx); asked || err != nil {
		return err
	}
	if r.resized() {
		return r.rescale(ctx) // moving goes on in the next round
	}
	r.moving = true
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		waiting, err := r.emptyOld(ctx)
		if err != nil || waiting {
			return err
		}
	}
	if err := r.ensureNext(ctx); err != nil {
		return err
	}
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		_, err := r.scale(ctx, r.next, *r.d.Spec.Replicas)
		if err != nil {
			return err
		}
	} else {
		if err := r.grow(ctx); err != nil {
			return err
		}
		if err := r.shrink(ctx); err != nil {
			return err
		}
	}
	if !r.complete(&r.d.Status) {
		return nil
	}
	return r.forget(ctx)
}

// ensureNext makes the replica set of the template, as large as it may be for a beginning.
func (r *round) ensureNext(ctx context.Context) error {
	if r.next != nil {
		return nil
	}
	t := r.d.Spec.Template.DeepCopy()
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	hash := workload.Hash(b, r.d.Status.CollisionCount)
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	selector := r.d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	n := *r.d.Spec.Replicas
	if r.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		n = min(n, max(0, n+r.surge()-r.total()))
	}
	name := r.d.Name[:min(len(r.d.Name), utilvalidation.DNS1123SubdomainMaxLength-1-len(hash))]
	s := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.d.Namespace, Name: name + "-" + hash, Labels: t.Labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.d, kind)}},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, MinReadySeconds: r.d.Spec.MinReadySeconds, Selector: selector, Template: *t},
	}
	inherit(s, r.d)
	s.Annotations[revisionAnnotation] = strconv.FormatInt(r.newest()+1, 10)
	for k, v := range r.sizes() {
		s.Annotations[k] = v
	}
	made, err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		have, gerr := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if gerr != nil {
			return gerr
		}
		if ref := metav1.GetControllerOf(have); ref == nil || ref.UID != r.d.UID || !sameTemplate(&have.Spec.Template, &r.d.Spec.Template) {
			r.d.Status.CollisionCount = ptr.To(ptr.Deref(r.d.Status.CollisionCount, 0) + 1)
			return err
		}
		r.next = have // ours, which the cache does not show yet
		return nil
	}
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			r.failure = fmt.Sprintf("Failed to create new replica set %q: %v", s.Name, err)
			r.say(corev1.EventTypeWarning, "ReplicaSetCreateError", "%s", r.failure)
		}
		return fmt.Errorf("create replica set %s: %w", s.Name, err)
	}
	r.next, r.made = made, true
	if n > 0 {
		r.say(corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", made.Name, n)
	}
	r.c.env.Point(pointMade, made.Name)
	r.noteRevision()
	return nil
}

func (r *round) total() int32 {
	n := int32(0)
	for _, s := range r.old {
		n += size(s)
	}
	if r.next != nil {
		n += size(r.next)
	}
	return n
}

// grow scales the new set up as far as the surge lets, or down to the wanted size.
func (r *round) grow(ctx context.Context) (err error) {
	want := *r.d.Spec.Replicas
	n := size(r.next)
	if n < want {
		n = min(want, n+max(0, want+r.surge()-r.total()))
	} else {
		n = want
	}
	r.next, err = r.scale(ctx, r.next, n)
	return err
}

// shrink scales old sets down: first pods that are no use anyway, then as far as enough stay available.
func (r *round) shrink(ctx context.Context) error {
	least := *r.d.Spec.Replicas - r.unavailable()
	unready := size(r.next) - r.next.Status.AvailableReplicas
	room := r.total() - least - unready
	available := r.next.Status.AvailableReplicas
	for _, s := range r.old {
		available += s.Status.AvailableReplicas
	}
	for i, s := range r.old {
		if sick := size(s) - s.Status.AvailableReplicas; room > 0 && sick > 0 && s.Status.ObservedGeneration >= s.Generation {
			n := min(sick, room)
			var err error
			if r.old[i], err = r.scale(ctx, s, size(s)-n); err != nil {
				r.old[i] = s
				return err
			}
			room -= n
		}
	}
	spare := available - least
	for i, s := range r.old {
		n := min(size(s), spare, room)
		if n <= 0 {
			continue
		}
		var err error
		if r.old[i], err = r.scale(ctx, s, size(s)-n); err != nil {
			r.old[i] = s
			return err
		}
		spare, room = spare-n, room-n
	}
	return nil
}

// emptyOld scales the old sets to 0. Waiting says that their pods are not gone yet, be they only about to end.
func (r *round) emptyOld(ctx context.Context) (waiting bool, err error) {
	for i, s := range r.old {
		if size(s) > 0 {
			if r.old[i], err = r.scale(ctx, s, 0); err != nil {
				r.old[i] = s
				return false, err
			}
		}
		known := s.Status.ObservedGeneration >= s.Generation // else nobody has looked yet for pods of a set that was just emptied
		waiting = waiting || !known || s.Status.Replicas+ptr.Deref(s.Status.TerminatingReplicas, 0) > 0 || size(s) > 0
	}
	return waiting, nil
}

// forget deletes the oldest sets beyond the history's limit, unless they have pods: when the deployment has moved, or is paused.
func (r *round) forget(ctx context.Context) error {
	limit := r.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(r.old), func(s *appsv1.ReplicaSet) bool { return s.DeletionTimestamp != nil })
	for i := 0; i < len(alive)-int(*limit); i++ {
		s := alive[i]
		if size(s) > 0 || s.Status.Replicas > 0 || s.Generation > s.Status.ObservedGeneration {
			continue
		}
		if err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete old replica set %s: %w", s.Name, err)
		}
	}
	return nil
}
