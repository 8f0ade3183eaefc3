package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

const indexVariable = "JOB_COMPLETION_INDEX"

func hasFinalizer(p *corev1.Pod) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// tracked tells whether a pod has its finalizer, as far as this controller has not removed it.
func (c *Controller) tracked(p *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hasFinalizer(p) && !c.released[p.UID]
}

// release takes the finalizer off a pod.
func (c *Controller) release(ctx context.Context, p *corev1.Pod) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.released[p.UID] = true // before the write, whose event takes it out again
	c.mu.Unlock()
	_, err = c.env.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err == nil {
		return nil
	}
	c.forget(p.UID)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone; one of its name is another
		return nil
	}
	return fmt.Errorf("release pod %s: %w", p.Name, err)
}

// create makes a pod; index is negative for a job without indexes.
func (r *round) create(ctx context.Context, index int) error {
	p := r.owner.FromTemplate(&r.job.Spec.Template)
	p.GenerateName = r.job.Name + "-"
	if !hasFinalizer(p) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if index >= 0 {
		giveIndex(p, r.job.Name, index)
		if r.perIndex() {
			r.inherit(p, index)
		}
	}
	made, err := r.c.env.Client.CoreV1().Pods(r.job.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // nothing can be made there any more
		}
		r.c.events.Eventf(r.job, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create pod: %w", err)
	}
	r.c.pending.Made(r.key, made.UID, func() bool { _, shown, _ := r.c.pods.Get(made); return shown })
	r.c.events.Eventf(r.job, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", made.Name)
	r.c.env.Point(pointCreated, made.Name)
	return nil
}

func giveIndex(p *corev1.Pod, job string, index int) {
	n := strconv.Itoa(index)
	const longest = 58 // of a generated name, without its random part
	p.GenerateName = job[:min(len(job), longest-len(n)-2)] + "-" + n + "-"
	p.Spec.Hostname = job + "-" + n
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[batchv1.JobCompletionIndexAnnotation], p.Labels[batchv1.JobCompletionIndexAnnotation] = n, n
	v := corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"}}}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
				list[i].Env = append(list[i].Env, v)
			}
		}
	}
}

// remove deletes a pod that has not ended.
func (r *round) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.c.env.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		r.c.events.Eventf(r.job, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	r.c.pending.Removed(r.key, p.UID, func() bool {
		o, shown, _ := r.c.pods.Get(p)
		return !shown || o.(*corev1.Pod).UID != p.UID || o.(*corev1.Pod).DeletionTimestamp != nil
	})
	r.c.events.Eventf(r.job, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", p.Name)
	return nil
}

// removeUncounted deletes pods that are not to count as failures: these lose their finalizers first.
func (r *round) removeUncounted(ctx context.Context, pods []*corev1.Pod) error {
	for _, p := range pods {
		if r.c.tracked(p) {
			if err := r.c.release(ctx, p); err != nil {
				return err
			}
			r.c.env.Point(pointSurplus, p.Name)
		}
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		r.gone(p)
	}
	return nil
}

// gone takes a pod that was deleted just now from the active to the terminating.
func (r *round) gone(p *corev1.Pod) {
	r.active = slices.DeleteFunc(r.active, func(x *corev1.Pod) bool { return x.UID == p.UID })
	r.terminating++
	if _, ready := workload.Ready(p); ready {
		r.ready--
	}
}
