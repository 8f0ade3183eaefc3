package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// source is where a controller's sets are: replica sets as such, or replication controllers, which are replica sets in an older form.
type source struct {
	name    string // of the controller
	reports string // the source of events
	kind    schema.GroupVersionKind
	created lab.Point
	// terminating tells that the status says how many pods are going.
	terminating bool
	get         func(types.NamespacedName) (*appsv1.ReplicaSet, error)
	// of returns the sets that select a pod.
	of          func(*corev1.Pod) []*appsv1.ReplicaSet
	writeStatus func(context.Context, *appsv1.ReplicaSet) error
	// object is a set in its own form, for events.
	object func(*appsv1.ReplicaSet) runtime.Object
	// watch calls f for every set that comes, changes or goes.
	watch func(f func(metav1.Object))
}

func replicaSets(env control.Env) source {
	sets := env.Informers.Apps().V1().ReplicaSets()
	return source{
		name: Name, reports: "replicaset-controller", kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), created: pointCreated, terminating: true,
		get: func(n types.NamespacedName) (*appsv1.ReplicaSet, error) {
			return sets.Lister().ReplicaSets(n.Namespace).Get(n.Name)
		},
		of: func(p *corev1.Pod) []*appsv1.ReplicaSet {
			list, _ := sets.Lister().GetPodReplicaSets(p) // an error says that there are none
			return list
		},
		writeStatus: func(ctx context.Context, s *appsv1.ReplicaSet) error {
			_, err := env.Client.AppsV1().ReplicaSets(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
			return err
		},
		object: func(s *appsv1.ReplicaSet) runtime.Object { return s },
		watch: func(f func(metav1.Object)) {
			control.Register(sets.Informer(), control.On[*appsv1.ReplicaSet]{Any: func(s *appsv1.ReplicaSet) { f(s) }})
		},
	}
}

func replicationControllers(env control.Env) source {
	sets := env.Informers.Core().V1().ReplicationControllers()
	return source{
		name: NameOfControllers, reports: "replication-controller", kind: corev1.SchemeGroupVersion.WithKind("ReplicationController"), created: pointCreatedByController,
		get: func(n types.NamespacedName) (*appsv1.ReplicaSet, error) {
			c, err := sets.Lister().ReplicationControllers(n.Namespace).Get(n.Name)
			if err != nil {
				return nil, err
			}
			return asSet(c), nil
		},
		of: func(p *corev1.Pod) []*appsv1.ReplicaSet {
			list, _ := sets.Lister().GetPodControllers(p) // an error says that there are none
			var out []*appsv1.ReplicaSet
			for _, c := range list {
				out = append(out, asSet(c))
			}
			return out
		},
		writeStatus: func(ctx context.Context, s *appsv1.ReplicaSet) error {
			_, err := env.Client.CoreV1().ReplicationControllers(s.Namespace).UpdateStatus(ctx, asController(s), metav1.UpdateOptions{})
			return err
		},
		object: func(s *appsv1.ReplicaSet) runtime.Object { return asController(s) },
		watch: func(f func(metav1.Object)) {
			control.Register(sets.Informer(), control.On[*corev1.ReplicationController]{Any: func(c *corev1.ReplicationController) { f(c) }})
		},
	}
}

// asSet is a replication controller as a replica set. The two share memory.
func asSet(c *corev1.ReplicationController) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{
		ObjectMeta: c.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{Replicas: c.Spec.Replicas, MinReadySeconds: c.Spec.MinReadySeconds,
			Selector: metav1.SetAsLabelSelector(c.Spec.Selector), Template: ptr.Deref(c.Spec.Template, corev1.PodTemplateSpec{})},
		Status: appsv1.ReplicaSetStatus{Replicas: c.Status.Replicas, FullyLabeledReplicas: c.Status.FullyLabeledReplicas, ReadyReplicas: c.Status.ReadyReplicas,
			AvailableReplicas: c.Status.AvailableReplicas, ObservedGeneration: c.Status.ObservedGeneration},
	}
	for _, x := range c.Status.Conditions {
		s.Status.Conditions = append(s.Status.Conditions, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(x.Type), Status: x.Status,
			LastTransitionTime: x.LastTransitionTime, Reason: x.Reason, Message: x.Message})
	}
	return s
}

// asController is the way back.
func asController(s *appsv1.ReplicaSet) *corev1.ReplicationController {
	c := &corev1.ReplicationController{
		ObjectMeta: s.ObjectMeta,
		Spec:       corev1.ReplicationControllerSpec{Replicas: s.Spec.Replicas, MinReadySeconds: s.Spec.MinReadySeconds, Template: &s.Spec.Template},
		Status: corev1.ReplicationControllerStatus{Replicas: s.Status.Replicas, FullyLabeledReplicas: s.Status.FullyLabeledReplicas, ReadyReplicas: s.Status.ReadyReplicas,
			AvailableReplicas: s.Status.AvailableReplicas, ObservedGeneration: s.Status.ObservedGeneration},
	}
	if s.Spec.Selector != nil {
		c.Spec.Selector = s.Spec.Selector.MatchLabels
	}
	for _, x := range s.Status.Conditions {
		c.Status.Conditions = append(c.Status.Conditions, corev1.ReplicationControllerCondition{Type: corev1.ReplicationControllerConditionType(x.Type), Status: x.Status,
			LastTransitionTime: x.LastTransitionTime, Reason: x.Reason, Message: x.Message})
	}
	return c
}
