package labobjects

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// TestPlanOfANode: whatever NodeFaults there are, the state that is wanted covers each of them but
// those in conflict, and nothing else; a deleted one has no part in it.
func TestPlanOfANode(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := plan{conflicts: map[types.UID]string{}}
		var list []*v1alpha1.NodeFault
		for i := range rapid.IntRange(0, 8).Draw(r, "n") {
			f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("f", i), UID: types.UID(fmt.Sprint(i))}}
			f.Spec.Action = rapid.SampledFrom([]v1alpha1.NodeAction{v1alpha1.KubeletStopped, v1alpha1.KubeletKilled, v1alpha1.PoweredOff,
				v1alpha1.Partitioned, v1alpha1.SlowAPI, v1alpha1.ClockSkewed}).Draw(r, "action")
			d := &metav1.Duration{Duration: time.Duration(rapid.IntRange(1, 3).Draw(r, "seconds")) * time.Second}
			switch {
			case f.Spec.Action == v1alpha1.ClockSkewed:
				f.Spec.Skew = d
			case f.Spec.Action == v1alpha1.SlowAPI && rapid.Bool().Draw(r, "delay"):
				f.Spec.Delay = d
			}
			if rapid.IntRange(0, 3).Draw(r, "deleted") == 0 {
				f.DeletionTimestamp = &metav1.Time{}
			}
			p.add(f)
			list = append(list, f)
		}
		var parts State
		for _, f := range list {
			if f.DeletionTimestamp != nil {
				continue
			}
			conflict := p.conflicts[f.UID] != ""
			if covered := p.want.covers(f.Spec); covered == conflict {
				r.Fatalf("%s %s: conflict %v, and the state %+v covers it: %v", f.Name, f.Spec.Action, conflict, p.want, covered)
			}
			switch f.Spec.Action {
			case v1alpha1.PoweredOff:
				parts.Off = true
			case v1alpha1.Partitioned:
				parts.Cut = true
			case v1alpha1.SlowAPI:
				parts.Delay = p.want.Delay
			case v1alpha1.ClockSkewed:
				parts.Skew = p.want.Skew
			default:
				parts.Kubelet = p.want.Kubelet
			}
		}
		if parts != p.want {
			r.Fatalf("wanted is %+v, and the objects ask for %+v", p.want, parts)
		}
	})
}

func TestPhaseOfAFault(t *testing.T) {
	for _, x := range []struct {
		spec v1alpha1.FaultSpec
		done lab.Tally
		want v1alpha1.Phase
	}{
		{v1alpha1.FaultSpec{Action: lab.Fail}, lab.Tally{Seen: 2}, v1alpha1.Armed},
		{v1alpha1.FaultSpec{Action: lab.Fail, Times: 2}, lab.Tally{Fired: 1}, v1alpha1.Fired},
		{v1alpha1.FaultSpec{Action: lab.Fail, Times: 2}, lab.Tally{Fired: 2}, v1alpha1.Spent},
		{v1alpha1.FaultSpec{Action: lab.Pause, Times: 1}, lab.Tally{Fired: 1, Held: 1}, v1alpha1.Holding},
		{v1alpha1.FaultSpec{Action: lab.Pause, Released: true}, lab.Tally{Fired: 1}, v1alpha1.Released},
		{v1alpha1.FaultSpec{Action: lab.Fail, Released: true}, lab.Tally{Fired: 1}, v1alpha1.Fired},
		{v1alpha1.FaultSpec{Action: lab.Cut}, lab.Tally{Fired: 3, Held: 2}, v1alpha1.Holding},
	} {
		if got := phaseOf(x.spec, x.done); got != x.want {
			t.Errorf("%+v %+v: %s, want %s", x.spec, x.done, got, x.want)
		}
	}
}
