package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

func newFault(name string, spec v1alpha1.FaultSpec) *v1alpha1.Fault {
	return &v1alpha1.Fault{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func newNodeFault(name string, spec v1alpha1.NodeFaultSpec) *v1alpha1.NodeFault {
	return &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// untilFault waits until done says so of a Fault; nil stands for its absence.
func untilFault(ctx context.Context, t testing.TB, c *Cluster, name string, done func(*v1alpha1.Fault) bool) *v1alpha1.Fault {
	t.Helper()
	api := c.laboratory.client.Faults
	for {
		list, err := api.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		must(t, err)
		var now *v1alpha1.Fault
		if len(list.Items) > 0 {
			now = &list.Items[0]
		}
		if done(now) {
			return now
		}
		w, err := api.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: list.ResourceVersion})
		must(t, err)
		<-w.ResultChan()
		w.Stop()
		if ctx.Err() != nil {
			t.Fatalf("fault %s is not as it should be: %+v", name, now)
		}
	}
}

func phase(p v1alpha1.Phase) func(*v1alpha1.Fault) bool {
	return func(f *v1alpha1.Fault) bool { return f != nil && f.Status.Phase == p }
}

// TestFaultsOutliveTheProcess: what is stored is in force before anything of the next process runs, and
// goes on counting; nothing is left once it is deleted.
func TestFaultsOutliveTheProcess(t *testing.T) {
	state := filepath.Join(shortDir(t), "s")
	c := begin(t, Options{Devices: host.Sim, State: state, Nodes: 2})
	ctx := limited(t, time.Minute)
	api, nodes := c.laboratory.client.Faults, c.laboratory.client.NodeFaults
	pods := v1alpha1.FaultSpec{Match: v1alpha1.Match{Call: lab.KindAPI, Op: "create configmaps", Component: "tester"}, Action: lab.Fail, Code: "503", Times: 3}
	made(t)(api.Create(ctx, newFault("refuse", pods), metav1.CreateOptions{}))
	untilFault(ctx, t, c, "refuse", phase(v1alpha1.Armed))
	try := func(c *Cluster) error {
		client, err := kubernetes.NewForConfig(c.RESTConfig("tester"))
		must(t, err)
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		return err
	}
	if err := try(c); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "by fault refuse") {
		t.Errorf("the refused request: %v", err)
	}
	untilFault(ctx, t, c, "refuse", phase(v1alpha1.Fired))
	made(t)(nodes.Create(ctx, newNodeFault("dark", v1alpha1.NodeFaultSpec{Node: "n2", Action: v1alpha1.PoweredOff}), metav1.CreateOptions{}))
	must(t, c.awaitFault(ctx, "dark", func(f *v1alpha1.NodeFault) (bool, error) { return f.Status.Phase == v1alpha1.Active, nil }))
	// A kill -9 in the middle of a reboot leaves this.
	half, err := nodes.Create(ctx, newNodeFault("half", v1alpha1.NodeFaultSpec{Node: "n9", Action: v1alpha1.Reboot}), metav1.CreateOptions{})
	must(t, err)
	must(t, c.awaitFault(ctx, "half", func(f *v1alpha1.NodeFault) (bool, error) {
		half = f
		return f.Status.Phase == v1alpha1.Refused, nil
	}))
	c.laboratory.end()
	half.Status.Phase, half.Status.Conditions = v1alpha1.Working, nil
	half, err = nodes.UpdateStatus(ctx, half, metav1.UpdateOptions{})
	must(t, err)
	half.Spec.Node = "n1"
	made(t)(nodes.Update(ctx, half, metav1.UpdateOptions{}))
	must(t, c.Close())

	c = begin(t, Options{Devices: host.Sim, State: state, Nodes: 2})
	api, nodes = c.laboratory.client.Faults, c.laboratory.client.NodeFaults
	if s := c.machines["n2"].status(); s.Power != "off" || s.Kubelet != "stopped" {
		t.Errorf("the node without power after a start: %+v", s)
	}
	must(t, c.awaitFault(ctx, "half", func(f *v1alpha1.NodeFault) (bool, error) { return f.Status.Phase == v1alpha1.Completed, nil }))
	for i := range 3 {
		if err := try(c); (err == nil) != (i == 2) {
			t.Errorf("request %d after the start: %v", i, err)
		}
	}
	f := untilFault(ctx, t, c, "refuse", phase(v1alpha1.Spent))
	if f.Status.Fired != 3 || f.Status.Seen < 3 {
		t.Errorf("it has counted %+v", f.Status)
	}
	names, err := c.FaultsInForce(ctx)
	if err != nil || fmt.Sprint(names) != "[fault/refuse nodefault/dark]" {
		t.Errorf("in force: %v, %v", names, err)
	}
	must(t, api.Delete(ctx, "refuse", metav1.DeleteOptions{}))
	untilFault(ctx, t, c, "refuse", func(f *v1alpha1.Fault) bool { return f == nil })
	if left := c.Lab.Faults.List(); len(left) > 0 {
		t.Errorf("rules that nobody wants: %d, %+v", len(left), left[0].Rule)
	}
	must(t, c.Operate(ctx, "n2", PowerOn, 0)) // an operation heals what an object broke
	if list, err := nodes.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("node faults left: %v, %v", list.Items, err)
	}
	must(t, c.WaitReady(ctx))
}

// TestOperationsAreObjects: what an operation does is an object, and its deletion undoes it.
func TestOperationsAreObjects(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx := limited(t, time.Minute)
	nodes := c.laboratory.client.NodeFaults
	for op, name := range map[Operation]string{StopKubelet: "n1-kubelet-stopped", Partition: "n1-partitioned", Slow: "n1-slow-api", Skew: "n1-clock-skewed"} {
		by := time.Duration(0)
		if op == Skew {
			by = -time.Hour
		}
		must(t, c.Operate(ctx, "n1", op, by))
		if ObjectOf("n1", op) != name {
			t.Errorf("%s makes %s", op, ObjectOf("n1", op))
		}
		f, err := nodes.Get(ctx, name, metav1.GetOptions{})
		must(t, err)
		if !v1alpha1.Holds(f.Status.Conditions, v1alpha1.InForce) || f.Status.Started == nil {
			t.Errorf("%s: %+v", op, f.Status)
		}
		must(t, nodes.Delete(ctx, name, metav1.DeleteOptions{}))
		must(t, c.awaitFault(ctx, name, func(f *v1alpha1.NodeFault) (bool, error) { return f == nil, nil }))
		if s := c.machines["n1"].status(); s.Kubelet != "running" || s.Network != "connected" || s.Clock != "" {
			t.Errorf("after the deletion of %s: %+v", name, s)
		}
	}
	must(t, c.Operate(ctx, "n1", Slow, 20*time.Millisecond))
	must(t, c.Operate(ctx, "n1", Slow, 30*time.Millisecond)) // the same object, changed
	if s := c.machines["n1"].status(); s.Delay != "30ms" {
		t.Errorf("slow: %+v", s)
	}
	made(t)(nodes.Create(ctx, newNodeFault("another", v1alpha1.NodeFaultSpec{Node: "n1", Action: v1alpha1.SlowAPI}), metav1.CreateOptions{}))
	must(t, c.awaitFault(ctx, "another", func(f *v1alpha1.NodeFault) (bool, error) { return f.Status.Phase == v1alpha1.Waiting, nil }))
	must(t, c.Operate(ctx, "n1", Heal, 0))
	must(t, c.Operate(ctx, "n1", PowerOff, 0))
	if err := c.Operate(ctx, "n1", RestartKubelet, 0); err == nil {
		t.Error("a kubelet was restarted without power")
	}
	must(t, c.Operate(ctx, "n1", StopKubelet, 0))
	must(t, c.Operate(ctx, "n1", PowerOn, 0)) // it boots, and its kubelet stays down
	if s := c.machines["n1"].status(); s.Power != "on" || s.Kubelet != "stopped" {
		t.Errorf("a boot with a kubelet that is stopped: %+v", s)
	}
	must(t, c.Operate(ctx, "n1", RestartKubelet, 0))
	must(t, c.parts.kill("kubelet/n1")) // as a rule does
	must(t, c.Operate(ctx, "n1", StartKubelet, 0))
	if list, err := nodes.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("left: %v, %v", list.Items, err)
	}
	if s := c.machines["n1"].status(); s.Kubelet != "running" {
		t.Errorf("at the end: %+v", s)
	}
}

// TestFaultsThatCannotBe are refused in words.
func TestFaultsThatCannotBe(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx := limited(t, time.Minute)
	api := c.laboratory.client.Faults
	f := newFault("x", v1alpha1.FaultSpec{Match: v1alpha1.Match{Call: lab.KindPoint, Op: "kubelet: after NodeStag"}, Action: lab.Kill})
	made(t)(api.Create(ctx, f, metav1.CreateOptions{}))
	f = untilFault(ctx, t, c, "x", phase(v1alpha1.Refused))
	if in := v1alpha1.Condition(f.Status.Conditions, v1alpha1.InForce); in.Reason != v1alpha1.ReasonInvalid || !strings.Contains(in.Message, "near it are") {
		t.Errorf("a point that does not exist: %+v", in)
	}
	made(t)(api.Patch(ctx, "x", types.MergePatchType, []byte(`{"spec":{"match":{"op":"kubelet: after *"}}}`), metav1.PatchOptions{}))
	untilFault(ctx, t, c, "x", phase(v1alpha1.Armed))
	_, err := api.Create(ctx, newFault("y", v1alpha1.FaultSpec{Match: v1alpha1.Match{Call: "phone"}, Action: lab.Kill}), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a call that does not exist: %v", err)
	}
	// A fault on everything that the API serves can be taken away again.
	made(t)(api.Create(ctx, newFault("deaf", v1alpha1.FaultSpec{Match: v1alpha1.Match{Call: lab.KindAPI}, Action: lab.Fail, Code: "500"}), metav1.CreateOptions{}))
	untilFault(ctx, t, c, "deaf", func(f *v1alpha1.Fault) bool { return f != nil && f.Status.ObservedGeneration > 0 })
	tester, err := kubernetes.NewForConfig(c.RESTConfig("tester"))
	must(t, err)
	if _, err := tester.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the API answers all the same")
	}
	made(t)(api.Patch(ctx, "deaf", types.MergePatchType, []byte(`{"spec":{"action":"hang","code":null}}`), metav1.PatchOptions{}))
	untilFault(ctx, t, c, "deaf", phase(v1alpha1.Holding))
	must(t, api.Delete(ctx, "deaf", metav1.DeleteOptions{}))
	untilFault(ctx, t, c, "deaf", func(f *v1alpha1.Fault) bool { return f == nil })
	made(t)(tester.CoreV1().Nodes().List(ctx, metav1.ListOptions{}))
}

// TestClockNeverGoesBack, neither by its object nor by a restart.
func TestClockNeverGoesBack(t *testing.T) {
	state := filepath.Join(shortDir(t), "s")
	c := begin(t, Options{Devices: host.Sim, State: state, Nodes: 1})
	ctx := limited(t, time.Minute)
	set := func(c *Cluster, offset string) v1alpha1.ClockStatus {
		t.Helper()
		api := c.laboratory.client.Clocks
		w, err := api.Watch(ctx, metav1.ListOptions{}) // the first start makes it in its own time
		must(t, err)
		for range w.ResultChan() {
			break
		}
		w.Stop()
		k, err := api.Patch(ctx, v1alpha1.ClockName, types.MergePatchType, []byte(`{"spec":{"offset":"`+offset+`"}}`), metav1.PatchOptions{})
		must(t, err)
		w, err = api.Watch(ctx, metav1.ListOptions{})
		must(t, err)
		defer w.Stop()
		for e := range w.ResultChan() {
			if now := e.Object.(*v1alpha1.Clock); now.Status.ObservedGeneration >= k.Generation {
				return now.Status
			}
		}
		t.Fatal("nobody looked at the clock")
		return v1alpha1.ClockStatus{}
	}
	if s := set(c, "48h"); s.Offset.Duration != 48*time.Hour || s.Advanced == nil {
		t.Errorf("after two days: %+v", s)
	}
	if d := time.Until(c.Lab.Clock.Now()); d < 47*time.Hour {
		t.Errorf("the clock is %s ahead", d)
	}
	s := set(c, "1h")
	if in := v1alpha1.Condition(s.Conditions, v1alpha1.InForce); in.Reason != v1alpha1.ReasonBackwards || s.Offset.Duration != 48*time.Hour {
		t.Errorf("back to one hour: %+v", s)
	}
	must(t, c.Close())
	c = begin(t, Options{Devices: host.Sim, State: state, Nodes: 1})
	if d := time.Until(c.Lab.Clock.Now()); d < 47*time.Hour {
		t.Errorf("after a restart the clock is %s ahead", d)
	}
	if s := set(c, "49h"); s.Offset.Duration != 49*time.Hour {
		t.Errorf("another hour: %+v", s)
	}
	must(t, c.Close())
	must(t, os.WriteFile(c.Layout.Clock(), []byte("soon"), 0o600))
	if _, err := Start(ctx, Options{Devices: host.Sim, State: state, Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), `says "soon"`) {
		t.Errorf("a start with a damaged clock: %v", err)
	}
}

// TestSkewedNode: a node whose clock is wrong stamps what it writes by it, and stays ready.
func TestSkewedNode(t *testing.T) {
	c := begin(t, Options{Devices: host.Sim, Nodes: 1})
	ctx, u := limited(t, time.Minute), user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
	must(t, u.claim(ctx, "a"))
	must(t, c.Operate(ctx, "n1", Skew, -time.Hour))
	must(t, u.pod(ctx, "a", "a", ""))
	p, err := u.running(ctx, "a")
	must(t, err)
	if d := p.CreationTimestamp.Sub(p.Status.StartTime.Time); d < 59*time.Minute {
		t.Errorf("the pod was created %s after the node says that it started", d)
	}
	must(t, c.Operate(ctx, "n1", Heal, 0))
	if s := c.machines["n1"].status(); s.Clock != "" {
		t.Errorf("healed: %+v", s)
	}
	must(t, u.remove(ctx, "a"))
	must(t, u.removeClaim(ctx, "a"))
}
