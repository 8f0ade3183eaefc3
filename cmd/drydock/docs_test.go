package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/labobjects/v1alpha1"
)

// TestLabDocument: each example of docs/lab.md and of the help says what the cluster takes.
func TestLabDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(b, -1) {
		objects++
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(m[1], &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Fault":
			var f v1alpha1.Fault
			if err := yaml.UnmarshalStrict(m[1], &f); err != nil {
				t.Error(err)
			}
			if err := f.Spec.Check(cluster.Points()); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		case "NodeFault":
			var f v1alpha1.NodeFault
			if err := yaml.UnmarshalStrict(m[1], &f); err != nil {
				t.Error(err)
			}
			if err := f.Spec.Check(); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		default:
			t.Errorf("an example of kind %q", kind.Kind)
		}
	}
	root := newRoot()
	text := string(b)
	for _, args := range [][]string{{"fault"}, {"fault", "add"}} {
		cmd, _, err := root.Find(args)
		if err != nil {
			t.Fatal(err)
		}
		text += "\n" + cmd.Long
	}
	commands := 0
	for _, line := range regexp.MustCompile(`(?m)^ +drydock fault add .*$`).FindAllString(text, -1) {
		commands++
		line, _, _ = strings.Cut(line, "   #")
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append(shellWords(line)[1:], "--dry-run"))
		root.SetOut(&out)
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "kind: Fault") {
			t.Errorf("%s: %v %s", strings.TrimSpace(line), err, out.String())
		}
	}
	if objects < 2 || commands < 18 {
		t.Errorf("looked at %d objects and %d commands only", objects, commands)
	}
	for _, op := range cluster.Operations() {
		if !strings.Contains(text, string(op)) {
			t.Errorf("the document says nothing of drydock node %s", op)
		}
	}
	for _, a := range v1alpha1.NodeActions() {
		if !strings.Contains(text, "`"+string(a)+"`") {
			t.Errorf("the document says nothing of %s", a)
		}
	}
}

// shellWords splits a line as a shell does that knows blanks and single quotes.
func shellWords(line string) (out []string) {
	for _, m := range regexp.MustCompile(`(?:[^\s']|'[^']*')+`).FindAllString(line, -1) {
		out = append(out, strings.ReplaceAll(m, "'", ""))
	}
	return out
}
