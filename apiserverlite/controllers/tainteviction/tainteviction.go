// Package tainteviction deletes the pods on a node whose NoExecute taints they do not
// tolerate, or not for longer: after the smallest tolerationSeconds of the tolerations
// that match, counted from when the taint was added. The deletion is an ordinary one:
// on a node without a kubelet the pod stays Terminating.
package tainteviction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// Name of this controller, as in controllers.Config.Without.
const Name = "tainteviction"

// Controller evicts. Make it with New.
type Controller struct {
	env    control.Env
	events record.EventRecorder
	index  cache.Indexer
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	queue  control.Queue[types.NamespacedName]
}

// New registers the controller's handlers.
func New(env control.Env) *Controller {
	env = env.For(Name)
	core := env.Informers.Core().V1()
	c := &Controller{
		env:    env,
		events: env.Recorder("taint-eviction-controller"),
		index:  core.Pods().Informer().GetIndexer(),
		pods:   core.Pods().Lister(),
		nodes:  core.Nodes().Lister(),
		queue:  control.NewQueue[types.NamespacedName](env),
	}
	control.IndexPods(core.Pods().Informer())
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Add: c.podSeen,
		Update: func(old, pod *corev1.Pod) {
			if old.Spec.NodeName != pod.Spec.NodeName || old.UID != pod.UID || !equality.Semantic.DeepEqual(old.Spec.Tolerations, pod.Spec.Tolerations) {
				c.podSeen(pod)
			}
		},
	})
	control.Register(core.Nodes().Informer(), control.On[*corev1.Node]{
		Add: c.nodeSeen,
		Update: func(old, n *corev1.Node) {
			if len(noExecute(old)) != 0 || len(noExecute(n)) != 0 {
				c.nodeSeen(n)
			}
		},
	})
	return c
}

// Run evicts until ctx ends.
func (c *Controller) Run(ctx context.Context) { control.Work(ctx, c.env, 1, c.queue, c.sync) }

func (c *Controller) podSeen(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
		c.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (c *Controller) nodeSeen(n *corev1.Node) {
	if len(noExecute(n)) == 0 {
		return // a pod whose time comes finds out by itself
	}
	for _, pod := range control.Pods(c.index, control.PodsByNode, n.Name) {
		c.podSeen(pod)
	}
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var list []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			list = append(list, t)
		}
	}
	return list
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		return nil
	}
	node, err := c.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return nil
	}
	due, evict := dueTime(pod, noExecute(node))
	if !evict {
		return nil
	}
	if left := due.Sub(c.env.Clock().Now()); left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	c.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s", key)
	err = c.env.Client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("evict pod %s from %s: %w", key, node.Name, err)
	}
	return nil
}

// dueTime is when a pod has to leave a node with these taints, if ever.
func dueTime(pod *corev1.Pod, taints []corev1.Taint) (due time.Time, evict bool) {
	for i := range taints {
		t := &taints[i]
		var added time.Time
		if t.TimeAdded != nil {
			added = t.TimeAdded.Time
		}
		tolerated := false
		limit := time.Duration(-1) // for ever
		for j := range pod.Spec.Tolerations {
			tol := &pod.Spec.Tolerations[j]
			if !tol.ToleratesTaint(klog.Background(), t, true) {
				continue
			}
			tolerated = true
			if s := tol.TolerationSeconds; s != nil {
				if d := time.Duration(max(0, *s)) * time.Second; limit < 0 || d < limit {
					limit = d
				}
			}
		}
		switch {
		case !tolerated:
			return time.Time{}, true
		case limit >= 0:
			if at := added.Add(limit); !evict || at.Before(due) {
				due, evict = at, true
			}
		}
	}
	return due, evict
}
