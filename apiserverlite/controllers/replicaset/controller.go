// Package replicaset keeps as many pods of a template as a ReplicaSet, or its elder, a ReplicationController, wants.
//
// Promises. A round acts only on a cache that shows all that earlier rounds wrote, so that no pod is made twice.
// Of too many pods those go first that are the least use: without a node, not ready, young.
package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// Names of the two controllers, as in controllers.Config.Without.
const (
	Name              = "replicaset"
	NameOfControllers = "replicationcontroller"
)

const (
	workers = 2
	burst   = 500 // pods that one round makes or deletes
)

var (
	pointCreated             = lab.Point{Component: "controllers", Name: "after one pod of a replica set is created, before the next"}
	pointCreatedByController = lab.Point{Component: "controllers", Name: "after one pod of a replication controller is created, before the next"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointCreated, pointCreatedByController} }

// Controller keeps pods. Make it with New or NewForControllers.
type Controller struct {
	env     control.Env
	events  record.EventRecorder
	sets    source
	pods    cache.Indexer
	pending workload.Pending
	queue   control.Queue[types.NamespacedName]
}

// New registers the handlers of the controller of ReplicaSets.
func New(env control.Env) *Controller { return newController(env, replicaSets(env)) }

// NewForControllers registers those of the controller of ReplicationControllers.
func NewForControllers(env control.Env) *Controller {
	return newController(env, replicationControllers(env))
}

func newController(env control.Env, sets source) *Controller {
	env = env.For(sets.name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:     env,
		events:  env.Recorder(sets.reports),
		sets:    sets,
		pods:    core.Pods().Informer().GetIndexer(),
		pending: workload.Pending{Clock: clock.RealClock{}},
		queue:   control.NewQueue[types.NamespacedName](env),
	}
	workload.IndexPods(core.Pods().Informer())
	sets.watch(func(s metav1.Object) { c.queue.Add(nameOf(s)) })
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{Update: func(old, _ *corev1.Pod) { c.podSeen(old) }, Delete: c.podGone, Any: c.podSeen})
	return c
}

// podGone is called before podSeen.
func (c *Controller) podGone(p *corev1.Pod) {
	if ref := metav1.GetControllerOf(p); ref != nil && ref.Kind == c.sets.kind.Kind {
		c.pending.Gone(types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}, p.UID)
	}
}

// Run keeps pods until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (c *Controller) podSeen(p *corev1.Pod) {
	if ref := metav1.GetControllerOf(p); ref != nil {
		if ref.Kind == c.sets.kind.Kind {
			key := types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}
			c.pending.Shown(key, p)
			c.queue.Add(key)
		}
		return
	}
	for _, s := range c.sets.of(p) {
		c.queue.Add(nameOf(s))
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	if wait, any := c.pending.Any(key); any {
		c.queue.AddAfter(key, wait)
		return nil
	}
	s, err := c.sets.get(key)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil {
		return nil // the API lets no such set in
	}
	owner := workload.Owner{Object: s, Kind: c.sets.kind, Selector: selector}
	pods, err := owner.Claim(ctx, c.env.Client, c.pods)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.sets.name, key, err)
	}
	terminating := int32(0)
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool {
		if p.DeletionTimestamp != nil && !workload.Ended(p) {
			terminating++
		}
		return workload.Ended(p) || p.DeletionTimestamp != nil
	})
	var acted error
	if s.DeletionTimestamp == nil {
		acted = c.act(ctx, s, owner, pods)
	}
	if err := c.writeStatus(ctx, s, pods, terminating, acted); err != nil {
		return fmt.Errorf("%s %s: %w", c.sets.name, key, err)
	}
	if acted != nil {
		return fmt.Errorf("%s %s: %w", c.sets.name, key, acted)
	}
	return nil
}

// act makes or deletes what is missing or too much.
func (c *Controller) act(ctx context.Context, s *appsv1.ReplicaSet, owner workload.Owner, pods []*corev1.Pod) error {
	missing := int(ptr.Deref(s.Spec.Replicas, 1)) - len(pods)
	for range min(missing, burst) {
		if err := c.create(ctx, s, owner); err != nil {
			return err
		}
	}
	if missing >= 0 {
		return nil
	}
	slices.SortStableFunc(pods, workload.LeastFar)
	for _, p := range pods[:min(-missing, burst)] {
		if err := c.remove(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) create(ctx context.Context, s *appsv1.ReplicaSet, owner workload.Owner) error {
	p := owner.FromTemplate(&s.Spec.Template)
	p.GenerateName = s.Name + "-"
	made, err := c.env.Client.CoreV1().Pods(s.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // nothing can be made there any more
		}
		c.events.Eventf(c.sets.object(s), corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create pod: %w", err)
	}
	c.pending.Made(nameOf(s), made.UID, func() bool { _, shown, _ := c.pods.Get(made); return shown })
	c.events.Eventf(c.sets.object(s), corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", made.Name)
	c.env.Point(c.sets.created, made.Name)
	return nil
}

func (c *Controller) remove(ctx context.Context, s *appsv1.ReplicaSet, p *corev1.Pod) error {
	err := c.env.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.events.Eventf(c.sets.object(s), corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	c.pending.Removed(nameOf(s), p.UID, func() bool {
		o, shown, _ := c.pods.Get(p)
		return !shown || o.(*corev1.Pod).UID != p.UID || o.(*corev1.Pod).DeletionTimestamp != nil
	})
	c.events.Eventf(c.sets.object(s), corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", p.Name)
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, s *appsv1.ReplicaSet, pods []*corev1.Pod, terminating int32, failure error) error {
	st := appsv1.ReplicaSetStatus{Replicas: int32(len(pods)), ObservedGeneration: s.Generation, Conditions: s.Status.Conditions}
	if c.sets.terminating {
		st.TerminatingReplicas = &terminating
	}
	template := labels.Set(s.Spec.Template.Labels).AsSelectorPreValidated()
	var again time.Duration
	for _, p := range pods {
		if template.Matches(labels.Set(p.Labels)) {
			st.FullyLabeledReplicas++
		}
		if _, ready := workload.Ready(p); !ready {
			continue
		}
		st.ReadyReplicas++
		if wait, ok := workload.Available(p, s.Spec.MinReadySeconds, c.env.Clock().Now()); ok {
			st.AvailableReplicas++
		} else if again == 0 || wait < again {
			again = wait
		}
	}
	if again > 0 {
		c.queue.AddAfter(nameOf(s), again)
	}
	failed := func(x appsv1.ReplicaSetCondition) bool { return x.Type == appsv1.ReplicaSetReplicaFailure }
	switch told := slices.ContainsFunc(st.Conditions, failed); {
	case failure == nil:
		st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions), failed)
	case !told:
		// Only the first failure is told, as upstream: each names another pod, and a status that is news each time would
		// bring the set back here at once, for ever.
		x := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: failure.Error(),
			LastTransitionTime: metav1.NewTime(c.env.Clock().Now())}
		if len(pods) > int(ptr.Deref(s.Spec.Replicas, 1)) {
			x.Reason = "FailedDelete"
		}
		st.Conditions = append(slices.Clone(st.Conditions), x)
	}
	if equality.Semantic.DeepEqual(st, s.Status) || len(st.Conditions) == 0 && len(s.Status.Conditions) == 0 && sameCounts(st, s.Status) {
		return nil
	}
	out := s.DeepCopy()
	out.Status = st
	if err := c.sets.writeStatus(ctx, out); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

func sameCounts(a, b appsv1.ReplicaSetStatus) bool {
	a.Conditions, b.Conditions = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}
