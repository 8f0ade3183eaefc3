package nodesim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inits acts the init containers of one pod, one after the other.
//
//	waiting --its turn--> running --run time over--> ended --exit code 0--> the next one's turn
//	ended --exit code not 0, back-off over--> running, or the pod fails
//
// A sidecar, which is to be restarted always, gives the turn on as soon as it runs.
type inits struct {
	turn   int // of which container; the number of containers when all are through
	runs   []initRun
	failed bool // one failed that is not to run again
}

type initRun struct {
	state             containerState
	started, finished time.Time
	restarts, exit    int32
	backOff           time.Duration
	backedOn          int32 // the restart whose back-off was told
}

func sidecar(x *v1.Container) bool {
	return x.RestartPolicy != nil && *x.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// ofContainer is an annotation for one container, "drydock.dev/run-time.NAME".
func ofContainer(pod *v1.Pod, annotation, name string) string {
	return pod.Annotations[annotation+"."+name]
}

// advance moves on as far as the time allows. Done is true when all are through; else it
// returns how long until the next step, zero if there is none.
func (c *inits) advance(pod *v1.Pod, now time.Time, n *news) (left time.Duration, done bool) {
	list := pod.Spec.InitContainers
	for len(c.runs) < len(list) {
		c.runs = append(c.runs, initRun{})
	}
	for c.turn < len(list) {
		x, r := &list[c.turn], &c.runs[c.turn]
		switch r.state {
		case waiting:
			r.state, r.started = running, now
			n.started(initPath(x))
		case running:
			if sidecar(x) {
				c.turn++
				continue
			}
			d, _ := time.ParseDuration(ofContainer(pod, RunTime, x.Name))
			if left = r.started.Add(d).Sub(now); left > 0 {
				return left, false
			}
			r.state, r.finished, r.exit = ended, now, codeOf(ofContainer(pod, ExitCode, x.Name), r.restarts)
			if r.exit == 0 {
				c.turn++
			}
		default:
			if c.failed = pod.Spec.RestartPolicy == v1.RestartPolicyNever; c.failed {
				return 0, false
			}
			if left = r.finished.Add(r.backOff).Sub(now); left > 0 {
				if r.backedOn != r.restarts+1 {
					r.backedOn = r.restarts + 1
					n.backOff(pod, initPath(x), x.Name)
				}
				return left, false
			}
			r.backOff = min(max(r.backOff*2, firstBackOff), maxBackOff)
			r.restarts++
			r.state, r.started = running, now
			n.started(initPath(x))
		}
	}
	return 0, true
}

// restore takes over what a kubelet before this one reported in the same boot.
func (c *inits) restore(pod *v1.Pod, boot string) {
	for i := range pod.Spec.InitContainers {
		x := &pod.Spec.InitContainers[i]
		var r initRun
		for _, s := range pod.Status.InitContainerStatuses {
			if s.Name != x.Name || s.ContainerID != containerID(pod, s.Name, s.RestartCount, boot) {
				continue
			}
			r.restarts = s.RestartCount
			t := s.State.Terminated
			if t == nil && s.State.Waiting != nil {
				t = s.LastTerminationState.Terminated
			}
			switch {
			case s.State.Running != nil:
				r.state, r.started = running, s.State.Running.StartedAt.Time
			case t != nil:
				r.state, r.started, r.finished, r.exit = ended, t.StartedAt.Time, t.FinishedAt.Time, t.ExitCode
			}
		}
		c.runs = append(c.runs, r)
		if c.turn == i && (r.state == ended && r.exit == 0 || r.state == running && sidecar(x)) {
			c.turn++
		}
	}
}

// killing tells of those that run and are to end with the pod.
func (c *inits) killing(pod *v1.Pod, n *news) {
	for i := range min(len(c.runs), len(pod.Spec.InitContainers)) {
		if x := &pod.Spec.InitContainers[i]; c.runs[i].state == running {
			n.killing(initPath(x), x.Name)
		}
	}
}

// statuses are what the API is told. Over says that no container of the pod runs any more.
func (c *inits) statuses(pod *v1.Pod, boot string, held map[string]string, over bool, now time.Time) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range pod.Spec.InitContainers {
		x := &pod.Spec.InitContainers[i]
		var r initRun
		if i < len(c.runs) {
			r = c.runs[i]
		}
		s := v1.ContainerStatus{Name: x.Name, Image: x.Image, RestartCount: r.restarts, Started: new(bool)}
		if r.state != waiting {
			s.ContainerID, s.ImageID = containerID(pod, x.Name, r.restarts, boot), x.Image
		}
		if r.state == running && over {
			r.state, r.finished = ended, now
			c.runs[i].state, c.runs[i].finished = ended, now
		}
		done := &v1.ContainerStateTerminated{Reason: "Completed", ExitCode: r.exit, StartedAt: metav1.NewTime(r.started), FinishedAt: metav1.NewTime(r.finished), ContainerID: s.ContainerID}
		if r.exit != 0 {
			done.Reason = "Error"
		}
		switch {
		case r.state == waiting:
			s.State.Waiting = waitingFor(pod, held[x.Name])
		case r.state == running:
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(r.started)}
			*s.Started, s.Ready = true, sidecar(x)
		case r.exit == 0 || c.failed || over:
			s.State.Terminated, s.Ready = done, r.exit == 0
		default:
			s.LastTerminationState.Terminated = done
			s.State.Waiting = &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", r.backOff, x.Name, pod.Name, pod.Namespace, pod.UID)}
		}
		describe(&s, x)
		out = append(out, s)
	}
	return out
}

// codeOf is the exit code of the run after so many restarts, from a list of them.
func codeOf(list string, restarts int32) int32 {
	codes := strings.Split(list, ",")
	code, _ := strconv.ParseInt(strings.TrimSpace(codes[min(int(restarts), len(codes)-1)]), 10, 32)
	return int32(code)
}
