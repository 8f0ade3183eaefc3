package job

import (
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A job with backoffLimitPerIndex counts the failures of each index by itself. The count travels from pod to pod: the
// last failed pod of an index is held, by its finalizer, until its successor carries an annotation with one failure more.

func (r *round) perIndex() bool { return r.job.Spec.BackoffLimitPerIndex != nil }

// lookAtIndexes finds the indexes that have failed for good, and the pods that are held.
func (r *round) lookAtIndexes() {
	if !r.indexed() || !r.perIndex() {
		return
	}
	r.lost = parseIndexes(ptr.Deref(r.job.Status.FailedIndexes, ""), r.completions())
	var failed []*corev1.Pod
	for _, p := range r.pods {
		if r.c.tracked(p) && r.valid(p) && r.hasFailed(p) {
			failed = append(failed, p)
			if r.isLast(p) {
				r.lost[indexOf(p)] = true
			}
		}
	}
	lives := indexes{}
	for _, p := range r.active {
		lives[indexOf(p)] = true
	}
	r.held = map[int]*corev1.Pod{}
	for _, p := range failed {
		i := indexOf(p)
		if r.done[i] || r.lost[i] || lives[i] {
			continue
		}
		if have := r.held[i]; have == nil || attempts(have) <= attempts(p) && !ended(p).Before(ended(have)) {
			r.held[i] = p
		}
	}
}

// isLast tells whether no pod follows a failed one.
func (r *round) isLast(p *corev1.Pod) bool {
	switch action, _ := match(r.job.Spec.PodFailurePolicy, p); action {
	case batchv1.PodFailurePolicyActionFailIndex:
		return true
	case batchv1.PodFailurePolicyActionIgnore:
		return false
	}
	return number(p, batchv1.JobIndexFailureCountAnnotation) >= *r.job.Spec.BackoffLimitPerIndex
}

// verdictOfIndexes is the failure of a job that has lost too many indexes, or whose other indexes are done; or nil.
func (r *round) verdictOfIndexes() *batchv1.JobCondition {
	lost := len(r.lost)
	switch most := r.job.Spec.MaxFailedIndexes; {
	case lost == 0:
		return nil
	case most != nil && lost > int(*most):
		return r.condition(batchv1.JobFailureTarget, batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	case lost+len(r.done) >= r.completions():
		return r.condition(batchv1.JobFailureTarget, batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	return nil
}

// due are the indexes of these that have waited since their failures; if there is none, wait is until the first has.
func (r *round) due(of []int) (now []int, wait time.Duration) {
	for _, i := range of {
		left := time.Duration(0)
		if p := r.held[i]; p != nil {
			left = failures{count: attempts(p) + 1, last: ended(p)}.left(r.now)
		}
		if left == 0 {
			now = append(now, i)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	if len(now) > 0 {
		wait = 0
	}
	return now, wait
}

// inherit gives the new pod of an index the failures of the one before.
func (r *round) inherit(p *corev1.Pod, index int) {
	var failed, ignored int32
	if last := r.held[index]; last != nil {
		failed, ignored = number(last, batchv1.JobIndexFailureCountAnnotation), number(last, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if action, _ := match(r.job.Spec.PodFailurePolicy, last); action == batchv1.PodFailurePolicyActionIgnore {
			ignored++
		} else {
			failed++
		}
	}
	p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(failed))
	if ignored > 0 {
		p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(ignored))
	}
}

// attempts are the failures before a pod, those that do not count included.
func attempts(p *corev1.Pod) int {
	return int(number(p, batchv1.JobIndexFailureCountAnnotation)) + int(number(p, batchv1.JobIndexIgnoredFailureCountAnnotation))
}

// number reads an annotation that anybody may have written.
func number(p *corev1.Pod, annotation string) int32 {
	n, err := strconv.Atoi(p.Annotations[annotation])
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int32(n)
}
