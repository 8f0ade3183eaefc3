package registry

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/ptr"
)

// batchKinds are those of batch/v1. CronJobs are kept; no controller starts their jobs.
func batchKinds(Options) []*Resource { return []*Resource{cronJobs(), jobs()} }

// gates has the feature gates that the kinds' markers ask for, at upstream's defaults.
var gates = declarative{options: map[string]bool{"WorkloadWithJob": false}}

func fmtInt(n int32) string { return strconv.Itoa(int(n)) }

func jobs() *Resource {
	main, status := workload[batch.Job, batch.JobSpec, batch.JobStatus]{
		meta: func(j *batch.Job) *metav1.ObjectMeta { return &j.ObjectMeta }, spec: func(j *batch.Job) *batch.JobSpec { return &j.Spec },
		status: func(j *batch.Job) *batch.JobStatus { return &j.Status }, template: func(j *batch.Job) *core.PodTemplateSpec { return &j.Spec.Template },
		create: func(j *batch.Job, o corevalidation.PodValidationOptions) field.ErrorList {
			return validation.ValidateJobCreate(asWritten(j), validation.JobValidationOptions{PodValidationOptions: o, RequirePrefixedLabels: true})
		},
		update: func(j, old *batch.Job, o corevalidation.PodValidationOptions) field.ErrorList {
			o.AllowInvalidLabelValueInSelector = o.AllowInvalidLabelValueInSelector || badSelector(old.Spec.Selector)
			labels := old.Spec.Template.Labels
			_, name := labels[batch.JobNameLabel]
			_, uid := labels[batch.ControllerUidLabel]
			paused := old.Spec.Suspend != nil && *old.Spec.Suspend && old.Status.Active == 0 && (old.Status.StartTime == nil || validation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended))
			return validation.ValidateJobUpdate(asWritten(j), old, validation.JobValidationOptions{PodValidationOptions: o, RequirePrefixedLabels: name && uid,
				AllowMutableSchedulingDirectives: paused, AllowMutablePodResources: paused})
		},
		updateStatus: func(j, old *batch.Job) field.ErrorList {
			return validation.ValidateJobUpdateStatus(j, old, statusOptions(j, old))
		},
		podNames: true,
	}.rules()
	main.declarative, status.declarative = gates, gates
	warnCreate, warnUpdate := main.warnCreate, main.warnUpdate
	main.warnCreate = func(ctx context.Context, j *batch.Job) []string {
		return append(warnCreate(ctx, j), manyIndexes(field.NewPath("spec"), &j.Spec)...)
	}
	main.warnUpdate = func(ctx context.Context, j, old *batch.Job) []string {
		if j.Generation == old.Generation {
			return nil
		}
		return append(manyIndexes(field.NewPath("spec"), &j.Spec), warnUpdate(ctx, j, old)...)
	}
	create, update, updateStatus := main.prepareCreate, main.prepareUpdate, status.prepareUpdate
	main.prepareCreate = func(j *batch.Job) {
		if j.Spec.ManualSelector == nil || !*j.Spec.ManualSelector {
			selectByUID(j)
		}
		dropScheduling(&j.Spec, nil)
		create(j)
	}
	main.prepareUpdate = func(j, old *batch.Job) {
		dropScheduling(&j.Spec, &old.Spec)
		update(j, old)
		labelAsPods(j)
	}
	status.prepareUpdate = func(j, old *batch.Job) {
		updateStatus(j, old)
		labelAsPods(j)
	}
	r := resource(kind[batch.Job, batch.JobList]{
		gvk: batchv1.SchemeGroupVersion.WithKind("Job"), plural: "jobs", categories: inAll,
		object: alloc[batchv1.Job](), list: alloc[batchv1.JobList](),
		rules: main, parts: map[string]rules[batch.Job]{"status": status},
		fields: func(o runtime.Object) fields.Set {
			return fields.Set{"status.successful": fmtInt(o.(*batchv1.Job).Status.Succeeded)}
		},
	})
	r.Orphans = true
	return r
}

// manyIndexes warns of more indexes than a status can tell of.
func manyIndexes(at *field.Path, s *batch.JobSpec) []string {
	const completions, parallelism = 100_000, 10_000
	if ptr.Deref(s.CompletionMode, "") != batch.IndexedCompletion || ptr.Deref(s.Completions, 0) <= completions || ptr.Deref(s.Parallelism, 0) <= parallelism {
		return nil
	}
	return []string{fmt.Sprintf("%s: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
		"Kubernetes might not be able to track completedIndexes when a big number of indexes fail", at)}
}

// dropScheduling forgets what is for schedulers of groups, whose gate is off.
func dropScheduling(s, old *batch.JobSpec) {
	if old == nil || old.Scheduling == nil {
		s.Scheduling = nil
	}
}

// asWritten is a job without what validation should not see: the labels of labelAsPods, and a policy of successes whose number
// is missing, over which upstream's validation panics after it has refused the job.
func asWritten(j *batch.Job) *batch.Job {
	out := *j
	_, own := out.Labels[batch.ControllerUidLabel]
	if own && maps.Equal(out.Labels, out.Spec.Template.Labels) {
		out.Labels = nil
	}
	if out.Spec.Completions == nil && ptr.Deref(out.Spec.CompletionMode, "") == batch.IndexedCompletion {
		out.Spec.SuccessPolicy = nil
	}
	return &out
}

// labelAsPods gives a job without labels those of its pods, as upstream's defaults do whenever one is read.
func labelAsPods(j *batch.Job) {
	if len(j.Labels) == 0 {
		j.Labels = j.Spec.Template.Labels
	}
}

// selectByUID gives a job and its pods labels that no other job has.
func selectByUID(j *batch.Job) {
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for label, value := range map[string]string{
		batch.LegacyJobNameLabel: j.Name, batch.JobNameLabel: j.Name, batch.LegacyControllerUidLabel: string(j.UID), batch.ControllerUidLabel: string(j.UID),
	} {
		if _, found := t.Labels[label]; !found { // another value is for validation to refuse
			t.Labels[label] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, found := j.Spec.Selector.MatchLabels[batch.ControllerUidLabel]; !found {
		j.Spec.Selector.MatchLabels[batch.ControllerUidLabel] = string(j.UID)
	}
}

func cronJobs() *Resource {
	main, status := workload[batch.CronJob, batch.CronJobSpec, batch.CronJobStatus]{
		meta: func(c *batch.CronJob) *metav1.ObjectMeta { return &c.ObjectMeta }, spec: func(c *batch.CronJob) *batch.CronJobSpec { return &c.Spec },
		status: func(c *batch.CronJob) *batch.CronJobStatus { return &c.Status }, template: func(c *batch.CronJob) *core.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
		create: validation.ValidateCronJobCreate, update: validation.ValidateCronJobUpdate,
		updateStatus: func(_, _ *batch.CronJob) field.ErrorList { return nil },
		podNames:     true, at: field.NewPath("spec", "jobTemplate", "spec", "template"),
	}.rules()
	at := field.NewPath("spec", "jobTemplate", "spec")
	warnCreate, warnUpdate := main.warnCreate, main.warnUpdate
	main.warnCreate = func(ctx context.Context, c *batch.CronJob) []string {
		return append(warnCreate(ctx, c), manyIndexes(at, &c.Spec.JobTemplate.Spec)...)
	}
	main.warnUpdate = func(ctx context.Context, c, old *batch.CronJob) []string {
		out := warnUpdate(ctx, c, old)
		if c.Generation != old.Generation {
			out = append(manyIndexes(at, &c.Spec.JobTemplate.Spec), out...)
		}
		if strings.Contains(c.Spec.Schedule, "TZ") {
			out = append(out, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
		}
		return out
	}
	main.declarative, status.declarative = gates, gates
	create, update := main.prepareCreate, main.prepareUpdate
	main.prepareCreate = func(c *batch.CronJob) {
		dropScheduling(&c.Spec.JobTemplate.Spec, nil)
		create(c)
	}
	main.prepareUpdate = func(c, old *batch.CronJob) {
		dropScheduling(&c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
		update(c, old)
	}
	return resource(kind[batch.CronJob, batch.CronJobList]{
		gvk: batchv1.SchemeGroupVersion.WithKind("CronJob"), plural: "cronjobs", shortNames: []string{"cj"}, categories: inAll,
		object: alloc[batchv1.CronJob](), list: alloc[batchv1.CronJobList](),
		rules: main, parts: map[string]rules[batch.CronJob]{"status": status},
	})
}
