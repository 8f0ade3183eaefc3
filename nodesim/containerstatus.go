package nodesim

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statuses are what the API is told of each ordinary container, by name as upstream sorts them.
func (c *containers) statuses(pod *v1.Pod) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range pod.Spec.Containers {
		x := &pod.Spec.Containers[i]
		s := v1.ContainerStatus{Name: x.Name, Image: x.Image, RestartCount: c.restarts, Started: new(bool)}
		if c.state != waiting && !c.started.IsZero() {
			s.ContainerID = containerID(pod, x.Name, c.restarts, c.boot)
			s.ImageID = x.Image
		}
		done := &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: metav1.NewTime(c.started), FinishedAt: metav1.NewTime(c.since), ContainerID: s.ContainerID}
		switch {
		case c.state == waiting, c.inits.failed:
			s.State.Waiting = waitingFor(pod, c.held[x.Name])
		case c.state == running:
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started)}
			s.Ready, *s.Started = true, true
		default:
			if done.ExitCode = c.exit; c.exit != 0 {
				done.Reason = "Error"
			}
			if c.why != "" {
				done.Reason, done.Message = c.why, c.text
			}
			if c.started.IsZero() {
				done.StartedAt, done.FinishedAt = metav1.Time{}, metav1.Time{}
				done.Reason, done.ExitCode, done.Message = "ContainerStatusUnknown", killedCode, "The container could not be located when the pod was terminated"
			}
			if c.state == ended && !c.over(pod) {
				s.LastTerminationState.Terminated = done
				s.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", c.backOff, x.Name, pod.Name, pod.Namespace, pod.UID)}
				break
			}
			s.State.Terminated = done
		}
		describe(&s, x)
		out = append(out, s)
	}
	sortByName(out)
	return out
}

func sortByName(list []v1.ContainerStatus) {
	slices.SortFunc(list, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// waitingFor is the state of a container that has not started: held says what keeps it, if anything does.
func waitingFor(pod *v1.Pod, held string) *v1.ContainerStateWaiting {
	switch {
	case held != "":
		return &v1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: held}
	case len(pod.Spec.InitContainers) > 0:
		return &v1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// describe says what a container has: its mounts at all times, its resources once it was
// made. What the spec asks for is what it has: nothing holds a change of it back.
func describe(s *v1.ContainerStatus, x *v1.Container) {
	for _, m := range x.VolumeMounts {
		v := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursivelyReadOnly(m) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			v.RecursiveReadOnly = &mode
		}
		s.VolumeMounts = append(s.VolumeMounts, v)
	}
	if s.ContainerID != "" {
		s.Resources = x.Resources.DeepCopy()
		s.AllocatedResources = s.Resources.Requests
	}
}

// recursivelyReadOnly tells whether a read-only mount is so for all that is mounted below it. This node always can.
func recursivelyReadOnly(m v1.VolumeMount) bool {
	if m.RecursiveReadOnly == nil || m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false
	}
	return *m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible || *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled
}
