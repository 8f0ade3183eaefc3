package openapi

import (
	"fmt"
	"slices"
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

// Texts that have few values name them, in themselves and below their description; a list's are its items'.
func TestValuesOfATextAreNamed(t *testing.T) {
	m, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	describe(m, []any{corev1.PodList{}, corev1.PersistentVolumeClaim{}})
	const pod, claim, ephemeral = "io.k8s.api.core.v1.PodSpec", "io.k8s.api.core.v1.PersistentVolumeClaimSpec", "io.k8s.api.core.v1.EphemeralContainer"
	for _, c := range []struct {
		model, property string
		values          []any
	}{
		{pod, "restartPolicy", []any{"Always", "Never", "OnFailure"}},
		{claim, "volumeMode", []any{"Block", "Filesystem"}},
		{ephemeral, "imagePullPolicy", []any{"Always", "IfNotPresent", "Never"}}, // of an embedded struct
	} {
		p := m[c.model].Properties[c.property]
		list := "Possible enum values:"
		for _, v := range c.values {
			list += fmt.Sprintf("\n - `%q`", v)
		}
		if !slices.Equal(p.Enum, c.values) || !strings.HasSuffix(p.Description, "\n\n"+list) {
			t.Errorf("%s.%s: %v, %q", c.model, c.property, p.Enum, p.Description)
		}
	}
	modes := m[claim].Properties["accessModes"]
	if got := modes.Items.Schema.Enum; len(got) != 4 || strings.Contains(modes.Description, "enum") {
		t.Errorf("%v, %q", got, modes.Description)
	}
}

// No model and no property of the built-in kinds is without a text.
func TestEverythingIsDescribed(t *testing.T) {
	m, err := Models()
	if err != nil {
		t.Fatal(err)
	}
	describe(m, append(slices.Clone(common), corev1.PodList{}, corev1.PersistentVolumeClaimList{}))
	for name := range Closure(m, "io.k8s.api.core.v1.PodList", "io.k8s.api.core.v1.PersistentVolumeClaimList", modelStatus, modelDeleteOptions, "io.k8s.api.autoscaling.v1.Scale") {
		if m[name].Description == "" {
			t.Errorf("%s has no description", name)
		}
		for p, s := range m[name].Properties {
			if s.Description == "" {
				t.Errorf("%s.%s has no description", name, p)
			}
		}
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
