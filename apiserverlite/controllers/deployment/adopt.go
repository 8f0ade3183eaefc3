package deployment

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// claim returns the deployment's replica sets. Orphans that match are adopted, sets that match no longer are let go,
// unless the deployment is being deleted.
func (r *round) claim(ctx context.Context, all []*appsv1.ReplicaSet) ([]*appsv1.ReplicaSet, error) {
	selector, err := metav1.LabelSelectorAsSelector(r.d.Spec.Selector)
	if err != nil {
		return nil, nil // the API lets no such deployment in
	}
	var out []*appsv1.ReplicaSet
	asked, may := false, false
	for _, s := range all {
		ref, matches := metav1.GetControllerOf(s), selector.Matches(labels.Set(s.Labels))
		own := ref != nil && ref.UID == r.d.UID
		switch {
		case own && (matches || r.d.DeletionTimestamp != nil):
			out = append(out, s)
		case own:
			body := fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, s.UID, r.d.UID)
			if _, err := r.own(ctx, s, []byte(body)); err != nil {
				return nil, fmt.Errorf("release replica set %s: %w", s.Name, err)
			}
		case ref == nil && matches && s.DeletionTimestamp == nil && r.d.DeletionTimestamp == nil:
			if !asked {
				asked = true
				if may, err = workload.MayAdopt(ctx, r.c.env.Client, r.d, kind); err != nil {
					return nil, err
				}
			}
			if !may {
				continue
			}
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.UID, "ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(r.d, kind)}}})
			if err != nil {
				return nil, err
			}
			adopted, err := r.own(ctx, s, body)
			if err != nil {
				return nil, fmt.Errorf("adopt replica set %s: %w", s.Name, err)
			}
			if adopted != nil {
				out = append(out, adopted)
			}
		}
	}
	return out, nil
}

// own changes whose a set is; it returns nil for one that is gone or somebody else's by now.
func (r *round) own(ctx context.Context, s *appsv1.ReplicaSet, patch []byte) (*appsv1.ReplicaSet, error) {
	out, err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Patch(ctx, s.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil, nil
	}
	return out, err
}

// orphanSeen has the deployments that an orphan would match look at it.
func (c *Controller) orphanSeen(s *appsv1.ReplicaSet) {
	all, err := c.deployments.Deployments(s.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, d := range all {
		if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && selector.Matches(labels.Set(s.Labels)) {
			c.queue.Add(nameOf(d))
		}
	}
}
