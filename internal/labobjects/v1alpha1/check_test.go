package v1alpha1

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
)

var somePoints = []lab.Point{
	{Component: "kubelet", Name: "after NodeStageVolume, before the mount is recorded"},
	{Component: "kubelet", Name: "after NodePublishVolume, before the pod starts"},
	{Component: "cloud", Name: "after the action is recorded, before it starts"},
}

func TestCheckFault(t *testing.T) {
	second := &metav1.Duration{Duration: time.Second}
	csi := func(op string) Match { return Match{Call: lab.KindCSI, Op: op} }
	for _, x := range []struct {
		name string
		spec FaultSpec
		want string // part of the error; empty is none
	}{
		{"fail", FaultSpec{Match: csi("NodeStageVolume"), Action: lab.Fail, Code: "Internal"}, ""},
		{"fail by any code", FaultSpec{Match: csi(""), Action: lab.Fail}, ""},
		{"code in capitals", FaultSpec{Match: csi("Node*"), Action: lab.Fail, Code: "RESOURCE_EXHAUSTED"}, ""},
		{"no such code", FaultSpec{Match: csi("NodeStageVolume"), Action: lab.Fail, Code: "Bad"}, "no gRPC code"},
		{"no such method", FaultSpec{Match: csi("NodeStageVolum"), Action: lab.Hang}, `near it are "NodeStageVolume"`},
		{"words of a method", FaultSpec{Match: csi("StageVolume"), Action: lab.Hang}, `"NodeStageVolume"`},
		{"a method of somebody's own", FaultSpec{Match: csi("Reclaim*"), Action: lab.Hang}, ""},
		{"late with a code", FaultSpec{Match: csi("CreateVolume"), Action: lab.LateOK, Code: "Aborted"}, ""},
		{"delay without a delay", FaultSpec{Match: csi("CreateVolume"), Action: lab.Delay}, "needs a positive delay"},
		{"delay of another action", FaultSpec{Match: csi("CreateVolume"), Action: lab.Fail, Delay: second}, "delay is of action delay"},
		{"code of another action", FaultSpec{Match: csi("CreateVolume"), Action: lab.Hang, Code: "Internal"}, "has none"},
		{"broken pattern", FaultSpec{Match: csi("[a"), Action: lab.Hang}, "pattern"},
		{"cloud", FaultSpec{Match: Match{Call: lab.KindCloud, Op: "POST /v2/volumes"}, Action: lab.Fail, Code: "403-capacity"}, ""},
		{"no code of the cloud", FaultSpec{Match: Match{Call: lab.KindCloud}, Action: lab.Fail, Code: "200"}, "none of errored"},
		{"api", FaultSpec{Match: Match{Call: lab.KindAPI, Op: "update pods/status"}, Action: lab.Fail, Code: "503"}, ""},
		{"no status", FaultSpec{Match: Match{Call: lab.KindAPI}, Action: lab.Fail, Code: "Internal"}, "no HTTP status"},
		{"kernel", FaultSpec{Match: Match{Call: lab.KindKernel, Op: "mkfs"}, Action: lab.Fail, Code: "EIO"}, ""},
		{"no errno", FaultSpec{Match: Match{Call: lab.KindKernel}, Action: lab.Fail, Code: "5"}, "no errno"},
		{"kill", FaultSpec{Match: Match{Call: lab.KindPoint, Op: "kubelet: after Node*"}, Action: lab.Kill, RestartAfter: second}, ""},
		{"kill any caller", FaultSpec{Match: csi("CreateVolume"), Action: lab.Kill}, "say which one may die"},
		{"kill a caller", FaultSpec{Match: Match{Call: lab.KindCSI, Op: "CreateVolume", Component: "provisioner"}, Action: lab.Kill}, ""},
		{"no such point", FaultSpec{Match: Match{Call: lab.KindPoint, Op: "kubelet: after NodeStage, before the mount is recorded"}, Action: lab.Kill}, `near it are "kubelet: after NodeStageVolume, before the mount is recorded"`},
		{"nothing like a point", FaultSpec{Match: Match{Call: lab.KindPoint, Op: "xyzzy"}, Action: lab.Kill}, "drydock lab points"},
		{"a point that fails", FaultSpec{Match: Match{Call: lab.KindPoint}, Action: lab.Fail}, "cannot fail"},
		{"a point that is late", FaultSpec{Match: Match{Call: lab.KindPoint}, Action: lab.LateOK}, "a point is none"},
		{"cut", FaultSpec{Match: Match{Call: lab.KindAPI, Component: "attacher"}, Action: lab.Cut}, ""},
		{"cut off everybody", FaultSpec{Match: Match{Call: lab.KindAPI}, Action: lab.Cut}, "needs a component"},
		{"cut one call", FaultSpec{Match: Match{Call: lab.KindAPI, Component: "attacher", Op: "list pods"}, Action: lab.Cut}, "all of a component's network"},
		{"stale", FaultSpec{Match: Match{Call: lab.KindAPI, Component: "controllers", Op: "watch pods"}, Action: lab.Stale}, ""},
		{"stale calls", FaultSpec{Match: Match{Call: lab.KindAPI, Component: "controllers", Op: "list pods"}, Action: lab.Stale}, "holds up a component's watch"},
		{"restart what is not killed", FaultSpec{Match: csi("CreateVolume"), Action: lab.Hang, RestartAfter: second}, "restartAfter is of action kill"},
	} {
		err := x.spec.Check(somePoints)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}

// TestEveryRuleCanBeAdded: what Check lets pass, the tap takes.
func TestEveryRuleCanBeAdded(t *testing.T) {
	n := 0
	for _, kind := range lab.Kinds() {
		for _, action := range lab.Actions() {
			for _, op := range []string{"", "*", "watch pods"} {
				f := &Fault{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: FaultSpec{Match: Match{Call: kind, Op: op, Component: "kubelet"}, Action: action}}
				if action == lab.Delay {
					f.Spec.Delay = &metav1.Duration{Duration: time.Second}
				}
				if f.Spec.Check(somePoints) != nil {
					continue
				}
				n++
				h, err := lab.New(lab.Options{}).Faults.Add(f.Rule())
				if err != nil || h.ID != "x" {
					t.Errorf("%s %s %q: %v", kind, action, op, err)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d of them can be had", n)
	}
}

func TestCheckNodeFault(t *testing.T) {
	for _, x := range []struct {
		spec NodeFaultSpec
		want string
	}{
		{NodeFaultSpec{Action: PoweredOff}, ""},
		{NodeFaultSpec{Action: SlowAPI}, ""},
		{NodeFaultSpec{Action: PoweredOff, Delay: &metav1.Duration{Duration: 1}}, "delay is of SlowAPI"},
		{NodeFaultSpec{Action: SlowAPI, Delay: &metav1.Duration{}}, "positive"},
		{NodeFaultSpec{Action: ClockSkewed}, "needs a skew"},
		{NodeFaultSpec{Action: ClockSkewed, Skew: &metav1.Duration{Duration: -time.Minute}}, ""},
		{NodeFaultSpec{Action: Reboot, Skew: &metav1.Duration{Duration: 1}}, "skew is of ClockSkewed"},
	} {
		if err := x.spec.Check(); x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v: %v, want %q", x.spec, err, x.want)
		}
	}
}

func TestNear(t *testing.T) {
	if got := Near("ControlerPublishVolume", lab.CSIMethods()); len(got) == 0 || got[0] != "ControllerPublishVolume" {
		t.Errorf("near a slip of the pen: %v", got)
	}
	if got := Near("zzz", lab.CSIMethods()); len(got) != 0 {
		t.Errorf("near nothing: %v", got)
	}
	for _, x := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"stage", "stages", 1}} {
		if got := distance(x.a, x.b); got != x.want {
			t.Errorf("distance of %q and %q: %d", x.a, x.b, got)
		}
	}
}
