package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/storage"
)

var evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")

// evict deletes a pod if its disruption budget allows it:
//
//	pod ended, pending or going already ------------------------> deleted
//	no budget --------------------------------------------------> deleted
//	pod not ready, and the budget's policy lets such pods go ---> deleted, if it is still so
//	disruptions allowed ----------------------------------------> one is spent, the pod is deleted
//	else -------------------------------------------------------> 429
func (x *exchange) evict(ctx context.Context) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	ev, err := decodeInto(x, o.validation, &policyv1.Eviction{}, evictionKind)
	if err != nil {
		return reply{}, err
	}
	if ev.Name != "" && ev.Name != x.in.name {
		return reply{}, badRequest("name in URL does not match name in Eviction object")
	}
	opts := ev.DeleteOptions
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	if ptr.Deref(opts.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return reply{}, apierrors.NewInvalid(evictionKind.GroupKind(), x.in.name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option")})
	}
	w := x.writing(writeOptions{dryRun: o.dryRun || len(opts.DryRun) > 0})
	w.sub, w.strategy = "", x.res.Strategy
	e, pod, err := w.pod()
	if err != nil {
		return reply{}, err
	}
	own := opts.Preconditions != nil && opts.Preconditions.ResourceVersion != nil
	for !budgeted(pod) {
		try := opts
		if pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil {
			try = only(opts, e.Revision) // it may have started since
		}
		outcome := w.evictNow(ctx, try)
		if !apierrors.IsConflict(outcome) || own {
			return evicted(outcome)
		}
		was := e.Revision
		if e, pod, err = w.pod(); err != nil {
			return reply{}, err
		}
		if e.Revision == was || ctx.Err() != nil {
			return evicted(outcome)
		}
	}
	budgets := x.s.budgets(pod)
	if len(budgets) > 1 {
		return reply{}, failure(http.StatusInternalServerError, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	}
	if len(budgets) == 0 {
		return evicted(w.evictNow(ctx, opts))
	}
	if freely(pod, budgets[0].Object.(*policyv1.PodDisruptionBudget)) {
		err := w.evictNow(ctx, only(opts, e.Revision))
		if apierrors.IsConflict(err) && !own {
			err = tooEarly(budgets[0].Key.Name)
		}
		return evicted(err)
	}
	if err := x.s.spendBudget(ctx, budgets[0].Key, pod.Name, w.dryRun); err != nil {
		return reply{}, err
	}
	return evicted(w.evictNow(ctx, opts))
}

func evicted(err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	return created(), nil
}

// pod is the one that is written to.
func (w *writing) pod() (*storage.Entry, *corev1.Pod, error) {
	e, ok := w.s.store.Get(w.res.key(w.namespace, w.name))
	if !ok {
		return nil, nil, notFound(podsResource, w.name)
	}
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%s is a %T", e.Key, e.Object)
	}
	return e, pod, nil
}

// budgeted tells whether losing the pod is a disruption.
func budgeted(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return false
	}
	return pod.DeletionTimestamp == nil
}

// only makes a deletion that happens to nothing but this version of the object.
func only(o *metav1.DeleteOptions, version storage.Revision) *metav1.DeleteOptions {
	o = o.DeepCopy()
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	if o.Preconditions.ResourceVersion == nil {
		o.Preconditions.ResourceVersion = ptr.To(version.String())
	}
	return o
}

// evictNow tells the pod in its status that it is to go, and deletes it.
func (w *writing) evictNow(ctx context.Context, o *metav1.DeleteOptions) error {
	for !w.dryRun {
		e, pod, err := w.pod()
		if err != nil {
			return err
		}
		if err := w.checkPreconditions(pod, e, o.Preconditions); err != nil {
			return err
		}
		told := pod.DeepCopy()
		if !target(told, metav1.NewTime(w.s.clock.Now()).Rfc3339Copy()) {
			break
		}
		ne, err := w.put(ctx, e.Key, told, e.Revision)
		var conflict *storage.ConflictError
		if errors.As(err, &conflict) {
			continue
		}
		if err != nil {
			return err
		}
		if o.Preconditions != nil && o.Preconditions.ResourceVersion != nil {
			o = o.DeepCopy()
			o.Preconditions.ResourceVersion = ptr.To(ne.Revision.String())
		}
		break
	}
	_, err := w.delete(ctx, o)
	return err
}

// target puts the condition into a pod and tells whether that changed it.
func target(pod *corev1.Pod, now metav1.Time) bool {
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}
	i := slices.IndexFunc(pod.Status.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return true
	}
	have := &pod.Status.Conditions[i]
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
		if have.Reason == c.Reason && have.Message == c.Message {
			return false
		}
	}
	*have = c
	return true
}
