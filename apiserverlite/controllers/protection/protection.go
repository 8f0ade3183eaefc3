// Package protection keeps claims, volumes and attributes classes from going while
// they are used, by finalizers: kubernetes.io/pvc-protection, pv-protection and
// vac-protection.
//
// Promises. Each object has its finalizer; admission sets it, and an object that came
// without gets it here. It is taken off only when the object is being deleted and
// nothing uses it. A claim is used by every pod that has a node and names it, ended
// or not, and this is asked of the API itself before the finalizer goes, because a
// cache may not have seen the newest pod. A volume is used while it is Bound.
package protection

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "protection"

// The finalizers.
const (
	ClaimFinalizer  = "kubernetes.io/pvc-protection"
	VolumeFinalizer = "kubernetes.io/pv-protection"
	ClassFinalizer  = "kubernetes.io/vac-protection"
)

const workers = 2

var pointUnused = lab.Point{Component: "controllers", Name: "after an object was found unused, before its protection finalizer goes"}

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointUnused} }

// Controller protects. Make it with New.
type Controller struct {
	env     control.Env
	guards  []*guard
	claims  *claims
	volumes *volumes
	classes *classes
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	c := &Controller{env: env}
	c.claims = newClaims(env)
	c.volumes = newVolumes(env)
	c.classes = newClasses(env)
	c.guards = []*guard{c.claims.guard, c.volumes.guard, c.classes.guard}
	return c
}

// Run protects until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range c.guards {
		wg.Go(func() {
			control.Work(ctx, c.env, workers, g.queue, g.sync)
		})
	}
	wg.Wait()
}

// guard watches over the objects of one kind.
type guard struct {
	env       control.Env
	finalizer string
	queue     control.Queue[types.NamespacedName]
	get       func(types.NamespacedName) (metav1.Object, error)
	// inUse asks the caches and, when they say no, the API.
	inUse func(context.Context, metav1.Object) (bool, error)
	// patch applies a JSON merge patch.
	patch func(ctx context.Context, key types.NamespacedName, body []byte) error
}

// needed tells whether there is something to do for an object.
func (g *guard) needed(o metav1.Object) bool {
	has := slices.Contains(o.GetFinalizers(), g.finalizer)
	return has == (o.GetDeletionTimestamp() != nil)
}

func (g *guard) seen(o metav1.Object) {
	if g.needed(o) {
		g.queue.Add(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	}
}

func (g *guard) sync(ctx context.Context, key types.NamespacedName) error {
	o, err := g.get(key)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !g.needed(o) {
		return nil
	}
	finalizers := slices.Clone(o.GetFinalizers())
	if o.GetDeletionTimestamp() == nil {
		finalizers = append(finalizers, g.finalizer)
	} else {
		used, err := g.inUse(ctx, o)
		if used || err != nil {
			return err // the end of the use is an event
		}
		g.env.Point(pointUnused, o.GetName())
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == g.finalizer })
	}
	// Under the resourceVersion that was looked at: nobody else's finalizer is lost.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": finalizers, "resourceVersion": o.GetResourceVersion(), "uid": o.GetUID()}})
	if err != nil {
		return err
	}
	if err := g.patch(ctx, key, body); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write finalizer %s of %s: %w", g.finalizer, key, err)
	}
	return nil
}
