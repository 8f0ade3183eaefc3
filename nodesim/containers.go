package nodesim

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"
)

type logger = zerolog.Logger

// Annotations by which a pod says how its containers are acted.
const (
	// StartDelay is how long the containers take to start once the volumes are up: "3s".
	StartDelay = "drydock.dev/start-delay"
	// RunTime is how long the containers run before they end by themselves; without it they run until the pod is deleted.
	RunTime = "drydock.dev/run-time"
	// ExitCode is what they end with: a number, or a list of them for one run after the other, "1,1,0".
	// The last one holds for all later runs.
	ExitCode = "drydock.dev/exit-code"
	// StopDelay is how long the containers take to end when the pod is deleted. What takes longer than the pod's grace is killed.
	StopDelay = "drydock.dev/stop-delay"
)

// Pauses before a container that ended is started again; there is none before the first
// restart. One that ran for long starts over.
const (
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	longRun      = 2 * maxBackOff
)

const (
	killedCode   = 137
	defaultGrace = 30 * time.Second
	// What a pod says that was active for too long.
	reasonDeadline = "DeadlineExceeded"
	textDeadline   = "Pod was active on the node longer than the specified deadline"
)

// containers acts the containers of one pod; all of them do the same.
//
//	waiting --volumes up, delay over--> running --run time over--> ended
//	ended --policy says so, back-off over--> running
//	any --pod stops--> stopped
type containers struct {
	boot     string
	inits    inits
	beside   ephemerals
	users    users             // whom they run as
	news     news              // what nobody was told of yet
	held     map[string]string // what keeps a container, by its name, from being made
	state    containerState
	since    time.Time // of the state
	up       time.Time // when the volumes were first seen up in this life
	started  time.Time
	restarts int32
	exit     int32
	why      string // of an exit that was not by itself; with text
	text     string
	backOff  time.Duration
	backedOn int32     // the restart whose back-off was told
	killing  bool      // that they are to end was told
	stopping time.Time // since when they are to end
	expired  bool      // the pod was active for too long
	rejected bool
	reason   string // of a rejection
	message  string
}

type containerState int

const (
	waiting containerState = iota
	running
	ended
	stopped
)

// restore takes over containers that a restart of the kubelet left running. After a
// reboot they are gone, and will be started again.
func (c *containers) restore(pod *v1.Pod, boot string, now time.Time) {
	c.boot, c.held, c.beside, c.users = boot, map[string]string{}, ephemerals{}, users{}
	c.users.restore(pod)
	c.inits.restore(pod, boot)
	c.beside.restore(pod, boot, now)
	for _, s := range pod.Status.ContainerStatuses {
		c.restarts = max(c.restarts, s.RestartCount)
		switch {
		case s.State.Running != nil && s.ContainerID == containerID(pod, s.Name, s.RestartCount, boot):
			c.state, c.started, c.since = running, s.State.Running.StartedAt.Time, s.State.Running.StartedAt.Time
		case s.State.Running != nil:
			c.restarts = s.RestartCount + 1
		case s.State.Terminated != nil:
			c.state, c.exit, c.since, c.started = ended, s.State.Terminated.ExitCode, s.State.Terminated.FinishedAt.Time, s.State.Terminated.StartedAt.Time
		case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
			t := s.LastTerminationState.Terminated
			c.state, c.exit, c.since, c.started, c.backOff = ended, t.ExitCode, t.FinishedAt.Time, t.StartedAt.Time, firstBackOff
		}
	}
	c.expired = pod.Status.Reason == reasonDeadline
	if pod.Status.Phase == v1.PodFailed && len(pod.Status.ContainerStatuses) == 0 {
		c.rejected, c.reason, c.message = true, pod.Status.Reason, pod.Status.Message
	}
}

func containerID(pod *v1.Pod, name string, restarts int32, boot string) string {
	h := sha256.Sum256([]byte(string(pod.UID) + "/" + name + "/" + strconv.Itoa(int(restarts)) + "/" + boot))
	return "drydock://" + hex.EncodeToString(h[:])
}

func duration(pod *v1.Pod, annotation string) time.Duration {
	d, err := time.ParseDuration(pod.Annotations[annotation])
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// advance moves on as far as the time allows while the volumes are up. It returns how long until the next step, zero for none.
func (c *containers) advance(pod *v1.Pod, now time.Time) time.Duration {
	if c.up.IsZero() {
		c.up = now
	}
	var next time.Duration
	if !c.delayed(pod, now) && !c.over(pod) {
		next = c.beside.advance(pod, c.boot, c.held, now, &c.news)
	}
	return sooner(next, c.advanceOrdinary(pod, now))
}

// delayed tells whether the pod's start is held back by its annotation.
func (c *containers) delayed(pod *v1.Pod, now time.Time) bool {
	return c.state == waiting && now.Before(c.up.Add(duration(pod, StartDelay)))
}

func (c *containers) advanceOrdinary(pod *v1.Pod, now time.Time) time.Duration {
	for {
		var left time.Duration
		switch c.state {
		case waiting:
			left = c.up.Add(duration(pod, StartDelay)).Sub(now)
			if left <= 0 {
				var through bool
				if left, through = c.inits.advance(pod, now, &c.news); c.inits.failed {
					c.state, c.since, c.exit = ended, now, 1
					return 0
				}
				if !through {
					return left
				}
				c.begin(pod, now)
				continue
			}
		case running:
			if _, ends := pod.Annotations[RunTime]; !ends {
				return 0
			}
			left = c.started.Add(duration(pod, RunTime)).Sub(now)
			if left <= 0 {
				c.state, c.since, c.exit, c.why, c.text = ended, now, codeOf(pod.Annotations[ExitCode], c.restarts), "", ""
				if now.Sub(c.started) >= longRun {
					c.backOff = 0
				}
				continue
			}
		case ended:
			if c.over(pod) {
				return 0
			}
			left = c.since.Add(c.backOff).Sub(now)
			if left <= 0 {
				c.backOff = min(max(c.backOff*2, firstBackOff), maxBackOff)
				c.restarts++
				c.begin(pod, now)
				continue
			}
			if c.backedOn != c.restarts+1 {
				c.backedOn = c.restarts + 1
				for i := range pod.Spec.Containers {
					x := &pod.Spec.Containers[i]
					c.news.backOff(pod, containerPath(x), x.Name)
				}
			}
		}
		return left
	}
}

// begin starts the ordinary containers.
func (c *containers) begin(pod *v1.Pod, now time.Time) {
	c.state, c.since, c.started = running, now, now
	for i := range pod.Spec.Containers {
		c.news.started(containerPath(&pod.Spec.Containers[i]))
	}
}

// over tells whether the pod has ended by itself.
func (c *containers) over(pod *v1.Pod) bool {
	if c.rejected || c.expired {
		return true
	}
	if c.state != ended {
		return false
	}
	switch pod.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return true
	case v1.RestartPolicyOnFailure:
		return c.exit == 0
	}
	return false
}

// stop ends the containers with the pod. It returns how much longer they take, zero when they have ended.
func (c *containers) stop(v view, now time.Time) time.Duration {
	if !c.killing {
		c.killing = true
		c.tellKilling(v.pod)
	}
	if c.state == running && v.assigned {
		if c.stopping.IsZero() {
			c.stopping = now
		}
		takes, grace := duration(v.pod, StopDelay), grace(v.pod)
		if left := c.stopping.Add(min(takes, grace)).Sub(now); left > 0 {
			return left
		}
		if takes > grace {
			c.exit, c.why, c.text = killedCode, "Error", ""
		}
	}
	if c.state == running || c.state == waiting {
		c.state, c.since = stopped, now
	}
	c.beside.stop(now)
	return 0
}

// tellKilling tells of each container that runs.
func (c *containers) tellKilling(pod *v1.Pod) {
	if c.state == running {
		for i := range pod.Spec.Containers {
			c.news.killing(containerPath(&pod.Spec.Containers[i]), pod.Spec.Containers[i].Name)
		}
	}
	c.inits.killing(pod, &c.news)
	c.beside.killing(pod, &c.news)
}

// grace is how long a pod that is to end may take.
func grace(pod *v1.Pod) time.Duration {
	seconds := pod.DeletionGracePeriodSeconds
	if seconds == nil {
		seconds = pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds == nil {
		return defaultGrace
	}
	return time.Duration(*seconds) * time.Second
}

// activeFor returns how much longer a pod may be active that started at that time; false if there is no limit.
func activeFor(pod *v1.Pod, start, now time.Time) (time.Duration, bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil {
		return 0, false
	}
	return start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second).Sub(now), true
}

// fail ends the containers by an error of their own.
func (c *containers) fail(now time.Time, reason, message string) {
	c.state, c.since, c.exit, c.why, c.text = ended, now, 1, reason, message
}

// reject ends the pod before its containers begin.
func (c *containers) reject(reason, message string) {
	c.rejected, c.reason, c.message = true, reason, message
}
