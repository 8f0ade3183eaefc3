// Package disruption keeps the status of PodDisruptionBudgets, which evictions obey: how many of the pods are healthy,
// how many should be, and so how many may go.
//
// Promises. A budget is reckoned when it changes, when a pod that it selects comes, goes or changes, when an owner of such pods is
// scaled, and when a pod whose eviction was granted has not gone in time. What cannot be reckoned allows no disruption. A
// pod that was told of its end and lives on is told so. The scale of owners of other kinds than replica sets, deployments
// and stateful sets is noticed with the next change of one of their pods, as upstream.
package disruption

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/budget"
	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "disruption"

// Controller reckons. Make it with New.
type Controller struct {
	env         control.Env
	events      record.EventRecorder
	budgets     policylisters.PodDisruptionBudgetLister
	pods        corelisters.PodLister
	sets        appslisters.ReplicaSetLister
	deployments appslisters.DeploymentLister
	stateful    appslisters.StatefulSetLister
	queue       control.Queue[types.NamespacedName] // of budgets
	stale       control.Queue[types.NamespacedName] // of pods
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core, apps, policy := env.Informers.Core().V1(), env.Informers.Apps().V1(), env.Informers.Policy().V1()
	c := &Controller{
		env:         env,
		events:      env.Recorder("controllermanager"),
		budgets:     policy.PodDisruptionBudgets().Lister(),
		pods:        core.Pods().Lister(),
		sets:        apps.ReplicaSets().Lister(),
		deployments: apps.Deployments().Lister(),
		stateful:    apps.StatefulSets().Lister(),
		queue:       control.NewQueue[types.NamespacedName](env),
		stale:       control.NewQueue[types.NamespacedName](env),
	}
	control.Register(policy.PodDisruptionBudgets().Informer(), control.On[*policyv1.PodDisruptionBudget]{
		Any: func(b *policyv1.PodDisruptionBudget) { c.queue.Add(nameOf(b)) }})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: c.watchOver,
		Update: func(old, p *corev1.Pod) {
			if !equality.Semantic.DeepEqual(old.Labels, p.Labels) {
				c.podSeen(old)
			}
			c.watchOver(p)
		},
		Any: c.podSeen})
	// A pod may be shown before its owner, or the owner's scale: each has a watch of its own.
	control.Register(apps.ReplicaSets().Informer(), scaled(func(s *appsv1.ReplicaSet) { c.templateSeen(s.Namespace, s.Spec.Template.Labels) }))
	control.Register(apps.Deployments().Informer(), scaled(func(d *appsv1.Deployment) { c.templateSeen(d.Namespace, d.Spec.Template.Labels) }))
	control.Register(apps.StatefulSets().Informer(), scaled(func(s *appsv1.StatefulSet) { c.templateSeen(s.Namespace, s.Spec.Template.Labels) }))
	return c
}

// scaled calls see when an owner comes, goes, or is another than before; a new status alone is no news.
func scaled[T metav1.Object](see func(T)) control.On[T] {
	return control.On[T]{Add: see, Delete: see, Update: func(old, o T) {
		if old.GetUID() != o.GetUID() || old.GetGeneration() != o.GetGeneration() || !equality.Semantic.DeepEqual(old.GetOwnerReferences(), o.GetOwnerReferences()) {
			see(o)
		}
	}}
}

// templateSeen has the budgets reckoned that select pods with these labels.
func (c *Controller) templateSeen(namespace string, pod map[string]string) {
	list, err := c.budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, b := range list {
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(pod)) {
			c.queue.Add(nameOf(b))
		}
	}
}

// Run reckons until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		control.Work(ctx, c.env, 1, c.stale, c.forgive)
	}()
	control.Work(ctx, c.env, 1, c.queue, c.sync)
	<-done
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (c *Controller) podSeen(p *corev1.Pod) {
	list, err := c.budgets.GetPodPodDisruptionBudgets(p)
	if err != nil {
		return // nobody's
	}
	if len(list) > 1 {
		c.events.Eventf(p, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets", "Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", p.Namespace, p.Name, list[0].Name)
	}
	for _, b := range list {
		c.queue.Add(nameOf(b))
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	b, err := c.budgets.PodDisruptionBudgets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	err = c.reckon(ctx, b)
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return err
	}
	// The owner of its pods may be newer than the cache: it brings the budget back here when it is shown.
	failed := b.DeepCopy()
	budget.Fail(failed, err, c.env.Clock().Now())
	return c.write(ctx, b, failed)
}

// reckon brings a budget's status up to date.
func (c *Controller) reckon(ctx context.Context, b *policyv1.PodDisruptionBudget) error {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		c.events.Eventf(b, corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return err
	}
	pods, err := c.pods.Pods(b.Namespace).List(selector)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		c.events.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	want, err := c.expected(ctx, b, pods)
	if err != nil {
		c.events.Eventf(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return err
	}
	if want.unmanaged {
		c.events.Eventf(b, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged. "+
			"As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", b.Spec.Selector)
	}
	now := c.env.Clock().Now()
	going, again := c.going(b, pods, now)
	st := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, Conditions: b.Status.Conditions,
		DesiredHealthy: want.healthy, ExpectedPods: want.pods, DisruptedPods: going}
	for _, p := range pods {
		if _, is := going[p.Name]; p.DeletionTimestamp != nil || is {
			continue
		}
		if _, ready := workload.Ready(p); ready {
			st.CurrentHealthy++
		}
	}
	if st.ExpectedPods > 0 { // a budget without pods must not let the first one go
		st.DisruptionsAllowed = max(0, st.CurrentHealthy-st.DesiredHealthy)
	}
	out := b.DeepCopy()
	st.DeepCopyInto(&out.Status)
	budget.Conclude(out, now)
	if err := c.write(ctx, b, out); err != nil {
		return err
	}
	if again > 0 {
		c.queue.AddAfter(nameOf(b), again)
	}
	return nil
}

// going are the pods that somebody was allowed to evict and that are not being deleted yet; again is when the first of them has had its time.
func (c *Controller) going(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) (out map[string]metav1.Time, again time.Duration) {
	for _, p := range pods {
		since, is := b.Status.DisruptedPods[p.Name]
		if !is || p.DeletionTimestamp != nil {
			continue
		}
		left := since.Add(budget.Patience).Sub(now)
		if left <= 0 {
			c.events.Eventf(p, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
			continue
		}
		if out == nil {
			out = map[string]metav1.Time{}
		}
		out[p.Name] = since
		if again == 0 || left < again {
			again = left
		}
	}
	return out, again
}

func (c *Controller) write(ctx context.Context, old, b *policyv1.PodDisruptionBudget) error {
	if equality.Semantic.DeepEqual(old.Status, b.Status) {
		return nil
	}
	if _, err := c.env.Client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, b, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("budget %s: write status: %w", nameOf(b), err)
	}
	return nil
}
