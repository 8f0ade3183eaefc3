// Package daemonset keeps one pod of a DaemonSet on each node that it is for. A pod is made for its node by
// an affinity to the node's name, and the scheduler binds it there, as upstream's does.
//
// Promises. A round acts only on a cache that shows what earlier rounds wrote. An update replaces at most
// maxUnavailable pods at a time; maxSurge is not used: the old pod goes before the new one comes.
package daemonset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/workload"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "daemonset"

const workers = 2

var (
	kind         = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	pointCreated = lab.Point{Component: "controllers", Name: "after one pod of a daemon set is created, before the next"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointCreated} }

// Controller keeps pods. Make it with New.
type Controller struct {
	env     control.Env
	events  record.EventRecorder
	sets    appslisters.DaemonSetLister
	nodes   corelisters.NodeLister
	pods    cache.Indexer
	history workload.History
	pending workload.Pending
	queue   control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core, apps := env.Informers.Core().V1(), env.Informers.Apps().V1()
	c := &Controller{
		env:     env,
		events:  env.Recorder("daemonset-controller"),
		sets:    apps.DaemonSets().Lister(),
		nodes:   core.Nodes().Lister(),
		pods:    core.Pods().Informer().GetIndexer(),
		history: workload.History{Client: env.Client, Lister: apps.ControllerRevisions().Lister()},
		pending: workload.Pending{Clock: clock.RealClock{}},
		queue:   control.NewQueue[types.NamespacedName](env),
	}
	workload.IndexPods(core.Pods().Informer())
	control.Register(apps.DaemonSets().Informer(), control.On[*appsv1.DaemonSet]{Any: func(s *appsv1.DaemonSet) { c.queue.Add(nameOf(s)) }})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{Update: func(old, _ *corev1.Pod) { c.podSeen(old) }, Delete: c.podGone, Any: c.podSeen})
	control.Register(apps.ControllerRevisions().Informer(), control.On[*appsv1.ControllerRevision]{Any: c.revisionSeen})
	control.Register(core.Nodes().Informer(), control.On[*corev1.Node]{
		Add: func(*corev1.Node) { c.all() }, Delete: func(*corev1.Node) { c.all() },
		Update: func(old, n *corev1.Node) {
			if old.Spec.Unschedulable != n.Spec.Unschedulable || !slices.Equal(old.Spec.Taints, n.Spec.Taints) || labels.FormatLabels(old.Labels) != labels.FormatLabels(n.Labels) {
				c.all()
			}
		},
	})
	return c
}

// Run keeps pods until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (c *Controller) all() {
	sets, err := c.sets.List(labels.Everything())
	if err != nil {
		return
	}
	for _, s := range sets {
		c.queue.Add(nameOf(s))
	}
}

// podSeen looks at the set of a pod, or at those that could adopt it.
func (c *Controller) podSeen(p *corev1.Pod) {
	if ref := metav1.GetControllerOf(p); ref != nil {
		if ref.Kind == kind.Kind {
			key := types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}
			c.pending.Shown(key, p)
			c.queue.Add(key)
		}
		return
	}
	if sets, err := c.sets.GetPodDaemonSets(p); err == nil {
		for _, s := range sets {
			c.queue.Add(nameOf(s))
		}
	}
}

// podGone is called before podSeen.
func (c *Controller) podGone(p *corev1.Pod) {
	if ref := metav1.GetControllerOf(p); ref != nil {
		c.pending.Gone(types.NamespacedName{Namespace: p.Namespace, Name: ref.Name}, p.UID)
	}
}

// revisionSeen looks at the set of a revision: a round may have gone by revisions that were others by then.
func (c *Controller) revisionSeen(r *appsv1.ControllerRevision) {
	if ref := metav1.GetControllerOf(r); ref != nil && ref.Kind == kind.Kind {
		c.queue.Add(types.NamespacedName{Namespace: r.Namespace, Name: ref.Name})
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	if wait, any := c.pending.Any(key); any {
		c.queue.AddAfter(key, wait)
		return nil
	}
	s, err := c.sets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil || selector.Empty() {
		return nil // the API lets no such set in
	}
	r := &round{c: c, s: s.DeepCopy(), owner: workload.Owner{Object: s, Kind: kind, Selector: selector}, byNode: map[string][]*corev1.Pod{}}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("daemon set %s: %w", key, err)
	}
	return nil
}

func (r *round) run(ctx context.Context) error {
	pods, err := r.owner.Claim(ctx, r.c.env.Client, r.c.pods)
	if err != nil {
		return err
	}
	collisions := ptr.Deref(r.s.Status.CollisionCount, 0)
	revisions, err := r.c.history.Sync(ctx, r.owner, &r.s.Spec.Template, r.s.Spec.Selector.MatchLabels, &collisions)
	r.collisions = collisions
	if err != nil {
		return err
	}
	newest := revisions[len(revisions)-1]
	r.hash = newest.Labels[appsv1.ControllerRevisionHashLabelKey]
	live := map[string]bool{newest.Name: true}
	for _, p := range pods {
		r.byNode[nodeOf(p)] = append(r.byNode[nodeOf(p)], p)
		live[r.s.Name+"-"+p.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	nodes, err := r.c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var acted error
	if r.s.DeletionTimestamp == nil {
		if acted = r.place(ctx, nodes); acted == nil {
			acted = r.roll(ctx, nodes)
		}
	}
	if err := r.writeStatus(ctx, nodes); err != nil && acted == nil {
		acted = err
	}
	if acted != nil {
		return acted
	}
	return r.c.history.Truncate(ctx, revisions, int(ptr.Deref(r.s.Spec.RevisionHistoryLimit, 10)), live)
}
