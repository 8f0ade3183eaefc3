package server

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/storage"
)

var budgetsResource = schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}

// evict deletes a pod if its disruption budget allows it.
func (x *exchange) evict(ctx context.Context) (reply, error) {
	o, err := x.createOptions()
	if err != nil {
		return reply{}, err
	}
	ev, err := decodeInto(x, o.validation, &policyv1.Eviction{}, policyv1.SchemeGroupVersion.WithKind("Eviction"))
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
	w := x.writing(writeOptions{dryRun: o.dryRun || len(opts.DryRun) > 0})
	w.sub, w.strategy = "", x.res.Strategy
	e, ok := x.s.store.Get(x.res.key(x.in.namespace, x.in.name))
	if !ok {
		return reply{}, notFound(podsResource, x.in.name)
	}
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return reply{}, fmt.Errorf("%s is a %T", e.Key, e.Object)
	}
	if budgeted(pod) {
		if err := x.s.spendBudget(ctx, pod, w.dryRun); err != nil {
			return reply{}, err
		}
	}
	if _, err := w.delete(ctx, opts); err != nil {
		return reply{}, err
	}
	return created(), nil
}

// budgeted tells whether losing the pod is a disruption.
func budgeted(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return false
	}
	return pod.DeletionTimestamp == nil
}

// spendBudget takes one disruption from the budget that covers the pod.
func (s *Server) spendBudget(ctx context.Context, pod *corev1.Pod, dryRun bool) error {
	for {
		e, err := s.budget(pod)
		if e == nil || err != nil {
			return err
		}
		pdb := e.Object.(*policyv1.PodDisruptionBudget).DeepCopy()
		if err := spend(pdb, pod.Name, metav1.NewTime(s.clock.Now()).Rfc3339Copy()); err != nil || dryRun {
			return err
		}
		_, err = s.store.Write(ctx, storage.Op{Key: e.Key, Object: pdb, Expect: e.Revision})
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
	}
}

func (s *Server) budget(pod *corev1.Pod) (*storage.Entry, error) {
	var found []*storage.Entry
	s.store.Snapshot(budgetsResource).Ascend(pod.Namespace, "", func(e *storage.Entry) bool {
		pdb, ok := e.Object.(*policyv1.PodDisruptionBudget)
		if !ok {
			return true
		}
		sel, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && sel.Matches(labels.Set(pod.Labels)) {
			found = append(found, e)
		}
		return true
	})
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
}

func spend(pdb *policyv1.PodDisruptionBudget, pod string, now metav1.Time) error {
	refuse := func(detail string, retry int) error {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retry)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: detail})
		return err
	}
	st := &pdb.Status
	switch {
	case st.ObservedGeneration < pdb.Generation:
		return refuse(fmt.Sprintf("The disruption budget %s is still being processed by the server.", pdb.Name), 10)
	case st.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(budgetsResource, pdb.Name, errors.New("pdb disruptions allowed is negative"))
	case st.DisruptionsAllowed == 0:
		return refuse(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", pdb.Name, st.DesiredHealthy, st.CurrentHealthy), 0)
	}
	st.DisruptionsAllowed--
	if st.DisruptedPods == nil {
		st.DisruptedPods = map[string]metav1.Time{}
	}
	st.DisruptedPods[pod] = now
	return nil
}
