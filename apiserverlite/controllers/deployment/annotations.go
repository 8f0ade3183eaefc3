package deployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// historyAnnotation of a replica set lists the revisions that it was before it was wanted again.
const historyAnnotation = "deployment.kubernetes.io/revision-history"

// own are the annotations that a deployment and its replica sets have for themselves.
var own = []string{corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maxAnnotation, appsv1.DeprecatedRollbackTo}

// inherit copies a deployment's annotations to a replica set and tells whether that changed it.
func inherit(s *appsv1.ReplicaSet, d *appsv1.Deployment) bool {
	changed := false
	for k, v := range d.Annotations {
		if have, there := s.Annotations[k]; slices.Contains(own, k) || there && have == v {
			continue
		}
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[k] = v
		changed = true
	}
	return changed
}

// renew brings the replica set of the template up to date: its deployment's annotations and minReadySeconds, and the newest revision.
func (r *round) renew(ctx context.Context, newest int64) error {
	s := r.next.DeepCopy()
	changed := inherit(s, r.d)
	if s.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		s.Spec.MinReadySeconds, changed = r.d.Spec.MinReadySeconds, true
	}
	if was := s.Annotations[revisionAnnotation]; revision(s) <= newest {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[revisionAnnotation], changed = strconv.FormatInt(newest+1, 10), true
		switch history := s.Annotations[historyAnnotation]; {
		case was == "":
		case history == "":
			s.Annotations[historyAnnotation] = was
		default:
			s.Annotations[historyAnnotation] = history + "," + was
		}
	}
	if !changed {
		return nil
	}
	out, err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renew replica set %s: %w", s.Name, err)
	}
	r.next = out
	return nil
}
