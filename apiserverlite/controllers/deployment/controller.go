// Package deployment moves a Deployment's pods from the replica set of one template to that of the next.
//
//	template new -> a replica set of its own -> scaled up as far as maxSurge lets, the others down as far as
//	maxUnavailable lets -> all available -> old sets stay at 0, as many as revisionHistoryLimit says
//
// Recreate scales the old sets to 0 first and waits until their pods are gone. A paused deployment is scaled, and its sets follow its
// annotations, but it does not move; one that is scaled while it moves keeps the shares of its sets. As upstream, pods that are still
// ending count for nobody: with them there may be more than maxSurge lets. Orphaned sets that match are adopted.
package deployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "deployment"

const (
	workers            = 2
	revisionAnnotation = "deployment.kubernetes.io/revision"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

var (
	kind        = appsv1.SchemeGroupVersion.WithKind("Deployment")
	pointMade   = lab.Point{Component: "controllers", Name: "after a deployment's new replica set is created, before the old ones shrink"}
	pointScaled = lab.Point{Component: "controllers", Name: "after one replica set of a deployment is scaled, before the next"}
)

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointMade, pointScaled} }

// Controller moves deployments. Make it with New.
type Controller struct {
	env         control.Env
	events      record.EventRecorder
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	queue       control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	apps := env.Informers.Apps().V1()
	c := &Controller{
		env:         env,
		events:      env.Recorder("deployment-controller"),
		deployments: apps.Deployments().Lister(),
		sets:        apps.ReplicaSets().Lister(),
		queue:       control.NewQueue[types.NamespacedName](env),
	}
	control.Register(apps.Deployments().Informer(), control.On[*appsv1.Deployment]{Any: func(d *appsv1.Deployment) { c.queue.Add(nameOf(d)) }})
	control.Register(apps.ReplicaSets().Informer(), control.On[*appsv1.ReplicaSet]{Any: func(s *appsv1.ReplicaSet) {
		if ref := metav1.GetControllerOf(s); ref == nil {
			c.orphanSeen(s)
		} else if ref.Kind == kind.Kind {
			c.queue.Add(types.NamespacedName{Namespace: s.Namespace, Name: ref.Name})
		}
	}})
	return c
}

// Run moves deployments until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	cached, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	all, err := c.sets.ReplicaSets(key.Namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	r := &round{c: c, d: cached.DeepCopy()}
	if r.old, err = r.claim(ctx, all); err != nil {
		return fmt.Errorf("deployment %s: %w", key, err)
	}
	slices.SortFunc(r.old, func(a, b *appsv1.ReplicaSet) int { return int(revision(a) - revision(b)) })
	if i := ofTemplate(r.old, &r.d.Spec.Template); i >= 0 {
		r.next = r.old[i]
		r.old = slices.Delete(r.old, i, i+1)
	}
	var acted error
	if r.d.DeletionTimestamp == nil {
		acted = r.run(ctx)
	}
	if err := r.writeStatus(ctx); err != nil && acted == nil {
		acted = err
	}
	if acted != nil {
		return fmt.Errorf("deployment %s: %w", key, acted)
	}
	return nil
}

// ofTemplate is the place of the set that has a template, or -1. Of several the one that was made first is meant, whatever their revisions:
// whoever made another set of the same template must not take the deployment over.
func ofTemplate(sets []*appsv1.ReplicaSet, template *corev1.PodTemplateSpec) int {
	found := -1
	for i, s := range sets {
		if !sameTemplate(&s.Spec.Template, template) {
			continue
		}
		if found < 0 || before(s, sets[found]) {
			found = i
		}
	}
	return found
}

func before(a, b *appsv1.ReplicaSet) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

func revision(s metav1.Object) int64 {
	n, _ := strconv.ParseInt(s.GetAnnotations()[revisionAnnotation], 10, 64)
	return n
}

func (r *round) say(kind, reason, format string, args ...any) {
	r.c.events.Eventf(r.d, kind, reason, format, args...)
}

// sizes are the annotations by which a set knows by which size of the deployment it was scaled.
func (r *round) sizes() map[string]string {
	return map[string]string{desiredAnnotation: strconv.Itoa(int(*r.d.Spec.Replicas)), maxAnnotation: strconv.Itoa(int(*r.d.Spec.Replicas + r.surge()))}
}

// scale sets a replica set's size.
func (r *round) scale(ctx context.Context, s *appsv1.ReplicaSet, n int32) (*appsv1.ReplicaSet, error) {
	was := size(s)
	want := r.sizes()
	if was == n && s.Annotations[desiredAnnotation] == want[desiredAnnotation] && s.Annotations[maxAnnotation] == want[maxAnnotation] {
		return s, nil
	}
	s = s.DeepCopy()
	s.Spec.Replicas = &n
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	for k, v := range want {
		s.Annotations[k] = v
	}
	out, err := r.c.env.Client.AppsV1().ReplicaSets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("scale replica set %s: %w", s.Name, err)
	}
	if was != n {
		way := "up"
		if n < was {
			way = "down"
		}
		r.say(corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", way, s.Name, was, n)
		r.c.env.Point(pointScaled, s.Name)
	}
	return out, nil
}
