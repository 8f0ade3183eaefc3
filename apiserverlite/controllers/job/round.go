package job

import (
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// round is one look at a job and what follows from it.
type round struct {
	c     *Controller
	key   types.NamespacedName
	job   *batchv1.Job // this round's own; its status becomes the new one
	was   batchv1.JobStatus
	owner workload.Owner
	now   time.Time

	pods, active       []*corev1.Pod
	ready, terminating int32
	// What has succeeded and failed, counted already or not.
	succeeded, failed int32
	done              indexes // those that have succeeded; nil for a job without indexes
	// For a job with a limit per index, else nil: the indexes that have failed, and of others the last failed pod, which is kept until another follows.
	lost     indexes
	held     map[int]*corev1.Pod
	failures failures
	// decided is SuccessCriteriaMet or FailureTarget once one of them is to hold.
	decided *batchv1.JobCondition
}

func (c *Controller) round(ctx context.Context, key types.NamespacedName, j *batchv1.Job) error {
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return nil // the API lets no such job in
	}
	r := &round{c: c, key: key, job: j.DeepCopy(), was: j.Status, owner: workload.Owner{Object: j, Kind: kind, Selector: selector}, now: c.env.Clock().Now()}
	if r.pods, err = r.owner.Claim(ctx, c.env.Client, c.pods); err != nil {
		return err
	}
	r.look()
	r.decided = r.verdict()
	var acted error
	switch {
	case r.decided != nil:
		if acted = r.stop(ctx); acted != nil {
			r.decided = nil // not before each pod is told
		}
	case r.job.DeletionTimestamp == nil:
		acted = r.manage(ctx)
		if r.complete() {
			r.decided = r.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
		} else {
			r.suspended()
		}
	}
	if err := r.track(ctx); err != nil {
		return err
	}
	return acted
}

// look counts what there is.
func (r *round) look() {
	st := &r.job.Status
	if st.UncountedTerminatedPods == nil {
		st.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if st.StartTime == nil && !r.isSuspended() {
		st.StartTime = ptr.To(metav1.NewTime(r.now))
	}
	if r.indexed() {
		r.done = parseIndexes(st.CompletedIndexes, r.completions())
	}
	u := st.UncountedTerminatedPods
	r.succeeded, r.failed = st.Succeeded+int32(len(u.Succeeded)), st.Failed+int32(len(u.Failed))
	var succeeded, failed []*corev1.Pod
	for _, p := range r.pods {
		switch {
		case workload.Ended(p):
		case p.DeletionTimestamp != nil:
			r.terminating++
		default:
			r.active = append(r.active, p)
			if _, ready := workload.Ready(p); ready {
				r.ready++
			}
		}
		if !r.c.tracked(p) || !r.valid(p) || slices.Contains(u.Succeeded, p.UID) || slices.Contains(u.Failed, p.UID) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded {
			succeeded = append(succeeded, p)
			r.succeeded++
			if r.done != nil {
				r.done[indexOf(p)] = true
			}
		} else if r.hasFailed(p) {
			failed = append(failed, p)
			if action, _ := match(r.job.Spec.PodFailurePolicy, p); action != batchv1.PodFailurePolicyActionIgnore {
				r.failed++
			}
		}
	}
	if r.done != nil {
		r.succeeded = int32(len(r.done))
	}
	r.failures = r.c.waiting(r.key).with(succeeded, failed)
	r.lookAtIndexes()
}

func (r *round) indexed() bool {
	return ptr.Deref(r.job.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func (r *round) completions() int  { return int(ptr.Deref(r.job.Spec.Completions, 0)) }
func (r *round) isSuspended() bool { return ptr.Deref(r.job.Spec.Suspend, false) }

// valid tells whether a pod can count: one of an indexed job must have an index of it.
func (r *round) valid(p *corev1.Pod) bool {
	i := indexOf(p)
	return !r.indexed() || i >= 0 && i < r.completions()
}

// onlyFailed tells whether a pod that is going is replaced only when it has ended.
func (r *round) onlyFailed() bool {
	return ptr.Deref(r.job.Spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) == batchv1.Failed
}

func (r *round) hasFailed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || !r.onlyFailed() && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

// verdict is what was or is decided about the job, or nil.
func (r *round) verdict() *batchv1.JobCondition {
	spec := &r.job.Spec
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if c := find(r.job.Status.Conditions, t); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	if spec.PodFailurePolicy != nil {
		for _, p := range r.pods {
			if !r.hasFailed(p) {
				continue
			}
			if action, why := match(spec.PodFailurePolicy, p); action == batchv1.PodFailurePolicyActionFailJob {
				return r.condition(batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy, why)
			}
		}
	}
	if r.failed > ptr.Deref(spec.BackoffLimit, 6) || r.restartedTooOften() {
		return r.condition(batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	}
	if spec.ActiveDeadlineSeconds != nil && !r.isSuspended() {
		left := time.Duration(*spec.ActiveDeadlineSeconds)*time.Second - r.now.Sub(r.job.Status.StartTime.Time)
		if left <= 0 {
			return r.condition(batchv1.JobFailureTarget, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
		}
		r.c.queue.AddAfter(r.key, left)
	}
	if c := r.verdictOfIndexes(); c != nil {
		return c
	}
	if r.indexed() {
		if why, met := enough(spec.SuccessPolicy, r.done, r.completions()); met {
			return r.condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, why)
		}
	}
	return nil
}

// restartedTooOften is the limit for containers that are run again in their pod.
func (r *round) restartedTooOften() bool {
	if r.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	var n int32
	for _, p := range r.pods {
		if workload.Ended(p) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			n += s.RestartCount
		}
	}
	return n > 0 && n >= ptr.Deref(r.job.Spec.BackoffLimit, 6)
}

func (r *round) complete() bool {
	if len(r.active) > 0 {
		return false
	}
	if r.job.Spec.Completions == nil {
		return r.succeeded > 0
	}
	return int(r.succeeded) >= r.completions()
}

// stop deletes what still runs of a job that is decided.
func (r *round) stop(ctx context.Context) error {
	for _, p := range slices.Clone(r.active) {
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		r.gone(p)
	}
	return nil
}

// suspended keeps the condition of that name. A job that is resumed starts anew.
func (r *round) suspended() {
	c := r.condition(batchv1.JobSuspended, "JobSuspended", "Job suspended")
	event := "Suspended"
	if !r.isSuspended() {
		c.Status, c.Reason, c.Message, event = corev1.ConditionFalse, "JobResumed", "Job resumed", "Resumed"
		if find(r.job.Status.Conditions, c.Type) == nil {
			return
		}
	}
	if !r.set(c) {
		return
	}
	r.job.Status.StartTime = nil
	if !r.isSuspended() {
		r.job.Status.StartTime = ptr.To(metav1.NewTime(r.now))
		if s := r.job.Spec.ActiveDeadlineSeconds; s != nil {
			r.c.queue.AddAfter(r.key, time.Duration(*s)*time.Second)
		}
	}
	r.c.events.Event(r.job, corev1.EventTypeNormal, event, c.Message)
}
