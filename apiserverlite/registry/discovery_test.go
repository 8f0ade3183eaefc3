package registry_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
)

// module finds a dependency's folder in the module cache.
func module(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

// shared is one registry for the tests that only read it.
var shared = sync.OnceValues(registry.New)

func reg(t testing.TB) *registry.Registry {
	t.Helper()
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every resource has upstream's names, scope, verbs and subresources, and they stand in upstream's order.
func TestDiscoveryIsASubsetOfUpstreams(t *testing.T) {
	dir := filepath.Join(module(t, "k8s.io/kubernetes"), "api", "discovery")
	byGV := map[schema.GroupVersion][]*registry.Resource{}
	for _, r := range reg(t).Resources() {
		byGV[r.GVR.GroupVersion()] = append(byGV[r.GVR.GroupVersion()], r)
	}
	for gv, list := range byGV {
		if strings.HasSuffix(gv.Group, "snapshot.storage.k8s.io") {
			continue // custom resources: see TestSnapshotDiscovery
		}
		file := "api__" + gv.Version + ".json"
		if gv.Group != "" {
			file = "apis__" + gv.Group + "__" + gv.Version + ".json"
		}
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var upstream metav1.APIResourceList
		if err := json.Unmarshal(b, &upstream); err != nil {
			t.Fatal(err)
		}
		at := map[string]metav1.APIResource{}
		last := -1
		for _, x := range upstream.APIResources {
			at[x.Name] = x
		}
		for _, r := range list {
			i := slices.IndexFunc(upstream.APIResources, func(x metav1.APIResource) bool { return x.Name == r.GVR.Resource })
			if i < 0 {
				t.Errorf("%s is not upstream's", r.GVR)
				continue
			}
			if i < last {
				t.Errorf("%s is out of order", r.GVR)
			}
			last = i
			x := upstream.APIResources[i]
			if x.SingularName != r.Singular || x.Kind != r.GVK.Kind || x.Namespaced != r.Namespaced ||
				!slices.Equal(x.ShortNames, r.ShortNames) || !slices.Equal(x.Categories, r.Categories) || !slices.Equal([]string(x.Verbs), r.Verbs) {
				t.Errorf("%s differs from upstream:\n%+v\n%+v", r.GVR, r, x)
			}
			for name, sub := range r.Subresources {
				x, ok := at[r.GVR.Resource+"/"+name]
				if !ok {
					t.Errorf("%s/%s is not upstream's", r.GVR, name)
					continue
				}
				kind := r.GVK
				if !sub.GVK.Empty() {
					kind = sub.GVK
				}
				want := schema.GroupVersionKind{Group: x.Group, Version: x.Version, Kind: x.Kind}
				if x.Version == "" {
					want.Group, want.Version = gv.Group, gv.Version
				}
				if kind != want || !slices.Equal([]string(x.Verbs), sub.Verbs) {
					t.Errorf("%s/%s differs from upstream: %v %v, want %v %v", r.GVR, name, kind, sub.Verbs, want, x.Verbs)
				}
			}
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := registry.New(); err != nil {
			b.Fatal(err)
		}
	}
}
