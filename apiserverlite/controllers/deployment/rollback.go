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

// rollBack does what the deprecated annotation of old clients asks for: the template and the annotations become those of an earlier
// revision, or of the last for 0. Asked tells that there was such an annotation; it is gone afterwards, and the move begins with the next round.
func (r *round) rollBack(ctx context.Context) (asked bool, err error) {
	to, err := strconv.ParseInt(r.d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	if err != nil {
		return false, nil // there is none, or it says nothing
	}
	if err := r.ensureNext(ctx); err != nil {
		return true, err
	}
	if to == 0 {
		if to = r.last(); to == 0 {
			r.say(corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
			return true, r.rewrite(ctx)
		}
	}
	sets := r.sets()
	i := slices.IndexFunc(sets, func(s *appsv1.ReplicaSet) bool { return revision(s) == to })
	switch {
	case i < 0:
		r.say(corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
	case sets[i] == r.next:
		r.say(corev1.EventTypeWarning, "DeploymentRollbackTemplateUnchanged", "The rollback revision contains the same template as current deployment %q", r.d.Name)
	default:
		r.take(sets[i])
		if err := r.rewrite(ctx); err != nil {
			return true, err
		}
		r.say(corev1.EventTypeNormal, "DeploymentRollback", "Rolled back deployment %q to revision %d", r.d.Name, to)
		return true, nil
	}
	return true, r.rewrite(ctx)
}

// last is the highest revision but one; zero if there is none.
func (r *round) last() int64 {
	var all []int64
	for _, s := range r.sets() {
		all = append(all, revision(s))
	}
	slices.Sort(all)
	if len(all) < 2 {
		return 0
	}
	return all[len(all)-2]
}

// take gives the deployment a set's template and annotations, but keeps those that are its own.
func (r *round) take(s *appsv1.ReplicaSet) {
	r.d.Spec.Template = *s.Spec.Template.DeepCopy()
	delete(r.d.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	annotations := map[string]string{}
	for k, v := range r.d.Annotations {
		if slices.Contains(own, k) {
			annotations[k] = v
		}
	}
	for k, v := range s.Annotations {
		if !slices.Contains(own, k) {
			annotations[k] = v
		}
	}
	r.d.Annotations = annotations
}

// rewrite writes the deployment without the annotation.
func (r *round) rewrite(ctx context.Context) error {
	delete(r.d.Annotations, appsv1.DeprecatedRollbackTo)
	out, err := r.c.env.Client.AppsV1().Deployments(r.d.Namespace).Update(ctx, r.d, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	r.d, r.rewritten = out, true
	return nil
}
