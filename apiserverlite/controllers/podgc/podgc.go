// Package podgc deletes, by force, pods that nobody else can end: on a node that no
// longer exists; terminating without ever having had a node; and terminating on a node
// that is not ready and tainted out-of-service.
//
// A vanished node is waited for 40 seconds, and asked for live, before its pods go:
// a kubelet may be about to register again.
package podgc

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "podgc"

const (
	quarantine = 40 * time.Second
	workers    = 2
)

var pointFailed = lab.Point{Component: "controllers", Name: "after a lost pod is marked Failed, before it is deleted"}

// Points lists the kill points of this package.
func Points() []lab.Point { return []lab.Point{pointFailed} }

// Controller collects pods. Make it with New.
type Controller struct {
	env   control.Env
	pods  cache.Indexer
	byKey corelisters.PodLister
	nodes corelisters.NodeLister
	queue control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:   env,
		pods:  core.Pods().Informer().GetIndexer(),
		byKey: core.Pods().Lister(),
		nodes: core.Nodes().Lister(),
		queue: control.NewQueue[types.NamespacedName](env),
	}
	control.IndexPods(core.Pods().Informer())
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: func(pod *corev1.Pod) { c.podSeen(nil, pod) }, Update: c.podSeen,
	})
	control.Register(core.Nodes().Informer(), control.On[*corev1.Node]{
		Update: func(_, n *corev1.Node) {
			if outOfService(n) {
				c.nodeChanged(n, 0)
			}
		},
		Delete: func(n *corev1.Node) { c.nodeChanged(n, quarantine) },
	})
	return c
}

// Run collects until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, workers, c.queue, c.sync) }

func (c *Controller) nodeChanged(n *corev1.Node, after time.Duration) {
	for _, pod := range control.Pods(c.pods, control.PodsByNode, n.Name) {
		c.queue.AddAfter(nameOf(pod), after)
	}
}

// podSeen looks at a pod when its node or its end is news.
func (c *Controller) podSeen(old, pod *corev1.Pod) {
	if old != nil && old.UID == pod.UID && old.Spec.NodeName == pod.Spec.NodeName && (old.DeletionTimestamp == nil) == (pod.DeletionTimestamp == nil) {
		return
	}
	if pod.DeletionTimestamp != nil {
		c.queue.Add(nameOf(pod))
	}
	if pod.Spec.NodeName == "" {
		return
	}
	if _, err := c.nodes.Get(pod.Spec.NodeName); err != nil {
		c.queue.AddAfter(nameOf(pod), quarantine)
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// outOfService tells whether somebody has declared a dead node dead.
func outOfService(n *corev1.Node) bool {
	return !control.IsReady(n) && control.HasTaint(n, corev1.TaintNodeOutOfService)
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	pod, err := c.byKey.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		if pod.DeletionTimestamp == nil {
			return nil
		}
		return c.collect(ctx, pod, nil)
	}
	node, err := c.nodes.Get(pod.Spec.NodeName)
	switch {
	case err == nil && pod.DeletionTimestamp != nil && outOfService(node):
		return c.collect(ctx, pod, nil)
	case apierrors.IsNotFound(err):
		return c.orphan(ctx, pod)
	}
	return nil
}

// orphan collects a pod whose node has been missing for the quarantine.
func (c *Controller) orphan(ctx context.Context, pod *corev1.Pod) error {
	if since := c.env.Clock().Since(pod.CreationTimestamp.Time); since < quarantine {
		c.queue.AddAfter(nameOf(pod), quarantine-since)
		return nil
	}
	_, err := c.env.Client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for node %s of pod %s: %w", pod.Spec.NodeName, nameOf(pod), err)
	}
	return c.collect(ctx, pod, &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		LastTransitionTime: metav1.NewTime(c.env.Clock().Now()),
	})
}

// collect marks a pod Failed, as no kubelet will, and deletes it at once.
func (c *Controller) collect(ctx context.Context, pod *corev1.Pod, why *corev1.PodCondition) error {
	pods := c.env.Client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		status := map[string]any{"phase": corev1.PodFailed}
		if why != nil {
			status["conditions"] = []corev1.PodCondition{*why}
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		if err != nil {
			return err
		}
		if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("mark lost pod %s as failed: %w", nameOf(pod), err)
		}
		c.env.Point(pointFailed, "")
	}
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete lost pod %s: %w", nameOf(pod), err)
	}
	return nil
}
