package deployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// historyChars bounds the list of earlier revisions; the oldest go.
const historyChars = 2000

// newest is the highest revision of the other sets.
func (r *round) newest() int64 {
	n := int64(0)
	for _, s := range r.old {
		n = max(n, revision(s))
	}
	return n
}

// noteRevision has the revision of the template's set written on the deployment, where kubectl rollout looks for it. It goes with the status: another
// write would make it another generation.
func (r *round) noteRevision() {
	if r.d.Annotations == nil {
		r.d.Annotations = map[string]string{}
	}
	if n := r.next.Annotations[revisionAnnotation]; r.d.Annotations[revisionAnnotation] != n {
		r.d.Annotations[revisionAnnotation], r.noted = n, true
	}
}

// renew brings the replica set of the template up to date: its deployment's annotations and minReadySeconds, and the newest revision.
func (r *round) renew(ctx context.Context) error {
	newest := r.newest()
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
		if was != "" {
			s.Annotations[historyAnnotation] = longer(s.Annotations[historyAnnotation], was)
		}
	}
	if !changed {
		r.noteRevision()
		return nil
	}
	out, err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renew replica set %s: %w", s.Name, err)
	}
	r.next = out
	r.noteRevision()
	return nil
}

// longer is a history with one more revision.
func longer(history, revision string) string {
	if history == "" {
		return revision
	}
	for len(history)+1+len(revision) > historyChars {
		_, rest, more := strings.Cut(history, ",")
		if !more {
			return revision
		}
		history = rest
	}
	return history + "," + revision
}
