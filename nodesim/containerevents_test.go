package nodesim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktesting "k8s.io/client-go/testing"
)

// newsOf are the events of a pod's containers, in the order in which they were written.
func (w *world) newsOf(pod string) []string {
	var out []string
	for _, a := range w.client.Actions() {
		c, ok := a.(ktesting.CreateAction)
		if !ok || a.GetResource().Resource != "events" {
			continue
		}
		if e, ok := c.GetObject().(*v1.Event); ok && e.InvolvedObject.Name == pod && e.InvolvedObject.FieldPath != "" {
			out = append(out, e.Type+" "+e.InvolvedObject.FieldPath+" "+e.Reason+": "+e.Message)
		}
	}
	return out
}

func (w *world) waitNews(pod string, want ...string) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for len(w.newsOf(pod)) < len(want) {
		select {
		case <-deadline:
			w.t.Fatalf("told of %s:\n%s", pod, strings.Join(w.newsOf(pod), "\n"))
		default:
			w.pause()
		}
	}
	if d := cmp.Diff(want, w.newsOf(pod)); d != "" {
		w.t.Errorf("told of %s (-want +got):\n%s", pod, d)
	}
}

func (w *world) update(name string, change func(*v1.Pod), subresource ...string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, name, metav1.GetOptions{})
	w.must(p, err)
	change(p)
	if slices.Contains(subresource, "status") {
		w.must(w.client.CoreV1().Pods(namespace).UpdateStatus(w.ctx, p, metav1.UpdateOptions{}))
		return
	}
	w.must(w.client.CoreV1().Pods(namespace).Update(w.ctx, p, metav1.UpdateOptions{}))
}

// TestContainerEvents reads what is told of containers that start, fail, wait and are to end.
func TestContainerEvents(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}, {Name: "flaky"}}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "beside"})
	p.Annotations = map[string]string{ExitCode + ".flaky": "1,1,0"}
	w.createPod(p)
	want := []string{
		"Normal spec.initContainers{side} Created: Container created", "Normal spec.initContainers{side} Started: Container started",
		"Normal spec.initContainers{flaky} Created: Container created", "Normal spec.initContainers{flaky} Started: Container started",
		"Normal spec.initContainers{flaky} Created: Container created", "Normal spec.initContainers{flaky} Started: Container started",
		"Warning spec.initContainers{flaky} BackOff: Back-off restarting failed container flaky in pod p_default(uid-p)",
	}
	// The recorder counts what is told again, so the second start is no event of its own.
	want = slices.Delete(want, 4, 6)
	w.waitNews("p", want...)
	advance(w, firstBackOff)
	w.waitRunning("p")
	want = append(want, "Normal spec.containers{app} Created: Container created", "Normal spec.containers{app} Started: Container started",
		"Normal spec.containers{beside} Created: Container created", "Normal spec.containers{beside} Started: Container started")
	w.waitNews("p", want...)

	w.killKubelet()
	w.startKubelet() // what runs is not told of again
	w.deletePod("p")
	w.waitGone("p")
	w.waitNews("p", append(want, "Normal spec.containers{app} Killing: Stopping container app", "Normal spec.containers{beside} Killing: Stopping container beside",
		"Normal spec.initContainers{side} Killing: Stopping container side")...)
	w.checkClean()
}

// TestWhatHoldsAContainer is told of the container, and stands in its status.
func TestWhatHoldsAContainer(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	p.Spec.Containers[0].VolumeMounts[0].SubPathExpr = "$(NOWHERE)"
	w.createPod(p)
	w.watchUntil("held", "pods", func() bool {
		_, c := w.container("p")
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CreateContainerConfigError" && strings.Contains(c.State.Waiting.Message, "NOWHERE")
	})
	if e := w.waitEvent("Failed: Error: "); e.InvolvedObject.FieldPath != "spec.containers{app}" {
		t.Errorf("event of %+v", e.InvolvedObject)
	}
}

// TestEphemeralContainers adds containers to a pod that runs: they start once, mount what the pod has, and end by themselves or with it.
func TestEphemeralContainers(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.addVolume("b", "h2")
	w.startKubelet()
	p := pod("p", "a", "b")
	p.Spec.Containers[0].VolumeMounts = p.Spec.Containers[0].VolumeMounts[:1]
	p.Annotations = map[string]string{RunTime + ".probe": "5s", ExitCode + ".probe": "3"}
	w.createPod(p)
	w.waitRunning("p")
	if w.guest.count("Publish h2") > 0 {
		t.Error("a volume that no container mounts was published")
	}
	add := func(name, volume string) {
		w.update("p", func(p *v1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: name, Image: "busybox", VolumeMounts: []v1.VolumeMount{{Name: volume, MountPath: "/look", ReadOnly: true}}}})
		})
	}
	is := func(name string) v1.ContainerStatus {
		got, _ := w.container("p")
		return statusOf(got.Status.EphemeralContainerStatuses, name)
	}
	add("shell", "vol-b")
	w.watchUntil("the shell runs", "pods", func() bool { return is("shell").State.Running != nil })
	if w.guest.count("Publish h2") != 1 {
		t.Error("the volume of the ephemeral container was not published")
	}
	add("probe", "vol-a")
	w.watchUntil("the probe runs", "pods", func() bool { return is("probe").State.Running != nil })
	want := []string{"Normal spec.containers{app} Created: Container created", "Normal spec.containers{app} Started: Container started",
		"Normal spec.ephemeralContainers{shell} Created: Container created", "Normal spec.ephemeralContainers{shell} Started: Container started",
		"Normal spec.ephemeralContainers{probe} Created: Container created", "Normal spec.ephemeralContainers{probe} Started: Container started"}
	w.waitNews("p", want...) // a kill takes what is not written yet
	w.killKubelet()
	w.startKubelet() // they go on
	advance(w, 5*time.Second)
	w.watchUntil("the probe has ended", "pods", func() bool { return is("probe").State.Terminated != nil })
	if s := is("probe"); s.State.Terminated.ExitCode != 3 || s.State.Terminated.Reason != "Error" || s.RestartCount != 0 || s.Ready || s.Started != nil {
		t.Errorf("the probe's status %+v", s)
	}
	if s := is("shell"); s.State.Running == nil || len(s.VolumeMounts) != 1 || *s.VolumeMounts[0].RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
		t.Errorf("the shell's status %+v", s)
	}

	add("lost", "vol-nowhere")
	w.watchUntil("one is held", "pods", func() bool {
		s := is("lost").State.Waiting
		return s != nil && s.Reason == "CreateContainerConfigError"
	})
	if got, c := w.container("p"); got.Status.Phase != v1.PodRunning || !c.Ready {
		t.Errorf("an ephemeral container that cannot start hurts the pod: %+v", got.Status)
	}
	w.deletePod("p")
	w.waitGone("p")
	w.waitNews("p", append(want, "Warning spec.ephemeralContainers{lost} Failed: Error: cannot find volume \"vol-nowhere\" to mount into container \"lost\"",
		"Normal spec.containers{app} Killing: Stopping container app", "Normal spec.ephemeralContainers{shell} Killing: Stopping container shell")...)
	w.checkClean()
}

// TestReadinessGates keeps a pod unready until others say that it may be ready.
func TestReadinessGates(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	p := pod("p")
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/open"}}
	w.createPod(p)
	w.waitRunning("p")
	ready := func() v1.PodCondition {
		got, _ := w.container("p")
		if c := conditionOf(got, v1.PodReady); c != nil {
			return *c
		}
		return v1.PodCondition{}
	}
	if c := ready(); c.Status != v1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" ||
		c.Message != `corresponding condition of pod readiness gate "example.com/open" does not exist.` {
		t.Errorf("without the condition: %+v", c)
	}
	if got, _ := w.container("p"); conditionOf(got, v1.ContainersReady).Status != v1.ConditionTrue {
		t.Error("the containers are not ready")
	}
	set := func(s v1.ConditionStatus) {
		w.update("p", func(p *v1.Pod) {
			p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/open" })
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: "example.com/open", Status: s})
		}, "status")
	}
	set(v1.ConditionFalse)
	w.watchUntil("told that the gate is shut", "pods", func() bool {
		return ready().Message == `the status of pod readiness gate "example.com/open" is not "True", but False`
	})
	set(v1.ConditionTrue)
	w.watchUntil("ready", "pods", func() bool { return ready().Status == v1.ConditionTrue })
	if got, _ := w.container("p"); conditionOf(got, "example.com/open") == nil {
		t.Error("the gate's condition is gone")
	}
}

// TestContainerStatusFields are resources and mounts as the kubelet reports them.
func TestContainerStatusFields(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	if possible := v1.RecursiveReadOnlyIfPossible; true {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: "vol-a", MountPath: "/ro", ReadOnly: true}, v1.VolumeMount{Name: "vol-a", MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: &possible})
	}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}
	w.createPod(p)
	w.waitRunning("p")
	on, off := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyDisabled
	_, got := w.container("p")
	if d := cmp.Diff([]v1.VolumeMountStatus{{Name: "vol-a", MountPath: "/a"}, {Name: "vol-a", MountPath: "/ro", ReadOnly: true, RecursiveReadOnly: &off},
		{Name: "vol-a", MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: &on}}, got.VolumeMounts); d != "" {
		t.Errorf("mounts (-want +got):\n%s", d)
	}
	if h := w.nodeObject().Status.RuntimeHandlers; len(h) != 1 || !*h[0].Features.RecursiveReadOnlyMounts {
		t.Errorf("the node does not say that it can: %+v", h)
	}
	if d := cmp.Diff(&p.Spec.Containers[0].Resources, got.Resources); d != "" {
		t.Errorf("resources (-want +got):\n%s", d)
	}
	if d := cmp.Diff(p.Spec.Containers[0].Resources.Requests, got.AllocatedResources); d != "" {
		t.Errorf("allocated (-want +got):\n%s", d)
	}
	w.update("p", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("200m") })
	w.watchUntil("a resize is followed", "pods", func() bool {
		_, c := w.container("p")
		return c.AllocatedResources.Cpu().MilliValue() == 200 && c.Resources.Requests.Cpu().MilliValue() == 200
	})
}

// TestContainerUsers: whom containers run as, with the groups of fsGroup, of the pod and of its volumes.
func TestContainerUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gid := func(text string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": text} }
	}
	w.addVolume("a", "h1", gid("5000"))
	w.addVolume("b", "h2", gid("4000"))
	w.addVolume("c", "h3", gid("storage"))
	w.startKubelet()
	p := pod("p", "a", "b", "c")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(3000)), FSGroup: new(int64(2000)), SupplementalGroups: []int64{4000, 6000}}
	side := p.Spec.Containers[0].DeepCopy()
	side.Name, side.SecurityContext = "side", &v1.SecurityContext{RunAsUser: new(int64(0)), RunAsGroup: new(int64(6000))}
	first := side.DeepCopy()
	first.Name, first.SecurityContext = "first", &v1.SecurityContext{RunAsUser: new(int64(7))}
	p.Spec.Containers, p.Spec.InitContainers = append(p.Spec.Containers, *side), []v1.Container{*first}
	w.createPod(p)
	w.createPod(pod("plain", "a"))
	w.waitRunning("p", "plain")
	linux := func(uid, gid int64, groups ...int64) *v1.ContainerUser {
		return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: uid, GID: gid, SupplementalGroups: groups}}
	}
	are := func() {
		t.Helper()
		got, _ := w.container("p")
		plain, _ := w.container("plain")
		for name, c := range map[string]struct{ got, want *v1.ContainerUser }{
			"app":   {statusOf(got.Status.ContainerStatuses, "app").User, linux(1000, 3000, 3000, 2000, 4000, 6000, 5000)},
			"side":  {statusOf(got.Status.ContainerStatuses, "side").User, linux(0, 6000, 6000, 2000, 4000, 5000)},
			"first": {statusOf(got.Status.InitContainerStatuses, "first").User, linux(7, 3000, 3000, 2000, 4000, 6000, 5000)},
			"plain": {plain.Status.ContainerStatuses[0].User, linux(0, 0, 0, 5000)},
		} {
			if d := cmp.Diff(c.want, c.got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	}
	are()
	if f := w.nodeObject().Status.Features; f == nil || !*f.SupplementalGroupsPolicy {
		t.Errorf("the node does not say that it reports them: %+v", f)
	}
	// What runs keeps what it was made with, also when the kubelet is another one.
	pv, err := w.client.CoreV1().PersistentVolumes().Get(w.ctx, "pv-a", metav1.GetOptions{})
	w.must(pv, err)
	gid("5001")(pv)
	w.must(w.client.CoreV1().PersistentVolumes().Update(w.ctx, pv, metav1.UpdateOptions{}))
	w.killKubelet()
	w.startKubelet()
	w.createPod(pod("later", "a"))
	w.waitRunning("later")
	are()
	if later, _ := w.container("later"); !slices.Contains(later.Status.ContainerStatuses[0].User.Linux.SupplementalGroups, 5001) {
		t.Errorf("a later pod: %+v", later.Status.ContainerStatuses[0].User.Linux)
	}
}

// TestNoRootWhereNoneIsWanted: a container that is to be root and must not does not start.
func TestNoRootWhereNoneIsWanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startKubelet()
	p := pod("p")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true)}
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(0))}
	w.createPod(p)
	w.waitEvent("Failed: Error: container's runAsUser breaks non-root policy (pod: \"p_default(uid-p)\", container: app)")
	// Whom an image would run as that is not root nobody knows.
	p = pod("some")
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true)}
	w.createPod(p)
	w.waitRunning("some")
	if _, c := w.container("some"); c.User != nil {
		t.Errorf("user %+v", c.User)
	}
}
