package nodesim

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verdict is what a condition says; a reason goes with a condition that is true only where upstream's does.
type verdict struct {
	is              bool
	reason, message string
}

// conditions as the kubelet keeps them; the scheduler's own and those of readiness gates stay.
func (w *worker) conditions(pod *v1.Pod, s *v1.PodStatus, now metav1.Time) []v1.PodCondition {
	up := !w.runtime.started.IsZero()
	sandbox := verdict{is: up}
	switch {
	case s.Phase == v1.PodSucceeded, s.Phase == v1.PodFailed:
		sandbox = verdict{reason: "PodSandboxNotReady", message: "pod sandbox is not ready"}
	case !up:
		sandbox = verdict{reason: "PodSandboxNotReady", message: "no pod sandbox exists"}
	}
	containers := containersReady(pod, s)
	ready := containers
	if ready.is {
		ready = gatesOpen(pod)
	}
	out := make([]v1.PodCondition, 0, 6) // each sync makes them anew
	for _, x := range []struct {
		of v1.PodConditionType
		verdict
	}{
		{v1.PodReadyToStartContainers, sandbox}, {v1.PodInitialized, initialized(pod, s, up)},
		{v1.PodReady, ready}, {v1.ContainersReady, containers}, {v1.PodScheduled, verdict{is: true}},
	} {
		c := v1.PodCondition{Type: x.of, Status: v1.ConditionFalse, Reason: x.reason, Message: x.message, LastTransitionTime: now, ObservedGeneration: pod.Generation}
		if x.is {
			c.Status = v1.ConditionTrue
		}
		out = append(out, c)
	}
	if x, has := w.data.condition(now.Time, pod.Generation); has {
		out = append(out, x)
	}
	have := pod.Status.Conditions
	if w.written != nil {
		have = w.written.Conditions
	}
	for i := range out {
		for _, h := range have {
			if h.Type == out[i].Type && h.Status == out[i].Status {
				out[i].LastTransitionTime = h.LastTransitionTime
			}
		}
	}
	return out
}

// containersReady looks at the sidecars and the ordinary containers.
func containersReady(pod *v1.Pod, s *v1.PodStatus) verdict {
	switch s.Phase {
	case v1.PodSucceeded:
		return verdict{reason: "PodCompleted"}
	case v1.PodFailed:
		return verdict{reason: "PodFailed"}
	}
	var unready []string
	for i := range pod.Spec.InitContainers {
		if x := &pod.Spec.InitContainers[i]; sidecar(x) && !statusOf(s.InitContainerStatuses, x.Name).Ready {
			unready = append(unready, x.Name)
		}
	}
	for i := range pod.Spec.Containers {
		if name := pod.Spec.Containers[i].Name; !statusOf(s.ContainerStatuses, name).Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		return verdict{reason: "ContainersNotReady", message: fmt.Sprintf("containers with unready status: %v", unready)}
	}
	return verdict{is: true}
}

// gatesOpen looks at the conditions that others set and that the pod waits for, once its containers are ready.
func gatesOpen(pod *v1.Pod) verdict {
	var shut []string
	for _, g := range pod.Spec.ReadinessGates {
		switch c := conditionOf(pod, g.ConditionType); {
		case c == nil:
			shut = append(shut, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case c.Status != v1.ConditionTrue:
			shut = append(shut, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, c.Status))
		}
	}
	if len(shut) > 0 {
		return verdict{reason: "ReadinessGatesNotReady", message: strings.Join(shut, ", ")}
	}
	return verdict{is: true}
}

// initialized looks at the init containers. A pod whose ordinary containers ran stays initialized.
func initialized(pod *v1.Pod, s *v1.PodStatus, up bool) verdict {
	if s.Phase == v1.PodSucceeded {
		return verdict{is: true, reason: "PodCompleted"}
	}
	var incomplete []string
	for i := range pod.Spec.InitContainers {
		x := &pod.Spec.InitContainers[i]
		is := statusOf(s.InitContainerStatuses, x.Name)
		done := is.State.Terminated != nil && is.State.Terminated.ExitCode == 0
		if sidecar(x) {
			done = is.Started != nil && *is.Started
		}
		if !done {
			incomplete = append(incomplete, x.Name)
		}
	}
	if up || len(incomplete) == 0 {
		return verdict{is: true}
	}
	return verdict{reason: "ContainersNotInitialized", message: fmt.Sprintf("containers with incomplete status: %v", incomplete)}
}

func statusOf(list []v1.ContainerStatus, name string) v1.ContainerStatus {
	if i := slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return list[i]
	}
	return v1.ContainerStatus{}
}

func conditionOf(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	if i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &pod.Status.Conditions[i]
	}
	return nil
}

// gatesMoved tells whether a condition that the pod waits for has another status.
func gatesMoved(old, pod *v1.Pod) bool {
	return len(pod.Spec.ReadinessGates) > 0 && gatesOpen(old) != gatesOpen(pod)
}

// holds tells whether a list of conditions says what these say, not since when.
func holds(list, these []v1.PodCondition) bool {
	return !slices.ContainsFunc(these, func(c v1.PodCondition) bool {
		return !slices.ContainsFunc(list, func(x v1.PodCondition) bool {
			return x.Type == c.Type && x.Status == c.Status && x.Reason == c.Reason && x.Message == c.Message && x.ObservedGeneration == c.ObservedGeneration
		})
	})
}
