package controllers_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// ends plays the nodes: each pod of a job that is bound runs, and ends at once with the code that exit gives it; with a
// negative one it runs on until it is deleted.
func (w *world) ends(exit func(*corev1.Pod) int32) func(context.Context) {
	return func(ctx context.Context) {
		pods := w.client.CoreV1().Pods("")
		each(ctx, lister(pods.List), pods.Watch, func(o runtime.Object, gone bool) bool {
			p := o.(*corev1.Pod)
			own := w.client.CoreV1().Pods(p.Namespace)
			if gone || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				return false
			}
			if p.DeletionTimestamp != nil {
				err := own.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
					w.t.Errorf("end pod: %v", err)
				}
				return false
			}
			now := metav1.NewTime(w.lab.Clock.Now())
			st := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
			if code := exit(p); code >= 0 {
				st.Phase = corev1.PodSucceeded
				if code > 0 {
					st.Phase = corev1.PodFailed
				}
				st.Conditions[0].Status = corev1.ConditionFalse
				st.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: now}}}}
			} else if p.Status.Phase == corev1.PodRunning {
				return false
			}
			body, _ := json.Marshal(map[string]any{"status": st})
			_, _ = own.Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status") // the pod may be gone
			return false
		})
	}
}

func exitWith(code int32) func(*corev1.Pod) int32 { return func(*corev1.Pod) int32 { return code } }

func jobNamed(name string, change func(*batchv1.JobSpec)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "app", Image: "app"}}}}}}
	change(&j.Spec)
	return j
}

func (w *world) addJob(name string, change func(*batchv1.JobSpec)) {
	w.t.Helper()
	_, err := w.client.BatchV1().Jobs("default").Create(w.ctx, jobNamed(name, change), metav1.CreateOptions{})
	w.check(err)
}

func (w *world) job(name string, done func(*batchv1.Job) bool) *batchv1.Job {
	w.t.Helper()
	c := w.client.BatchV1().Jobs("default")
	return until(w, "job "+name, lister(c.List), c.Watch, func(j *batchv1.Job) bool { return j.Name == name && done(j) })
}

func holds(types ...batchv1.JobConditionType) func(*batchv1.Job) bool {
	return func(j *batchv1.Job) bool {
		for _, t := range types {
			if !slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue }) {
				return false
			}
		}
		return true
	}
}

func reason(j *batchv1.Job, t batchv1.JobConditionType) string {
	for _, c := range j.Status.Conditions {
		if c.Type == t {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func (w *world) podsOf(job string) []corev1.Pod {
	w.t.Helper()
	l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	w.check(err)
	return l.Items
}

// jobsEnd runs one job to its end and suspends another.
func jobsEnd(w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, w.ends(func(p *corev1.Pod) int32 {
		if strings.HasPrefix(p.Name, "sum") {
			return 0
		}
		return -1
	}))
	defer func() { cancel(); wait() }()
	w.addNode("n1", 7)
	w.addJob("sum", func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](3), ptr.To[int32](2) })
	j := w.job("sum", holds(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete))
	if st := j.Status; st.Succeeded != 3 || st.Failed != 0 || st.Active != 0 || st.CompletionTime == nil || len(st.UncountedTerminatedPods.Succeeded) > 0 {
		w.t.Errorf("status at the end: %+v", st)
	}
	pods := w.podsOf("sum")
	for _, p := range pods {
		if len(p.Finalizers) > 0 {
			w.t.Errorf("pod %s keeps %v", p.Name, p.Finalizers)
		}
	}
	if len(pods) != 3 {
		w.t.Errorf("%d pods were made", len(pods))
	}
	w.addJob("idle", func(s *batchv1.JobSpec) {})
	w.job("idle", func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Ready, 0) == 1 })
	_, err := w.client.BatchV1().Jobs("default").Patch(w.ctx, "idle", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
	w.check(err)
	j = w.job("idle", func(j *batchv1.Job) bool {
		return holds(batchv1.JobSuspended)(j) && j.Status.Active == 0 && ptr.Deref(j.Status.Terminating, 0) == 0
	})
	if j.Status.Failed != 0 {
		w.t.Errorf("what a suspension deletes counts as failed: %+v", j.Status)
	}
}

func TestJobFailsAfterItsBackOff(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.ends(exitWith(3)))
	began := w.lab.Clock.Now()
	w.addJob("bad", func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](2) })
	w.job("bad", func(j *batchv1.Job) bool { return j.Status.Failed == 1 })
	if n := len(w.podsOf("bad")); n != 1 {
		t.Errorf("%d pods at once", n)
	}
	fast := w.timeFlies(time.Second)
	j := w.job("bad", holds(batchv1.JobFailureTarget, batchv1.JobFailed))
	fast()
	if took := w.lab.Clock.Since(began); took < 28*time.Second { // 10 s and 20 s, times being of whole seconds
		t.Errorf("three attempts took %s", took)
	}
	if got := reason(j, batchv1.JobFailed); got != "BackoffLimitExceeded: Job has reached the specified backoff limit" || j.Status.Failed != 3 {
		t.Errorf("%s, %d failed", got, j.Status.Failed)
	}
	w.event("bad", "BackoffLimitExceeded")
}

func TestJobPastItsDeadlineAndItsTime(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.ends(exitWith(-1)))
	w.addJob("late", func(s *batchv1.JobSpec) {
		s.ActiveDeadlineSeconds, s.TTLSecondsAfterFinished = ptr.To[int64](60), ptr.To[int32](100)
	})
	w.job("late", func(j *batchv1.Job) bool { return j.Status.Active == 1 })
	w.clock().Advance(time.Minute)
	j := w.job("late", holds(batchv1.JobFailed))
	if got := reason(j, batchv1.JobFailed); !strings.HasPrefix(got, "DeadlineExceeded: ") || j.Status.Failed != 1 || j.Status.Active != 0 {
		t.Errorf("%s %+v", got, j.Status)
	}
	w.clock().Advance(100 * time.Second)
	jobs := w.client.BatchV1().Jobs("default")
	w.none("the job", jobs.Watch, func() (string, error) {
		l, err := jobs.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
}

func TestIndexedJobRunsEachIndexOnce(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	failed := false
	w.start(w.ends(func(p *corev1.Pod) int32 {
		if p.Labels[batchv1.JobCompletionIndexAnnotation] == "2" && !failed {
			failed = true
			return 1
		}
		return 0
	}))
	stop := w.timeFlies(time.Second)
	defer stop()
	w.addJob("rows", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](5), ptr.To[int32](3)
	})
	j := w.job("rows", holds(batchv1.JobComplete))
	if st := j.Status; st.CompletedIndexes != "0-4" || st.Succeeded != 5 || st.Failed != 1 {
		t.Errorf("status: %+v", st)
	}
	seen := map[string]int{}
	for _, p := range w.podsOf("rows") {
		i := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		seen[i]++
		if p.Spec.Hostname != "rows-"+i || !strings.HasPrefix(p.Name, "rows-"+i+"-") || p.Spec.Containers[0].Env[0].Name != "JOB_COMPLETION_INDEX" {
			t.Errorf("pod %s of index %s: %+v", p.Name, i, p.Spec)
		}
	}
	if seen["2"] != 2 || len(seen) != 5 {
		t.Errorf("pods of indexes: %v", seen)
	}
}

func TestJobPodFailurePolicy(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	n := 0
	w.start(w.ends(func(p *corev1.Pod) int32 {
		if n++; n == 1 {
			return 7
		}
		return 42
	}))
	stop := w.timeFlies(time.Second)
	defer stop()
	w.addJob("picky", func(s *batchv1.JobSpec) {
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			{Action: batchv1.PodFailurePolicyActionIgnore, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{7}}},
			{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}}},
		}}
	})
	j := w.job("picky", holds(batchv1.JobFailed))
	if got := reason(j, batchv1.JobFailed); !strings.HasPrefix(got, "PodFailurePolicy: Container app for pod default/picky-") || !strings.HasSuffix(got, "failed with exit code 42 matching FailJob rule at index 1") {
		t.Error(got)
	}
	if j.Status.Failed != 1 {
		t.Errorf("%d failed; what is ignored counts", j.Status.Failed)
	}
}

func TestJobResumesWhereItWasSuspended(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.ends(exitWith(0)))
	w.addJob("later", func(s *batchv1.JobSpec) { s.Suspend = ptr.To(true) })
	if j := w.job("later", holds(batchv1.JobSuspended)); j.Status.StartTime != nil {
		t.Errorf("started at %v", j.Status.StartTime)
	}
	_, err := w.client.BatchV1().Jobs("default").Patch(w.ctx, "later", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	w.check(err)
	j := w.job("later", holds(batchv1.JobComplete))
	if got := reason(j, batchv1.JobSuspended); got != "JobResumed: Job resumed" || j.Status.StartTime == nil {
		t.Errorf("%s %+v", got, j.Status)
	}
}

// TestPodsOfADeletedJobGo: nobody counts them any more, so nothing holds them.
func TestPodsOfADeletedJobGo(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.ends(exitWith(-1)))
	w.addJob("gone", func(s *batchv1.JobSpec) {})
	w.job("gone", func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Ready, 0) == 1 })
	w.check(w.client.BatchV1().Jobs("default").Delete(w.ctx, "gone", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	pods := w.client.CoreV1().Pods("default")
	w.none("the pod", pods.Watch, func() (string, error) {
		l, err := pods.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
}

// TestJobSucceedsByItsPolicy: one index is enough, and the pods that are stopped then do not count as failed.
func TestJobSucceedsByItsPolicy(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 7)
	w.start(w.ends(func(p *corev1.Pod) int32 {
		if p.Labels[batchv1.JobCompletionIndexAnnotation] == "1" {
			return 0
		}
		return -1
	}))
	w.addJob("leader", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](3), ptr.To[int32](3)
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("1")}}}
	})
	j := w.job("leader", holds(batchv1.JobComplete))
	if got := reason(j, batchv1.JobComplete); got != "SuccessPolicy: Matched rules at index 0" || j.Status.CompletedIndexes != "1" || j.Status.Failed != 0 {
		t.Errorf("%s %+v", got, j.Status)
	}
}

// TestIndexesFailEachByItself: one index fails for good, another by its exit code, one after a failure that is forgiven; the others are done.
func TestIndexesFailEachByItself(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	tries := map[string]int{}
	w.start(w.ends(func(p *corev1.Pod) int32 {
		i := p.Labels[batchv1.JobCompletionIndexAnnotation]
		tries[i]++
		switch {
		case i == "1":
			return 1
		case i == "2":
			return 42
		case i == "3" && tries[i] == 1:
			return 7
		case i == "3" && tries[i] == 2:
			return 1
		}
		return 0
	}))
	stop := w.timeFlies(time.Second)
	defer stop()
	on := func(action batchv1.PodFailurePolicyAction, code int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code}}}
	}
	w.addJob("grid", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](5), ptr.To[int32](5)
		s.BackoffLimitPerIndex = ptr.To[int32](1)
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{on(batchv1.PodFailurePolicyActionFailIndex, 42), on(batchv1.PodFailurePolicyActionIgnore, 7)}}
	})
	j := w.job("grid", holds(batchv1.JobFailureTarget, batchv1.JobFailed))
	st := j.Status
	if got := reason(j, batchv1.JobFailed); got != "FailedIndexes: Job has failed indexes" {
		t.Error(got)
	}
	if st.CompletedIndexes != "0,3,4" || ptr.Deref(st.FailedIndexes, "") != "1,2" || st.Succeeded != 3 || st.Failed != 4 || st.Active != 0 {
		t.Errorf("status: %+v, failed indexes %q", st, ptr.Deref(st.FailedIndexes, "none"))
	}
	counts := map[string][]string{}
	for _, p := range w.podsOf("grid") {
		i := p.Annotations[batchv1.JobCompletionIndexAnnotation]
		counts[i] = append(counts[i], p.Annotations[batchv1.JobIndexFailureCountAnnotation]+"/"+p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation])
		if len(p.Finalizers) > 0 {
			t.Errorf("pod %s keeps %v", p.Name, p.Finalizers)
		}
	}
	for i, want := range map[string][]string{"0": {"0/"}, "1": {"0/", "1/"}, "2": {"0/"}, "3": {"0/", "0/1", "1/1"}, "4": {"0/"}} {
		got := counts[i]
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("failures before the pods of index %s: %v, want %v", i, got, want)
		}
	}
	w.event("grid", "FailedIndexes")
}

func TestJobLosesTooManyIndexes(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start(w.ends(func(p *corev1.Pod) int32 {
		if p.Labels[batchv1.JobCompletionIndexAnnotation] < "2" {
			return 1
		}
		return -1
	}))
	w.addJob("grid", func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), ptr.To[int32](4), ptr.To[int32](4)
		s.BackoffLimitPerIndex, s.MaxFailedIndexes = ptr.To[int32](0), ptr.To[int32](1)
	})
	j := w.job("grid", holds(batchv1.JobFailed))
	if got := reason(j, batchv1.JobFailed); got != "MaxFailedIndexesExceeded: Job has exceeded the specified maximal number of failed indexes" || *j.Status.FailedIndexes != "0,1" || j.Status.Failed != 4 {
		t.Errorf("%s %+v", got, j.Status)
	}
}

// TestPodIsReplacedWhenItHasEnded, with the policy for that, and not as soon as it is going.
func TestPodIsReplacedWhenItHasEnded(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start() // nobody ends pods
	w.addJob("slow", func(s *batchv1.JobSpec) { s.PodReplacementPolicy = ptr.To(batchv1.Failed) })
	w.addJob("quick", func(s *batchv1.JobSpec) {})
	for _, name := range []string{"slow", "quick"} {
		w.job(name, func(j *batchv1.Job) bool { return j.Status.Active == 1 })
		p := w.podsOf(name)[0]
		w.pod(p.Name, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
		w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, p.Name, metav1.DeleteOptions{}))
	}
	w.job("quick", func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Terminating, 0) == 1 && j.Status.Failed == 1 })
	stop := w.timeFlies(time.Second)
	defer stop()
	w.job("quick", func(j *batchv1.Job) bool { return j.Status.Active == 1 })
	j := w.job("slow", func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Terminating, 0) == 1 })
	if j.Status.Active != 0 || j.Status.Failed != 0 || len(w.podsOf("slow")) != 1 {
		t.Errorf("status while the pod is going: %+v", j.Status)
	}
	old := w.podsOf("slow")[0]
	_, err := w.client.CoreV1().Pods("default").Patch(w.ctx, old.Name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	w.check(err)
	w.job("slow", func(j *batchv1.Job) bool { return j.Status.Active == 1 && j.Status.Failed == 1 })
}
