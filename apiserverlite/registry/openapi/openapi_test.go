package openapi

import (
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

func BenchmarkModels(b *testing.B) {
	for b.Loop() {
		if _, err := Models(); err != nil {
			b.Fatal(err)
		}
	}
}
