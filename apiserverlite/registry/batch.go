package registry

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
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
			return validation.ValidateJobCreate(j, validation.JobValidationOptions{PodValidationOptions: o, RequirePrefixedLabels: true})
		},
		update: func(j, old *batch.Job, o corevalidation.PodValidationOptions) field.ErrorList {
			o.AllowInvalidLabelValueInSelector = o.AllowInvalidLabelValueInSelector || badSelector(old.Spec.Selector)
			labels := old.Spec.Template.Labels
			_, name := labels[batch.JobNameLabel]
			_, uid := labels[batch.ControllerUidLabel]
			paused := old.Spec.Suspend != nil && *old.Spec.Suspend && old.Status.Active == 0 && (old.Status.StartTime == nil || validation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended))
			return validation.ValidateJobUpdate(j, old, validation.JobValidationOptions{PodValidationOptions: o, RequirePrefixedLabels: name && uid,
				AllowMutableSchedulingDirectives: paused, AllowMutablePodResources: paused})
		},
		updateStatus: func(j, old *batch.Job) field.ErrorList {
			return validation.ValidateJobUpdateStatus(j, old, validation.JobStatusValidationOptions{})
		},
		podNames: true,
	}.rules()
	main.declarative, status.declarative = gates, gates
	create := main.prepareCreate
	main.prepareCreate = func(j *batch.Job) {
		if j.Spec.ManualSelector == nil || !*j.Spec.ManualSelector {
			selectByUID(j)
		}
		create(j)
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
		podNames:     true,
	}.rules()
	main.declarative, status.declarative = gates, gates
	return resource(kind[batch.CronJob, batch.CronJobList]{
		gvk: batchv1.SchemeGroupVersion.WithKind("CronJob"), plural: "cronjobs", shortNames: []string{"cj"}, categories: inAll,
		object: alloc[batchv1.CronJob](), list: alloc[batchv1.CronJobList](),
		rules: main, parts: map[string]rules[batch.CronJob]{"status": status},
	})
}
