package job

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// track counts pods that have ended, each once, and ends the job when it is decided and nothing is left.
func (r *round) track(ctx context.Context) error {
	st := &r.job.Status
	st.Active, st.Ready, st.Terminating = int32(len(r.active)), ptr.To(max(0, r.ready)), &r.terminating
	holds := map[types.UID]bool{}
	for _, p := range r.pods {
		if r.c.tracked(p) {
			holds[p.UID] = true
		}
	}
	r.count(holds)
	release, all := r.list(holds)
	if r.indexed() {
		for i := range r.done {
			if i >= r.completions() {
				delete(r.done, i)
			}
		}
		st.Succeeded, st.CompletedIndexes = int32(len(r.done)), r.done.String()
		st.FailedIndexes = nil
		if r.perIndex() {
			st.FailedIndexes = ptr.To(r.lost.String())
		}
	}
	if r.decided != nil {
		r.set(r.decided)
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	r.c.wait(r.key, r.failures)
	if len(release) > 0 {
		r.c.env.Point(pointListed, r.job.Name)
	}
	for _, p := range release {
		if err := r.c.release(ctx, p); err != nil {
			return err
		}
		delete(holds, p.UID)
		r.c.env.Point(pointReleased, p.Name)
	}
	r.count(holds)
	ended := all && r.end()
	if err := r.flush(ctx); err != nil {
		return err
	}
	if !all {
		r.c.queue.Add(r.key)
	}
	if ended {
		r.tell()
	}
	return nil
}

// count moves the listed pods that hold no finalizer any more into the counters.
func (r *round) count(holds map[types.UID]bool) {
	st := &r.job.Status
	move := func(list *[]types.UID, counter *int32) {
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool {
			if !holds[uid] {
				*counter++
			}
			return !holds[uid]
		})
		if len(*list) == 0 {
			*list = nil
		}
	}
	move(&st.UncountedTerminatedPods.Succeeded, &st.Succeeded)
	move(&st.UncountedTerminatedPods.Failed, &st.Failed)
}

// list writes the pods that have ended into the status, and returns those that can then lose their finalizers; all
// is false if there are more than fit.
func (r *round) list(holds map[types.UID]bool) (release []*corev1.Pod, all bool) {
	u := r.job.Status.UncountedTerminatedPods
	stopped := r.decided != nil && r.decided.Type == batchv1.JobFailureTarget
	for _, p := range r.pods {
		failed := r.hasFailed(p)
		if !holds[p.UID] || !failed && p.Status.Phase != corev1.PodSucceeded && r.decided == nil && r.job.DeletionTimestamp == nil {
			continue
		}
		if r.decided == nil && r.job.DeletionTimestamp == nil && r.held[indexOf(p)] == p {
			continue // its successor is to know how often it failed
		}
		if len(release) >= burst || len(u.Succeeded)+len(u.Failed) >= burst {
			return release, false
		}
		release = append(release, p)
		if !r.valid(p) || slices.Contains(u.Succeeded, p.UID) || slices.Contains(u.Failed, p.UID) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded {
			if !r.indexed() { // an index is as good as the uid
				u.Succeeded = append(u.Succeeded, p.UID)
			}
		} else if failed || stopped {
			if action, _ := match(r.job.Spec.PodFailurePolicy, p); action != batchv1.PodFailurePolicyActionIgnore {
				u.Failed = append(u.Failed, p.UID)
			}
		}
	}
	return release, true
}

// end makes a decided job finished, unless a pod is still to be counted or to go.
func (r *round) end() bool {
	u := r.job.Status.UncountedTerminatedPods
	if r.decided == nil || len(u.Succeeded)+len(u.Failed) > 0 || r.terminating > 0 {
		return false
	}
	final := r.condition(batchv1.JobComplete, r.decided.Reason, r.decided.Message)
	if r.decided.Type == batchv1.JobFailureTarget {
		final.Type = batchv1.JobFailed
	} else {
		r.job.Status.CompletionTime = &final.LastTransitionTime
	}
	return r.set(final)
}

func (r *round) tell() {
	if r.decided.Type == batchv1.JobFailureTarget {
		r.c.events.Event(r.job, corev1.EventTypeWarning, r.decided.Reason, r.decided.Message)
		return
	}
	if n := r.job.Spec.Completions; n != nil && r.job.Status.Succeeded > *n {
		r.c.events.Event(r.job, corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
	}
	r.c.events.Event(r.job, corev1.EventTypeNormal, "Completed", "Job completed")
}

// flush writes the status if it has changed.
func (r *round) flush(ctx context.Context) error {
	if equality.Semantic.DeepEqual(r.job.Status, r.was) {
		return nil
	}
	out, err := r.c.env.Client.BatchV1().Jobs(r.key.Namespace).UpdateStatus(ctx, r.job, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	r.job.ResourceVersion, r.was = out.ResourceVersion, *r.job.Status.DeepCopy()
	return nil
}

func (r *round) condition(t batchv1.JobConditionType, reason, message string) *batchv1.JobCondition {
	now := metav1.NewTime(r.now)
	return &batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now, Reason: reason, Message: message}
}

// set puts a condition into the status and tells whether that changed it.
func (r *round) set(c *batchv1.JobCondition) bool {
	have := find(r.job.Status.Conditions, c.Type)
	switch {
	case have == nil:
		r.job.Status.Conditions = append(r.job.Status.Conditions, *c)
	case have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message:
		return false
	default:
		*have = *c
	}
	return true
}

func find(list []batchv1.JobCondition, t batchv1.JobConditionType) *batchv1.JobCondition {
	if i := slices.IndexFunc(list, func(c batchv1.JobCondition) bool { return c.Type == t }); i >= 0 {
		return &list[i]
	}
	return nil
}

// finishedBy is the condition that ended a job, or nil.
func finishedBy(j *batchv1.Job) *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := find(j.Status.Conditions, t); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// expire deletes a job that ended ttlSecondsAfterFinished ago.
func (c *Controller) expire(ctx context.Context, key types.NamespacedName, j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return nil
	}
	left := time.Duration(*j.Spec.TTLSecondsAfterFinished)*time.Second - c.env.Clock().Since(finishedBy(j).LastTransitionTime.Time)
	if left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(j.UID)), PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	if err := c.env.Client.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name, o); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete after its time: %w", err)
	}
	return nil
}
