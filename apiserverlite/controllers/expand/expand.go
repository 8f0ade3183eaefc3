// Package expand says who expands a claim: for CSI volumes the external resizer
// does, and this controller, as upstream's, only tells the user so by an event.
package expand

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "expand"

// Controller tells of expansions. Make it with New.
type Controller struct {
	env     control.Env
	events  record.EventRecorder
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	queue   control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:     env,
		events:  env.Recorder("volume_expand"),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		queue:   control.NewQueue[types.NamespacedName](env),
	}
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Update: func(old, claim *corev1.PersistentVolumeClaim) {
			was, now := old.Spec.Resources.Requests[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
			if was.Cmp(now) < 0 {
				c.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
			}
		},
	})
	return c
}

// Run tells of expansions until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, 1, c.queue, c.sync) }

func (c *Controller) sync(_ context.Context, key types.NamespacedName) error {
	claim, err := c.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil || claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	want, have := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(have) <= 0 {
		return nil
	}
	v, err := c.volumes.Get(claim.Spec.VolumeName)
	if err != nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	c.events.Event(claim, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
	return nil
}
