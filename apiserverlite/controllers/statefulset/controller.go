// Package statefulset keeps the pods and claims of StatefulSets: NAME-0, NAME-1 and so on, each with its own
// claims, which outlive it.
//
//	create 0 -> available -> create 1 -> ...          (OrderedReady; Parallel does not wait)
//	scale down: the highest first, each gone before the next goes
//	new template: the highest first, each available before the next goes (RollingUpdate; OnDelete waits for the user)
//
// Promises, as upstream's. No two pods of one identity exist at a time: a pod is made again only after the
// API has forgotten the last one. Claims are never deleted here: the retention policy decides who owns them, and
// the garbage collector follows.
package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/workload"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "statefulset"

const workers = 2

var (
	kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

	pointClaimed = lab.Point{Component: "controllers", Name: "after a stateful set's claim is created, before its pod"}
	pointCreated = lab.Point{Component: "controllers", Name: "after a stateful set's pod is created, before its status"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointClaimed, pointCreated} }

// Controller keeps pods. Make it with New.
type Controller struct {
	env     control.Env
	events  record.EventRecorder
	sets    appslisters.StatefulSetLister
	pods    cache.Indexer
	claims  corelisters.PersistentVolumeClaimLister
	history workload.History
	queue   control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core, apps := env.Informers.Core().V1(), env.Informers.Apps().V1()
	c := &Controller{
		env:     env,
		events:  env.Recorder("statefulset-controller"),
		sets:    apps.StatefulSets().Lister(),
		pods:    core.Pods().Informer().GetIndexer(),
		claims:  core.PersistentVolumeClaims().Lister(),
		history: workload.History{Client: env.Client, Lister: apps.ControllerRevisions().Lister()},
		queue:   control.NewQueue[types.NamespacedName](env),
	}
	workload.IndexPods(core.Pods().Informer())
	control.Register(apps.StatefulSets().Informer(), control.On[*appsv1.StatefulSet]{Any: func(s *appsv1.StatefulSet) { c.queue.Add(nameOf(s)) }})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{Update: func(old, _ *corev1.Pod) { c.podSeen(old) }, Any: c.podSeen})
	control.Register(apps.ControllerRevisions().Informer(), control.On[*appsv1.ControllerRevision]{Any: c.revisionSeen})
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Update: func(old, claim *corev1.PersistentVolumeClaim) {
			if old.UID != claim.UID || (old.DeletionTimestamp == nil) != (claim.DeletionTimestamp == nil) || !equality.Semantic.DeepEqual(old.OwnerReferences, claim.OwnerReferences) {
				c.claimSeen(claim)
			}
		},
		Delete: c.claimSeen,
	})
	return c
}

// Run keeps pods until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// podSeen looks at the set of a pod, or at those that could adopt it.
func (c *Controller) podSeen(p *corev1.Pod) {
	if ref := metav1.GetControllerOf(p); ref != nil && ref.Kind == kind.Kind {
		c.queue.Add(types.NamespacedName{Namespace: p.Namespace, Name: ref.Name})
		return
	} else if ref != nil {
		c.inTheWay(p)
		return
	}
	if sets, err := c.sets.GetPodStatefulSets(p); err == nil {
		for _, s := range sets {
			c.queue.Add(nameOf(s))
		}
	}
	c.inTheWay(p)
}

// revisionSeen looks at the set of a revision: a round may have gone by revisions that were others by then.
func (c *Controller) revisionSeen(r *appsv1.ControllerRevision) {
	if ref := metav1.GetControllerOf(r); ref != nil && ref.Kind == kind.Kind {
		c.queue.Add(types.NamespacedName{Namespace: r.Namespace, Name: ref.Name})
	}
}

// claimSeen looks at the sets that make claims of that name.
func (c *Controller) claimSeen(claim *corev1.PersistentVolumeClaim) {
	m := numbered.FindStringSubmatch(claim.Name)
	if m == nil {
		return
	}
	sets, err := c.sets.StatefulSets(claim.Namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, s := range sets {
		if slices.ContainsFunc(s.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool { return t.Name+"-"+s.Name == m[1] }) {
			c.queue.Add(nameOf(s))
		}
	}
}

// inTheWay looks at the set whose pod cannot be made while this one, which is not the set's, has its name.
func (c *Controller) inTheWay(p *corev1.Pod) {
	if m := numbered.FindStringSubmatch(p.Name); m != nil {
		if s, err := c.sets.StatefulSets(p.Namespace).Get(m[1]); err == nil {
			c.queue.Add(nameOf(s))
		}
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	cached, err := c.sets.StatefulSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	s := cached.DeepCopy()
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil || selector.Empty() {
		return nil // the API lets no such set in
	}
	owner := workload.Owner{Object: s, Kind: kind, Selector: selector}
	pods, err := owner.Claim(ctx, c.env.Client, c.pods)
	if err != nil {
		return fmt.Errorf("stateful set %s: %w", key, err)
	}
	r := &round{c: c, set: s, owner: owner, status: *s.Status.DeepCopy(), collisions: ptr.Deref(s.Status.CollisionCount, 0)}
	err = r.run(ctx, pods)
	if serr := r.writeStatus(ctx); err == nil {
		err = serr
	}
	if err != nil {
		return fmt.Errorf("stateful set %s: %w", key, err)
	}
	if r.again > 0 {
		c.queue.AddAfter(key, r.again)
	}
	return nil
}
