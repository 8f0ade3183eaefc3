package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// status is what the pod's status should say now.
func (w *worker) status(pod *v1.Pod) *v1.PodStatus {
	c := &w.runtime
	now := metav1.NewTime(w.clock.Now())
	s := &v1.PodStatus{Phase: v1.PodPending, QOSClass: pod.Status.QOSClass, ObservedGeneration: pod.Generation, StartTime: pod.Status.StartTime}
	if w.written != nil && w.written.StartTime != nil {
		s.StartTime = w.written.StartTime
	}
	if s.StartTime == nil {
		s.StartTime = &now
	}
	if c.rejected {
		s.Phase, s.Reason, s.Message = v1.PodFailed, c.reason, "Pod was rejected: "+c.message
		return s
	}
	s.HostIP = w.ips.node()
	s.HostIPs = []v1.HostIP{{IP: s.HostIP}}
	s.InitContainerStatuses = c.inits.statuses(pod, c.boot, c.held, c.state == stopped || c.over(pod), now.Time)
	s.ContainerStatuses = c.statuses(pod)
	s.EphemeralContainerStatuses = c.beside.statuses(pod, c.held)
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		c.users.put(pod, list, func() []int64 { return w.volumes.Groups(pod) })
	}
	s.Phase = c.phase(pod)
	if c.expired {
		s.Phase, s.Reason, s.Message = v1.PodFailed, reasonDeadline, textDeadline
	}
	if !c.started.IsZero() {
		s.PodIP = w.ips.pod(w.uid, pod.Status.PodIP)
		if pod.Spec.HostNetwork {
			s.PodIP = s.HostIP
		}
		s.PodIPs = []v1.PodIP{{IP: s.PodIP}}
	}
	s.Conditions = w.conditions(pod, s, now)
	return s
}

// phase of the pod, from what its containers do.
func (c *containers) phase(pod *v1.Pod) v1.PodPhase {
	switch {
	case c.state == waiting:
		return v1.PodPending
	case c.state == running, c.state == ended && !c.over(pod):
		return v1.PodRunning
	case c.state == stopped && c.started.IsZero():
		return v1.PodFailed
	case c.exit == 0:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// tell writes the status once. What fails is tried again with the next sync.
func (w *worker) tell(ctx context.Context, pod *v1.Pod) bool {
	err := w.write(ctx, pod)
	if err != nil && ctx.Err() == nil {
		w.log.Warn().Err(err).Msg("write pod status")
	}
	return err == nil
}

// tellAside writes the status while the volumes come up. The channel closes when it has been written, or not.
func (w *worker) tellAside(ctx context.Context, pod *v1.Pod) <-chan struct{} {
	done := make(chan struct{})
	if w.told(pod, w.status(pod)) { // as with most syncs
		close(done)
		return done
	}
	w.workers.Go(func() {
		defer close(done)
		w.tell(ctx, pod)
	})
	return done
}

// told tells whether the API has this status already.
func (w *worker) told(pod *v1.Pod, s *v1.PodStatus) bool {
	if w.written != nil {
		return same(w.written, s)
	}
	return same(&pod.Status, s)
}

// write patches the pod's status if it is to change. A pod that is gone or another one needs no status.
func (w *worker) write(ctx context.Context, pod *v1.Pod) error {
	s := w.status(pod)
	if w.told(pod, s) {
		return nil
	}
	b, err := statusPatch(w.uid, s)
	if err != nil {
		return err
	}
	_, err = w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, b, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	w.written = s
	return nil
}

// statusPatch merges s into the status. The addresses are lists that would merge by
// address: a pod that has another one after a reboot would keep both, so they are replaced.
// Conditions merge by type, and what one does not say any more is taken away.
func statusPatch(uid types.UID, s *v1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"podIPs", "hostIPs"} {
		if items, ok := fields[list].([]any); ok {
			fields[list] = append([]any{map[string]any{"$patch": "replace"}}, items...)
		}
	}
	emptied(fields)
	if conditions, ok := fields["conditions"].([]any); ok {
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok {
				emptied(c)
			}
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}

// emptied says of words that are missing that they are gone.
func emptied(fields map[string]any) {
	for _, k := range []string{"reason", "message"} {
		if _, has := fields[k]; !has {
			fields[k] = nil
		}
	}
}

// same compares what the kubelet owns in a status.
func same(a, b *v1.PodStatus) bool {
	return a.Phase == b.Phase && a.Reason == b.Reason && a.PodIP == b.PodIP && a.ObservedGeneration == b.ObservedGeneration &&
		alike(a.StartTime, b.StartTime) &&
		alike(a.ContainerStatuses, b.ContainerStatuses) &&
		alike(a.InitContainerStatuses, b.InitContainerStatuses) &&
		alike(a.EphemeralContainerStatuses, b.EphemeralContainerStatuses) &&
		holds(a.Conditions, b.Conditions)
}

// alike compares by meaning. What this worker made twice is equal to the letter, which is found out with far less work.
func alike[T any](a, b T) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
