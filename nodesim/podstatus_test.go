package nodesim

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// What a status does not say any more is gone from the object that it is merged into.
func TestStatusPatchTakesWordsAway(t *testing.T) {
	var old, want v1.Pod
	old.UID, want.UID = "u", "u"
	old.Status = v1.PodStatus{
		Phase: v1.PodPending, Reason: "Because", Message: "of something", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []v1.PodCondition{
			{Type: "Theirs", Status: v1.ConditionTrue, Reason: "Kept"},
			{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [c]"},
		},
	}
	own := v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	want.Status = own
	want.Status.Conditions = []v1.PodCondition{old.Status.Conditions[0], own.Conditions[0]}

	patch, err := statusPatch(old.UID, &own)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var got v1.Pod
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the merged pod (-want +got):\n%s", d)
	}
}
