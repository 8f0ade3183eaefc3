// Package ephemeral creates the claims of generic ephemeral volumes: one for each
// such volume of a pod, named POD-VOLUME, owned by the pod, so that it goes with it.
//
// Promises. A claim of that name that belongs to somebody else is never used nor
// changed; the pod gets an event and waits until it is gone. A pod that is being
// deleted gets no claims any more.
package ephemeral

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "ephemeral"

const workers = 2

var pointCreated = lab.Point{Component: "controllers", Name: "after one ephemeral claim of a pod is created, before the next"}

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointCreated} }

// Controller creates claims. Make it with New.
type Controller struct {
	env    control.Env
	client kubernetes.Interface
	events record.EventRecorder
	pods   corelisters.PodLister
	index  cache.Indexer
	claims corelisters.PersistentVolumeClaimLister
	queue  control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:    env,
		client: env.Client,
		events: env.Recorder("ephemeral_volume"),
		pods:   core.Pods().Lister(),
		index:  core.Pods().Informer().GetIndexer(),
		claims: core.PersistentVolumeClaims().Lister(),
		queue:  control.NewQueue[types.NamespacedName](env),
	}
	control.IndexPods(core.Pods().Informer())
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: c.podSeen,
		Update: func(old, pod *corev1.Pod) {
			if old.UID != pod.UID {
				c.podSeen(pod)
			}
		},
	})
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		// A foreign claim that was in the way may have gone.
		Delete: func(claim *corev1.PersistentVolumeClaim) {
			for _, pod := range control.Pods(c.index, control.PodsByClaim, control.Key(claim.Namespace, claim.Name)) {
				c.podSeen(pod)
			}
		},
	})
	return c
}

// Run creates claims until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func (c *Controller) podSeen(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			c.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
			return
		}
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil {
			continue
		}
		if err := c.ensure(ctx, pod, v); err != nil {
			c.events.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
			return fmt.Errorf("pod %s, ephemeral volume %s: %w", key, v.Name, err)
		}
	}
	return nil
}

// ensure creates the claim of one volume unless it is there.
func (c *Controller) ensure(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	name := ephemeral.VolumeClaimName(pod, v)
	have, err := c.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
	if err == nil {
		return ephemeral.VolumeIsForPod(pod, have)
	}
	template := v.Ephemeral.VolumeClaimTemplate
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	}
	_, err = c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Ours from before a restart, or a foreign one that the watch has not shown yet.
		have, err = c.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return ephemeral.VolumeIsForPod(pod, have)
		}
	}
	if err != nil {
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	c.env.Point(pointCreated, name)
	return nil
}
