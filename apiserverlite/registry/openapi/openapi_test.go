package openapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// No reference leads nowhere.
func TestModelsAreClosed(t *testing.T) {
	models, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range models {
		walk(m, func(s *spec.Schema) {
			if ref := refName(s); ref != "" && models[ref] == nil {
				t.Errorf("%s refers to %s, which is not there", name, ref)
			}
		})
	}
	if len(models) < 200 {
		t.Errorf("%d models", len(models))
	}
}

// Each load is the caller's own.
func TestModelsAreNotShared(t *testing.T) {
	a, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	describe(a, []any{&corev1.Pod{}})
	const name = "io.k8s.api.core.v1.PodSpec"
	if a[name].Description == "" || b[name].Description != "" {
		t.Errorf("%q, %q", a[name].Description, b[name].Description)
	}
	// Embedded structs are described in the outer one.
	if p := a["io.k8s.api.core.v1.Volume"].Properties["persistentVolumeClaim"]; p.Description == "" {
		t.Error("a volume's source has no description")
	}
	if p := a["io.k8s.api.core.v1.Pod"].Properties["apiVersion"]; p.Description == "" {
		t.Error("apiVersion has no description")
	}
}

// Every description of a snapshot kind has its place in each version that is served.
func TestSnapshotDocsHaveTheirPlace(t *testing.T) {
	models, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	describeSnapshots(models, nil)
	for kind, docs := range snapshotDocs {
		for path, text := range docs {
			found := false
			for name, m := range models {
				if strings.HasPrefix(name, "io.k8s.storage.") && strings.HasSuffix(name, "."+kind) {
					found = found || at(*m, path).Description == text
				}
			}
			if !found {
				t.Errorf("%s has no %q", kind, path)
			}
		}
	}
}

func at(m spec.Schema, path string) spec.Schema {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		m = m.Properties[name]
	}
	return m
}

func BenchmarkModels(b *testing.B) {
	for b.Loop() {
		if _, err := Models(); err != nil {
			b.Fatal(err)
		}
	}
}
