package nodesim

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// container is the first container's status, as the API has it.
func (w *world) container(name string) (*v1.Pod, v1.ContainerStatus) {
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil || len(p.Status.ContainerStatuses) == 0 {
		return &v1.Pod{}, v1.ContainerStatus{}
	}
	return p, p.Status.ContainerStatuses[0]
}

// TestCrashLoop acts containers that fail: the first restart is at once, the next ones back off, and a run that succeeds ends the pod.
func TestCrashLoop(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	p := pod("p")
	p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	p.Annotations = map[string]string{RunTime: "0s", ExitCode: "1, 2,3,0"}
	w.createPod(p)
	w.watchUntil("first back-off", "pods", func() bool {
		_, c := w.container("p")
		return c.RestartCount == 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated.ExitCode == 2
	})
	w.waitEvent("BackOff: Back-off restarting failed container app in pod p_default(uid-p)")
	advance(w, firstBackOff)
	w.watchUntil("second back-off", "pods", func() bool {
		_, c := w.container("p")
		return c.RestartCount == 2 && c.State.Waiting != nil && c.LastTerminationState.Terminated.ExitCode == 3
	})
	advance(w, firstBackOff) // the second one is twice as long
	advance(w, firstBackOff)
	w.watchUntil("success", "pods", func() bool { return w.podPhase("p") == v1.PodSucceeded })
	if _, c := w.container("p"); c.RestartCount != 3 || c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
		t.Errorf("at the end %+v", c)
	}
}

// TestActiveDeadline ends a pod that is active for too long.
func TestActiveDeadline(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	limit := int64(60)
	p.Spec.ActiveDeadlineSeconds = &limit
	w.createPod(p)
	w.waitRunning("p")
	advance(w, time.Minute+time.Second)
	w.watchUntil("pod failed", "pods", func() bool { return w.podPhase("p") == v1.PodFailed })
	if got, _ := w.container("p"); got.Status.Reason != reasonDeadline || got.Status.Message != textDeadline {
		t.Errorf("status %+v", got.Status)
	}
	w.waitEvent("DeadlineExceeded: Pod was active")
	w.forceDelete("p")
	w.checkClean()
}

// TestTerminationGrace ends containers that take their time, and kills those that take too long.
func TestTerminationGrace(t *testing.T) {
	for _, x := range []struct {
		delay string
		after time.Duration
		code  int32
	}{{"10s", 10 * time.Second, 0}, {"40s", 30 * time.Second, killedCode}} {
		t.Run(x.delay, func(t *testing.T) {
			w := newWorld(t)
			w.addVolume("a", "h1")
			w.startKubelet()
			p := pod("p", "a")
			p.Annotations = map[string]string{StopDelay: x.delay}
			p.Finalizers = []string{"example.com/look"}
			w.createPod(p)
			w.waitRunning("p")
			w.deletePod("p")
			w.waitEvent("Killing: Stopping container app")
			ended := func() bool { _, c := w.container("p"); return c.State.Terminated != nil }
			advance(w, x.after/2) // real time passes as well, more of it on a busy machine
			w.pause()
			if ended() || w.guest.count("Unpublish h1") > 0 {
				t.Error("the containers ended too early")
			}
			advance(w, x.after/2)
			w.watchUntil("end", "pods", ended)
			if _, c := w.container("p"); c.State.Terminated.ExitCode != x.code {
				t.Errorf("state %+v", c.State.Terminated)
			}
			w.waitDetached()
		})
	}
}

// TestInitContainers acts them in order: one takes its time, one fails once, and a sidecar runs on to the pod's end.
func TestInitContainers(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	p := pod("p")
	always := v1.ContainerRestartPolicyAlways
	p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}, {Name: "slow"}, {Name: "flaky"}}
	p.Annotations = map[string]string{RunTime: "20s", RunTime + ".slow": "10s", ExitCode + ".flaky": "3,3,0"}
	w.createPod(p)
	inits := func() (out []v1.ContainerStatus) {
		got, _ := w.container("p")
		out = append(out, got.Status.InitContainerStatuses...)
		for len(out) < 3 {
			out = append(out, v1.ContainerStatus{})
		}
		return out
	}
	w.watchUntil("the slow one runs", "pods", func() bool { return inits()[1].State.Running != nil })
	if s := inits(); s[0].State.Running == nil || !s[0].Ready || s[2].State.Waiting == nil || s[2].State.Waiting.Reason != "PodInitializing" || w.podPhase("p") != v1.PodPending {
		t.Errorf("while the slow one runs: %+v", s)
	}
	w.killKubelet()
	w.startKubelet() // what ran goes on
	advance(w, 10*time.Second)
	w.watchUntil("back-off of the flaky one", "pods", func() bool {
		s := inits()[2]
		return s.RestartCount == 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.LastTerminationState.Terminated.ExitCode == 3
	})
	advance(w, firstBackOff)
	w.waitRunning("p")
	if s := inits(); s[0].State.Running == nil || s[1].RestartCount != 0 || s[1].State.Terminated == nil || s[2].State.Terminated == nil || s[2].RestartCount != 2 {
		t.Errorf("once the pod runs: %+v", s)
	}
	advance(w, 20*time.Second)
	w.watchUntil("success", "pods", func() bool { return w.podPhase("p") == v1.PodSucceeded })
	w.watchUntil("the sidecar has ended", "pods", func() bool { return inits()[0].State.Terminated != nil })

	q := pod("q")
	q.Spec.RestartPolicy = v1.RestartPolicyNever
	q.Spec.InitContainers = []v1.Container{{Name: "bad"}}
	q.Annotations = map[string]string{ExitCode + ".bad": "2"}
	w.createPod(q)
	w.watchUntil("failure", "pods", func() bool { return w.podPhase("q") == v1.PodFailed })
	if got, c := w.container("q"); got.Status.InitContainerStatuses[0].State.Terminated.ExitCode != 2 || c.State.Waiting == nil {
		t.Errorf("after a failed init container: %+v", got.Status)
	}
}
