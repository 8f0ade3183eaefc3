package job

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// manage makes or deletes pods so that as many are active as should be.
func (r *round) manage(ctx context.Context) error {
	if r.isSuspended() {
		return r.removeUncounted(ctx, slices.Clone(r.active))
	}
	want := int(ptr.Deref(r.job.Spec.Parallelism, 1))
	switch {
	case r.job.Spec.Completions != nil:
		want = max(0, min(want, r.completions()-int(r.succeeded)))
	case r.succeeded > 0:
		want = len(r.active) // the first success ends such a job, when the others have ended
	}
	if surplus := r.surplus(len(r.active) - want); len(surplus) > 0 {
		return r.removeUncounted(ctx, surplus)
	}
	missing := min(want-len(r.active), burst)
	if r.onlyFailed() {
		missing -= int(r.terminating)
	}
	if missing <= 0 {
		return nil
	}
	left := r.failures.left(r.now)
	pending := slices.Repeat([]int{-1}, missing)
	if r.indexed() {
		pending = r.pendingIndexes(missing)
	}
	if r.perIndex() {
		pending, left = r.due(pending)
	}
	if left > 0 {
		r.c.queue.AddAfter(r.key, left)
		return nil
	}
	for _, i := range pending {
		if err := r.create(ctx, i); err != nil {
			return err
		}
		r.active = append(r.active, &corev1.Pod{})
	}
	return nil
}

// surplus are the pods to delete: those without an index that is wanted, and of too many the least far.
func (r *round) surplus(n int) []*corev1.Pod {
	pods := slices.Clone(r.active)
	slices.SortStableFunc(pods, workload.LeastFar)
	var out, left []*corev1.Pod
	if r.indexed() {
		seen := indexes{}
		for _, p := range slices.Backward(pods) {
			if i := indexOf(p); !r.valid(p) || r.done[i] || seen[i] {
				out = append(out, p)
			} else {
				seen[i] = true
				left = append(left, p)
			}
		}
		slices.Reverse(left)
		pods = left
	}
	if more := min(n-len(out), len(pods)); more > 0 {
		out = append(out, pods[:more]...)
	}
	return out[:min(len(out), burst)]
}

// pendingIndexes are the first n that neither have succeeded nor failed for good nor have a pod.
func (r *round) pendingIndexes(n int) []int {
	taken := indexes{}
	for _, p := range r.pods {
		if slices.Contains(r.active, p) || r.onlyFailed() && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed {
			taken[indexOf(p)] = true
		}
	}
	var out []int
	for i := 0; i < r.completions() && len(out) < n; i++ {
		if !r.done[i] && !r.lost[i] && !taken[i] {
			out = append(out, i)
		}
	}
	return out
}
