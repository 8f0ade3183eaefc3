package registry

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/utils/ptr"
)

// statusOptions tell which rules a write of a job's status is held against. A rule about fields is asked only when
// one of them changes, so that a status that was wrong before does not stand in the way of other changes.
func statusOptions(j, old *batch.Job) validation.JobStatusValidationOptions {
	now, was := &j.Status, &old.Status
	changes := func(is func(*batch.Job) bool) bool { return is(j) != is(old) }
	condition := func(t batch.JobConditionType) bool {
		return validation.IsConditionTrue(now.Conditions, t) != validation.IsConditionTrue(was.Conditions, t)
	}
	finished, complete, failed := changes(validation.IsJobFinished), changes(validation.IsJobComplete), changes(validation.IsJobFailed)
	done, broken := now.CompletedIndexes != was.CompletedIndexes, !ptr.Equal(now.FailedIndexes, was.FailedIndexes)
	active, ready := now.Active != was.Active, !ptr.Equal(now.Ready, was.Ready)
	start, end := !ptr.Equal(now.StartTime, was.StartTime), !ptr.Equal(now.CompletionTime, was.CompletionTime)
	resumes := validation.IsConditionTrue(was.Conditions, batch.JobSuspended) && validation.IsConditionFalse(now.Conditions, batch.JobSuspended)
	idle := ptr.Deref(j.Spec.Suspend, false) && ptr.Equal(j.Spec.Completions, ptr.To[int32](0))
	indexed := ptr.Deref(j.Spec.CompletionMode, batch.NonIndexedCompletion) == batch.IndexedCompletion
	return validation.JobStatusValidationOptions{
		// An indexed job that is made smaller forgets indexes that had succeeded.
		RejectDecreasingSucceededCounter:             !indexed || !ptr.Equal(j.Spec.Completions, j.Spec.Parallelism),
		RejectDecreasingFailedCounter:                true,
		RejectDisablingTerminalCondition:             true,
		RejectMutatingCompletionTime:                 true,
		RejectInvalidCompletedIndexes:                done,
		RejectCompletedIndexesForNonIndexedJob:       done,
		RejectInvalidFailedIndexes:                   broken,
		RejectFailedIndexesForNoBackoffLimitPerIndex: broken,
		RejectFailedIndexesOverlappingCompleted:      broken || done,
		RejectFailedJobWithoutFailureTarget:          failed || broken,
		RejectCompleteJobWithoutSuccessCriteriaMet:   complete || condition(batch.JobSuccessCriteriaMet),
		RejectCompleteJobWithFailedCondition:         complete || failed,
		RejectCompleteJobWithFailureTargetCondition:  complete || condition(batch.JobFailureTarget),
		RejectNotCompleteJobWithCompletionTime:       complete || end,
		RejectCompleteJobWithoutCompletionTime:       complete || end,
		RejectCompletionTimeBeforeStartTime:          start || end,
		RejectStartTimeUpdateForUnsuspendedJob:       start && !resumes,
		RejectFinishedJobWithoutStartTime:            (finished || start) && !idle,
		RejectFinishedJobWithActivePods:              finished || active,
		RejectMoreReadyThanActivePods:                ready || active,
		RejectFinishedJobWithUncountedTerminatedPods: finished || !equality.Semantic.DeepEqual(now.UncountedTerminatedPods, was.UncountedTerminatedPods),
		RejectFinishedJobWithTerminatingPods:         finished || !ptr.Equal(now.Terminating, was.Terminating),
	}
}
