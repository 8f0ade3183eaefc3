// Package job runs the pods of a Job until enough of them have succeeded or too many have failed.
//
// Promises. Each pod counts once, however often the controller dies: a pod keeps the finalizer
// batch.kubernetes.io/job-tracking until its uid stands in the job's status, and the uid stands there until the
// finalizer is gone:
//
//	pod ends -> uid in uncountedTerminatedPods -> finalizer removed -> uid out, counter up, in one write
//
// A job ends in two steps as well: SuccessCriteriaMet or FailureTarget as soon as it is decided, Complete or Failed
// when its last pod has ended. What makes pods wait after failures is in memory and forgotten by a restart, as upstream.
package job

import (
	"context"
	"fmt"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/workload"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "job"

const (
	workers = 2
	burst   = 500   // pods that one round makes, deletes or counts
	byJob   = "job" // an index of pods: namespace and name of the job that they are of, or were
)

var (
	kind          = batchv1.SchemeGroupVersion.WithKind("Job")
	pointCreated  = lab.Point{Component: "controllers", Name: "after one pod of a job is created, before the next"}
	pointListed   = lab.Point{Component: "controllers", Name: "after ended pods are listed in their job's status, before they lose their finalizers"}
	pointReleased = lab.Point{Component: "controllers", Name: "after an ended pod has lost its finalizer, before its job counts it"}
	pointSurplus  = lab.Point{Component: "controllers", Name: "after a pod that a job has too many has lost its finalizer, before it is deleted"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointCreated, pointListed, pointReleased, pointSurplus} }

// Controller runs jobs. Make it with New.
type Controller struct {
	env     control.Env
	events  record.EventRecorder
	pods    cache.Indexer
	pending workload.Pending
	queue   control.Queue[types.NamespacedName]

	mu sync.Mutex
	// released has the pods whose finalizer was removed and whose cached copy may still have it; guarded by mu.
	released map[types.UID]bool
	waits    map[types.NamespacedName]failures // guarded by mu
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	pods := env.Informers.Core().V1().Pods().Informer()
	c := &Controller{
		env:      env,
		events:   env.Recorder("job-controller"),
		pods:     pods.GetIndexer(),
		pending:  workload.Pending{Clock: clock.RealClock{}},
		queue:    control.NewQueue[types.NamespacedName](env),
		released: map[types.UID]bool{},
		waits:    map[types.NamespacedName]failures{},
	}
	workload.IndexPods(pods)
	control.Index(pods, byJob, func(o any) ([]string, error) {
		if key, ok := jobOf(o.(*corev1.Pod)); ok {
			return []string{key.String()}, nil
		}
		return nil, nil
	})
	control.Register(env.Informers.Batch().V1().Jobs().Informer(), control.On[*batchv1.Job]{
		Any: func(j *batchv1.Job) { c.queue.Add(types.NamespacedName{Namespace: j.Namespace, Name: j.Name}) }})
	control.Register(pods, control.On[*corev1.Pod]{
		Delete: func(p *corev1.Pod) {
			c.forget(p.UID)
			if key, ok := jobOf(p); ok {
				c.pending.Gone(key, p.UID)
			}
		},
		Any: c.podSeen,
	})
	return c
}

// Run runs jobs until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

// jobOf is the job that controls a pod, or, for a pod that nobody controls, the one whose label and finalizer it has.
func jobOf(p *corev1.Pod) (types.NamespacedName, bool) {
	key := types.NamespacedName{Namespace: p.Namespace}
	if ref := metav1.GetControllerOf(p); ref != nil {
		key.Name = ref.Name
		return key, ref.Kind == kind.Kind && ref.APIVersion == kind.GroupVersion().String()
	}
	key.Name = p.Labels[batchv1.JobNameLabel]
	return key, key.Name != ""
}

func (c *Controller) podSeen(p *corev1.Pod) {
	key, ok := jobOf(p)
	if !ok {
		return
	}
	if !hasFinalizer(p) {
		c.forget(p.UID)
	}
	c.pending.Shown(key, p)
	c.queue.Add(key)
}

func (c *Controller) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.released, uid)
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	if wait, any := c.pending.Any(key); any {
		c.queue.AddAfter(key, wait)
		return nil
	}
	// Not from the cache: from an old status pods would be counted twice.
	j, err := c.env.Client.BatchV1().Jobs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		j = nil
	} else if err != nil {
		return fmt.Errorf("job %s: %w", key, err)
	}
	if err := c.releaseStrays(ctx, key, j); err != nil {
		return fmt.Errorf("job %s: %w", key, err)
	}
	switch {
	case j == nil:
		c.calm(key)
		return nil
	case ptr.Deref(j.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName:
		return nil
	case finishedBy(j) != nil:
		c.calm(key)
		err = c.expire(ctx, key, j)
	default:
		err = c.round(ctx, key, j)
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", key, err)
	}
	return nil
}

// releaseStrays takes the finalizer off pods that no job will count any more: of a job that is gone or has ended,
// and pods that were let go.
func (c *Controller) releaseStrays(ctx context.Context, key types.NamespacedName, j *batchv1.Job) error {
	for _, p := range control.Pods(c.pods, byJob, key.String()) {
		if !c.tracked(p) || j != nil && finishedBy(j) == nil && isOf(p, j) {
			continue
		}
		if err := c.release(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// isOf tells whether a job controls a pod, or is going to.
func isOf(p *corev1.Pod, j *batchv1.Job) bool {
	if ref := metav1.GetControllerOf(p); ref != nil {
		return ref.UID == j.UID
	}
	s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	return err == nil && s.Matches(labels.Set(p.Labels)) && j.DeletionTimestamp == nil
}
