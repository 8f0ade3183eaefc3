package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

func newFault(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "fault", Short: "Break calls on purpose, and mend them again",
		Long: `Break calls on purpose, and mend them again. A fault is an object of the cluster's API
(kind Fault, group lab.drydock.dev): it is in force while it exists, and survives a restart.

  drydock fault add late --csi NodeStageVolume --late-ok --times 1
  drydock fault add no-room --cloud 'POST /v2/volumes' --fail 403-capacity
  drydock fault add lag --api 'watch pods' --component controllers --stale
  drydock fault add dies --point 'kubelet: after NodeStage*' --kill --restart-after 2s
  drydock fault wait late            until it has fired
  drydock fault list
  drydock fault remove late

With kubectl: kubectl get faults, kubectl explain fault.spec, kubectl delete fault late.
"drydock node --help" has the faults of whole nodes, "drydock lab points" the kill points.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFaultAdd(f), newFaultList(f), newFaultDescribe(f), newFaultWait(f), newFaultRelease(f), newFaultRemove(f))
	return cmd
}

// faultFlags describe one fault.
type faultFlags struct {
	ops map[lab.Kind]*string // by the call that the flag is about

	component, node, volume, namespace, object string

	delay, restartAfter     time.Duration
	fail, lateOK            string
	lost, hang, pause, kill bool
	cut, stale              bool
	message                 string
	skip, times, percent    int
	seed                    int64
	dryRun                  bool
	output                  string
}

// anyOp stands for a flag without a value.
const anyOp = "*"

func newFaultAdd(f *flags) *cobra.Command {
	o := faultFlags{ops: map[lab.Kind]*string{}}
	cmd := &cobra.Command{
		Use: "add NAME (--csi|--cloud|--api|--kernel|--point OP) ACTION", Short: "Put a fault in force",
		Long: `Put a fault in force and return when it is. Which calls is said by one of --csi, --cloud,
--api, --kernel and --point, and narrowed by --component, --node, --volume, --namespace and
--object; all are patterns with * and ?. What becomes of them is said by one action.

  drydock fault add s1 --csi NodeStageVolume --node n1 --fail Internal --times 3
  drydock fault add s2 --csi ControllerPublishVolume --volume 'pvc-*' --delay 40s
  drydock fault add s3 --csi CreateVolume --pause          # a breakpoint: drydock fault release s3
  drydock fault add s4 --cloud 'POST /v2/volumes/{id}/actions' --fail errored
  drydock fault add s5 --api 'update pods/status' --component kubelet --percent 20 --seed 7 --fail 503
  drydock fault add s6 --api '*' --component attacher --cut
  drydock fault add s7 --kernel mkfs --fail EIO --times 1
  drydock fault add s8 --point 'driver: *' --node n2 --kill --times 1
  drydock fault add s9 --api '* volumeattachments*' --component attacher --kill --restart-after 5s --times 1

--dry-run -o yaml prints the object in place of making it: its twin is kubectl apply -f.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.addFault(cmd, args[0], &o) },
	}
	p := cmd.Flags()
	for _, x := range []struct {
		kind lab.Kind
		what string
	}{
		{lab.KindCSI, "calls of a CSI method, such as NodeStageVolume"},
		{lab.KindCloud, "requests to the cloud, such as 'POST /v2/volumes'"},
		{lab.KindAPI, "requests to the Kubernetes API, such as 'create pods' or 'update pods/status'"},
		{lab.KindKernel, "operations of kernel and tools, such as mkfs, mount, loop-attach"},
		{lab.KindPoint, "kill points, as \"drydock lab points\" writes them"},
	} {
		o.ops[x.kind] = p.String(string(x.kind), "", x.what)
	}
	p.StringVar(&o.component, "component", "", "only calls by this component: kubelet, driver, provisioner, attacher, resizer, controllers, cloud, a user agent")
	p.StringVar(&o.node, "node", "", "only on this node")
	p.StringVar(&o.volume, "volume", "", "only about this volume: its name or its handle")
	p.StringVarP(&o.namespace, "namespace", "n", "", "only API requests in this namespace")
	p.StringVar(&o.object, "object", "", "only API requests about the object of this name")

	p.DurationVar(&o.delay, "delay", 0, "action: do it this much later")
	p.StringVar(&o.fail, "fail", "", "action: answer with this code instead (Internal; 503; errored, 422-pending, 403-capacity; EIO)")
	p.StringVar(&o.lateOK, "late-ok", "", "action: do it, and answer with a timeout (for csi: or with this code)")
	p.Lookup("late-ok").NoOptDefVal = anyOp
	p.BoolVar(&o.lost, "lost", false, "action: do it, and drop the answer")
	p.BoolVar(&o.hang, "hang", false, "action: neither do it nor answer")
	p.BoolVar(&o.pause, "pause", false, "action: wait until \"drydock fault release\", then do it")
	p.BoolVar(&o.kill, "kill", false, "action: kill the component that reaches the point, or makes the call")
	p.BoolVar(&o.cut, "cut", false, "action: the component has no network")
	p.BoolVar(&o.stale, "stale", false, "action: the component's watch delivers nothing until \"drydock fault release\"")

	p.DurationVar(&o.restartAfter, "restart-after", 0, "of --kill: start it again after this long; without it, when the fault is removed")
	p.StringVar(&o.message, "message", "", "text of the error")
	p.IntVar(&o.times, "times", 0, "how often; 0 is without end")
	p.IntVar(&o.skip, "skip", 0, "let so many calls pass first")
	p.IntVar(&o.percent, "percent", 0, "hit this share of the calls; 0 is all")
	p.Int64Var(&o.seed, "seed", 0, "of --percent: the same seed hits the same calls")
	p.BoolVar(&o.dryRun, "dry-run", false, "print the object in place of making it")
	p.StringVarP(&o.output, "output", "o", "", "json or yaml: print the object")
	return cmd
}

// object is the Fault that the flags describe.
func (o *faultFlags) fault(name string) (*v1alpha1.Fault, error) {
	f := &v1alpha1.Fault{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.APIVersion, f.Kind = v1alpha1.GroupVersion.String(), "Fault"
	s := &f.Spec
	s.Match = v1alpha1.Match{Component: o.component, Node: o.node, Volume: o.volume, Namespace: o.namespace, Name: o.object}
	var about []string
	for _, k := range lab.Kinds() {
		if op := *o.ops[k]; op != "" {
			about = append(about, "--"+string(k))
			s.Match.Call, s.Match.Op = k, op
		}
	}
	if len(about) != 1 {
		return nil, usageError{fmt.Errorf("say which calls by one of --csi, --cloud, --api, --kernel and --point, not by %s", sayNone(about))}
	}
	if s.Match.Op == anyOp {
		s.Match.Op = ""
	}
	var does []string
	for _, a := range []struct {
		action lab.Action
		on     bool
	}{
		{lab.Delay, o.delay != 0}, {lab.Fail, o.fail != ""}, {lab.LateOK, o.lateOK != ""}, {lab.Lost, o.lost}, {lab.Hang, o.hang},
		{lab.Pause, o.pause}, {lab.Kill, o.kill}, {lab.Cut, o.cut}, {lab.Stale, o.stale},
	} {
		if a.on {
			does = append(does, "--"+string(a.action))
			s.Action = a.action
		}
	}
	if len(does) != 1 {
		return nil, usageError{fmt.Errorf("say what becomes of the calls by one of --delay, --fail, --late-ok, --lost, --hang, --pause, --kill, --cut and --stale, not by %s", sayNone(does))}
	}
	switch s.Action {
	case lab.Fail:
		s.Code = o.fail
	case lab.LateOK:
		if o.lateOK != anyOp {
			s.Code = o.lateOK
		}
	case lab.Delay:
		s.Delay = &metav1.Duration{Duration: o.delay}
	}
	if s.Action == lab.Stale && s.Match.Op == "" {
		s.Match.Op = anyOp
	}
	if o.restartAfter != 0 {
		s.RestartAfter = &metav1.Duration{Duration: o.restartAfter}
	}
	s.Message, s.Times, s.Skip, s.Percent, s.Seed = o.message, o.times, o.skip, o.percent, o.seed
	if err := s.Check(cluster.Points()); err != nil {
		return nil, usageError{fmt.Errorf("fault %s: %w", name, err)}
	}
	return f, nil
}

func sayNone(list []string) string {
	if len(list) == 0 {
		return "none of them"
	}
	return strings.Join(list, " and ")
}
