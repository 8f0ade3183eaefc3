package nodesim

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ephemerals acts the ephemeral containers of one pod: those that were added while it is there.
//
//	waiting --volumes up--> running --run time over, or the pod ends--> ended
//
// Each starts once, beside whatever the other containers do, also while init containers
// fail; none is ever started again, not after a reboot either. Without a run time of
// its own, drydock.dev/run-time.NAME, it runs until the pod ends.
type ephemerals map[string]*ephemeralRun

type ephemeralRun struct {
	state             containerState
	started, finished time.Time
	exit              int32
	id                string
	lost              bool // it ran when the machine lost power
}

// lostCode is what a container ended with whose end nobody saw.
const lostCode = 255

// advance moves on as far as the time allows. It returns how long until the next step, zero if there is none.
func (e ephemerals) advance(pod *v1.Pod, boot string, held map[string]string, now time.Time, n *news) time.Duration {
	var next time.Duration
	for i := range pod.Spec.EphemeralContainers {
		x := &pod.Spec.EphemeralContainers[i]
		if e[x.Name] == nil {
			if held[x.Name] != "" {
				continue
			}
			e[x.Name] = &ephemeralRun{state: running, started: now, id: containerID(pod, x.Name, 0, boot)}
			n.started(ephemeralPath(x.Name))
		}
		r := e[x.Name]
		d, err := time.ParseDuration(ofContainer(pod, RunTime, x.Name))
		if r.state != running || err != nil {
			continue
		}
		left := r.started.Add(d).Sub(now)
		if left <= 0 {
			r.state, r.finished, r.exit = ended, now, codeOf(ofContainer(pod, ExitCode, x.Name), 0)
			continue
		}
		next = sooner(next, left)
	}
	return next
}

// sooner is the shorter of two waits, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// stop ends those that run, with the pod.
func (e ephemerals) stop(now time.Time) {
	for _, r := range e {
		if r.state == running {
			r.state, r.finished = ended, now
		}
	}
}

// killing tells of those that are to end.
func (e ephemerals) killing(pod *v1.Pod, n *news) {
	for i := range pod.Spec.EphemeralContainers {
		name := pod.Spec.EphemeralContainers[i].Name
		if r := e[name]; r != nil && r.state == running {
			n.killing(ephemeralPath(name), name)
		}
	}
}

// restore takes over what a kubelet before this one reported.
func (e ephemerals) restore(pod *v1.Pod, boot string, now time.Time) {
	for _, s := range pod.Status.EphemeralContainerStatuses {
		switch t := s.State.Terminated; {
		case s.State.Running != nil && s.ContainerID == containerID(pod, s.Name, 0, boot):
			e[s.Name] = &ephemeralRun{state: running, started: s.State.Running.StartedAt.Time, id: s.ContainerID}
		case s.State.Running != nil:
			e[s.Name] = &ephemeralRun{state: ended, started: s.State.Running.StartedAt.Time, finished: now, exit: lostCode, id: s.ContainerID, lost: true}
		case t != nil:
			e[s.Name] = &ephemeralRun{state: ended, started: t.StartedAt.Time, finished: t.FinishedAt.Time, exit: t.ExitCode, id: s.ContainerID, lost: t.Reason == "Unknown"}
		}
	}
}

// statuses are what the API is told of them.
func (e ephemerals) statuses(pod *v1.Pod, held map[string]string) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range pod.Spec.EphemeralContainers {
		x := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		s := v1.ContainerStatus{Name: x.Name, Image: x.Image}
		switch r := e[x.Name]; {
		case r == nil:
			s.State.Waiting = waitingFor(pod, held[x.Name])
		case r.state == running:
			s.ContainerID, s.ImageID = r.id, x.Image
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(r.started)}
		default:
			s.ContainerID, s.ImageID = r.id, x.Image
			t := &v1.ContainerStateTerminated{ExitCode: r.exit, Reason: "Completed", StartedAt: metav1.NewTime(r.started), FinishedAt: metav1.NewTime(r.finished), ContainerID: r.id}
			switch {
			case r.lost:
				t.Reason = "Unknown"
			case r.exit != 0:
				t.Reason = "Error"
			}
			s.State.Terminated = t
		}
		describe(&s, &x)
		out = append(out, s)
	}
	sortByName(out)
	return out
}
