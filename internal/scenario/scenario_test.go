package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/drydock/internal/lab"
)

func TestParseRule(t *testing.T) {
	got, err := parseRule([]string{"csi", "NodeStageVolume", "fail", "code=Internal", "times=2", "skip=1", "node=n1", "delay=3s", "message=x=y"})
	want := lab.Rule{Kind: lab.KindCSI, Op: "NodeStageVolume", Action: lab.Fail, Code: "Internal", Times: 2, Skip: 1, Node: "n1", Delay: 3 * time.Second, Message: "x=y"}
	if err != nil || !cmp.Equal(got, want) {
		t.Fatalf("%v\n%s", err, cmp.Diff(want, got))
	}
	for _, bad := range [][]string{{"rpc", "X", "fail"}, {"csi", "X", "fail", "codes=1"}, {"csi", "X", "fail", "times=many"}, {"csi", "X", "delay", "delay=soon"}} {
		if _, err := parseRule(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestTranslate(t *testing.T) {
	const in = "# wait for it\nwait pod/p running\napply wait\nkill kubelet/n1\n\n-- f --\nwait here\n"
	const want = "# wait for it\nwait-for pod/p running\napply wait\nkill-component kubelet/n1\n\n-- f --\nwait here\n"
	if got := string(translate([]byte(in))); got != want {
		t.Fatalf("got %q", got)
	}
}

func TestConditions(t *testing.T) {
	object := func(phase string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "p"},
			"status": map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}}
	}
	for _, tc := range []struct {
		words  string
		object *unstructured.Unstructured
		holds  bool
	}{
		{"gone", nil, true}, {"gone", object("Running"), false}, {"exists", nil, false}, {"exists", object(""), true},
		{"running", object("Running"), true}, {"running", object("Pending"), false}, {"running", nil, false},
		{"ready", object(""), true}, {"deleting", object(""), false}, {"bound", object("Bound"), true},
		{"{.status.phase}=Bound", object("Bound"), true}, {"{.status.phase}=Bound", object("Lost"), false},
		{"{.spec.nothing}=", object(""), true},
		{`{.status.conditions[?(@.type=="Ready")].status}=True`, object(""), true},
	} {
		c, err := parseCondition(tc.words)
		if err != nil {
			t.Fatal(err)
		}
		err = c(tc.object)
		if (err == nil) != tc.holds {
			t.Errorf("%s of %v: %v", tc.words, tc.object, err)
		}
		var no notSo
		if err != nil && !errors.As(err, &no) {
			t.Errorf("%s: %v is not a plain no", tc.words, err)
		}
	}
	for _, bad := range []string{"happy", "{.status", "phase=Bound", "{.a[}=x"} {
		if _, err := parseCondition(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestDamageStaysOnTheNode(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"a/vol_data.json", "a/b/vol_data.json", "a/other.json"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "mounted")); err != nil { // a simulated mount
		t.Fatal(err)
	}
	n, err := harmed(dir, "vol_data.json", func(p string) error { return os.Truncate(p, 0) })
	if err != nil || n != 2 {
		t.Fatalf("%d %v", n, err)
	}
	if n, err := harmed(dir, "*/b/*.json", os.Remove); err != nil || n != 1 {
		t.Fatalf("by path: %d %v", n, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "a/other.json")); string(b) != "{}" {
		t.Fatal("another file was harmed")
	}
}

func TestCompare(t *testing.T) {
	for op, want := range map[string]bool{"==": false, "<": true, "<=": true, ">": false, ">=": false} {
		if got, err := compare(1, op, 2); err != nil || got != want {
			t.Errorf("1 %s 2 is %v, %v", op, got, err)
		}
	}
	if _, err := compare(1, "=~", 1); err == nil {
		t.Error("=~ was accepted")
	}
}
