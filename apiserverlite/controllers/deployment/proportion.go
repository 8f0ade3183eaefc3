package deployment

import (
	"context"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
)

// resized tells whether the deployment's size is another than that by which its sets were last scaled.
func (r *round) resized() bool {
	return slices.ContainsFunc(r.active(), func(s *appsv1.ReplicaSet) bool {
		n, err := strconv.Atoi(s.Annotations[desiredAnnotation])
		return err == nil && n != int(*r.d.Spec.Replicas)
	})
}

// active are the sets that have a size, the newest last.
func (r *round) active() []*appsv1.ReplicaSet {
	out := slices.DeleteFunc(slices.Clone(r.old), func(s *appsv1.ReplicaSet) bool { return size(s) == 0 })
	if r.next != nil && size(r.next) > 0 {
		out = append(out, r.next)
	}
	return out
}

// rescale follows the deployment's size without moving from one template to another: a single set takes all, several
// keep their shares, the largest taking what rounding leaves.
func (r *round) rescale(ctx context.Context) error {
	want := *r.d.Spec.Replicas
	sets := r.active()
	switch {
	case len(sets) == 0 && r.next != nil:
		sets = []*appsv1.ReplicaSet{r.next}
	case len(sets) == 0 && len(r.old) > 0:
		sets = r.old[len(r.old)-1:]
	}
	if len(sets) == 1 {
		return r.resize(ctx, sets[0], want)
	}
	if n := r.next; n != nil && size(n) == want && n.Annotations[desiredAnnotation] == strconv.Itoa(int(want)) && n.Status.AvailableReplicas == want {
		for _, s := range r.active() {
			if s == n {
				continue
			}
			if err := r.resize(ctx, s, 0); err != nil {
				return err
			}
		}
		return nil
	}
	if r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || len(sets) == 0 {
		return nil
	}
	most := int32(0)
	if want > 0 {
		most = want + r.surge()
	}
	change := most - r.total()
	// The largest first; of equals the newer when growing, the older when shrinking.
	if change > 0 {
		slices.Reverse(sets)
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int { return int(size(b) - size(a)) })
	shares := make([]int32, len(sets))
	left := change
	for i, s := range sets {
		if share := r.share(s, most); change > 0 {
			shares[i] = min(share, left)
		} else if change < 0 {
			shares[i] = max(share, left)
		}
		left -= shares[i]
	}
	for i, s := range sets {
		n := size(s) + shares[i]
		if i == 0 {
			n = max(0, n+left)
		}
		if err := r.resize(ctx, s, n); err != nil {
			return err
		}
	}
	return nil
}

// share is by how much a set grows or shrinks to keep its part of the whole.
func (r *round) share(s *appsv1.ReplicaSet, most int32) int32 {
	if *r.d.Spec.Replicas == 0 {
		return -size(s)
	}
	before, err := strconv.Atoi(s.Annotations[maxAnnotation])
	if err != nil || before == 0 {
		before = int(r.d.Status.Replicas) // nobody has scaled this set before
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(size(s))*float64(most)/float64(before))) - size(s)
}

// resize scales a set and remembers its new state.
func (r *round) resize(ctx context.Context, s *appsv1.ReplicaSet, n int32) error {
	out, err := r.scale(ctx, s, n)
	if err != nil {
		return err
	}
	if s == r.next {
		r.next = out
	}
	if i := slices.Index(r.old, s); i >= 0 {
		r.old[i] = out
	}
	return nil
}
