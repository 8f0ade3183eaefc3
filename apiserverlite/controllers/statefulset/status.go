package statefulset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// count fills in the status from the pods.
func (r *round) count(pods []*corev1.Pod) {
	r.status = appsv1.StatefulSetStatus{ObservedGeneration: r.set.Generation, CurrentRevision: r.current.Name, UpdateRevision: r.update.Name,
		CollisionCount: &r.collisions, Conditions: r.set.Status.Conditions}
	now := r.c.env.Clock().Now()
	for _, p := range pods {
		r.status.Replicas++
		if _, ready := workload.Ready(p); ready && p.Status.Phase == corev1.PodRunning {
			r.status.ReadyReplicas++
			wait, available := workload.Available(p, r.set.Spec.MinReadySeconds, now)
			if available {
				r.status.AvailableReplicas++
			} else if r.again == 0 || wait < r.again {
				r.again = wait
			}
		}
		if p.DeletionTimestamp == nil {
			r.countRevision(p, 1)
		}
	}
}

func (r *round) countRevision(p *corev1.Pod, n int32) {
	if revisionOf(p) == r.current.Name {
		r.status.CurrentReplicas += n
	}
	if revisionOf(p) == r.update.Name {
		r.status.UpdatedReplicas += n
	}
}

// writeStatus writes the status if it is news. When every pod is of the new revision, that is the current one.
func (r *round) writeStatus(ctx context.Context) error {
	if r.update == nil {
		return nil
	}
	if want := ptr.Deref(r.set.Spec.Replicas, 1); r.status.UpdatedReplicas == r.status.Replicas && r.status.ReadyReplicas == r.status.Replicas && r.status.Replicas == want &&
		r.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		r.status.CurrentReplicas, r.status.CurrentRevision = r.status.UpdatedReplicas, r.status.UpdateRevision
	}
	if equality.Semantic.DeepEqual(r.status, r.set.Status) {
		return nil
	}
	s := r.set.DeepCopy()
	s.Status = r.status
	if _, err := r.c.env.Client.AppsV1().StatefulSets(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// roll replaces pods of the old template, from the highest ordinal down to the partition, as long as no more
// than the allowed number is unavailable.
func (r *round) roll(ctx context.Context, pods map[int]*corev1.Pod, first, last int) error {
	if r.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	from, most := first, 1
	if u := r.set.Spec.UpdateStrategy.RollingUpdate; u != nil {
		from = first + int(ptr.Deref(u.Partition, 0))
		if u.MaxUnavailable != nil {
			if n, err := intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, int(ptr.Deref(r.set.Spec.Replicas, 1)), true); err == nil {
				most = max(n, 1)
			}
		}
	}
	missing := 0
	now := r.c.env.Clock().Now()
	for n := first; n < last; n++ {
		if p := pods[n]; p == nil || p.DeletionTimestamp != nil {
			missing++
		} else if _, ok := workload.Available(p, r.set.Spec.MinReadySeconds, now); !ok {
			missing++
		}
	}
	for n := last - 1; n >= from; n-- {
		p := pods[n]
		if p == nil || p.DeletionTimestamp != nil || revisionOf(p) == r.update.Name {
			continue
		}
		_, ok := workload.Available(p, r.set.Spec.MinReadySeconds, now)
		if ok && missing >= most {
			return nil
		}
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		r.countRevision(p, -1)
		if ok {
			missing++
		}
		if missing >= most {
			return nil
		}
	}
	return nil
}
