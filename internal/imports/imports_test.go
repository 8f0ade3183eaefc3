// Package imports holds the test that keeps dependencies pointing one way.
package imports

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const module = "drydock.dev/drydock/"

// allowed lists, for each part of the tree, which other parts its code may import.
// The boxes meet over public protocols; whoever needs another box's Go code has
// found a missing protocol. Tests may start other boxes.
var allowed = map[string][]string{
	"cmd":           {"internal/cluster", "internal/guest", "internal/host", "internal/check", "internal/stages", "internal/lab", "internal/labobjects", "examples"},
	"examples":      {},
	"fakecloud":     {"internal/lab"},
	"apiserverlite": {"internal/lab"},
	"driver":        {"internal/inprocess", "internal/lab", "internal/mounts", "internal/sock"},
	"nodesim":       {"internal/lab", "internal/mounts", "internal/sock"},
	"web":           {"internal/lab", "internal/stages"},

	"internal/lab":         {"internal/inprocess", "internal/sock"},
	"internal/held":        {},
	"internal/labobjects":  {"internal/lab"},
	"internal/sock":        {},
	"internal/host":        {},
	"internal/inprocess":   {},
	"internal/guest":       {},
	"internal/mounts":      {},
	"internal/check":       {},
	"internal/stages":      {"internal/lab"},
	"internal/imports":     {},
	"internal/conformance": {},
	"internal/scenario":    {"internal/lab", "internal/sock", "internal/check", "internal/stages"},
	"internal/cluster": {"fakecloud", "apiserverlite", "driver", "nodesim", "web",
		"internal/lab", "internal/sock", "internal/host", "internal/guest", "internal/mounts", "internal/check", "internal/stages", "internal/scenario", "internal/labobjects"},
	"internal/bench": {"internal/cluster", "internal/host"},
}

// only lists libraries that belong to one part, with the reason.
var only = []struct{ library, part, reason string }{
	{"k8s.io/kubernetes/", "apiserverlite/registry driver/sidecar/gates", "upstream's rules of the kinds live in the registry, and nothing else of that module is used; gates tests that its feature gates and the sidecars' get along"},
	{"github.com/chromedp/", "web/webtest", "no other test needs a browser"},
	{"k8s.io/apiserver", "driver/sidecar/gates apiserverlite/registry", "its storage and handlers are what apiserverlite replaces; the sidecars keep their feature gates there, and the registry runs CEL rules by its libraries"},
	{"go.etcd.io/", "", "SQLite is the storage"},
	{"github.com/digitalocean/godo", "driver fakecloud internal/cluster internal/bench", "only the driver is a client of the cloud; the others test, check or measure it"},
	{"github.com/mattn/go-sqlite3", "apiserverlite/storage fakecloud", "each box owns its database"},
}

func TestDirections(t *testing.T) {
	root := "../.."
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel == filepath.Join("internal", "interop") || strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" || d.Name() == "bin" {
			return filepath.SkipDir // interop is a module of its own: the oracles may know everything
		}
		p, err := build.Default.ImportDir(path, 0)
		if err != nil {
			if _, none := err.(*build.NoGoError); none {
				return nil
			}
			return err
		}
		pkg := filepath.ToSlash(rel)
		part := partOf(pkg)
		if _, known := allowed[part]; !known {
			t.Errorf("%s: belongs to no part of the house; see the table in this test", pkg)
			return nil
		}
		seen[part] = true
		for _, imp := range p.Imports {
			checkLibrary(t, pkg, imp)
			if own, ok := strings.CutPrefix(imp, module); ok && partOf(own) != part && !contains(allowed[part], partOf(own)) {
				t.Errorf("%s imports %s: %s may import only %v", pkg, own, part, allowed[part])
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			checkLibrary(t, pkg, imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"cmd", "fakecloud", "apiserverlite", "driver", "nodesim", "web", "internal/cluster"} {
		if !seen[part] {
			t.Errorf("the test looked at no package of %s", part)
		}
	}
}

// TestControllersSpeakTheAPI holds the controllers to the Kubernetes API: they share a folder with the server, not its code.
func TestControllersSpeakTheAPI(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../../apiserverlite/controllers", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		p, err := build.Default.ImportDir(path, 0)
		if err != nil {
			return nil
		}
		n++
		for _, imp := range p.Imports {
			for _, box := range []string{"storage", "server", "registry"} {
				if strings.HasPrefix(imp, module+"apiserverlite/"+box) {
					t.Errorf("%s imports %s", path, imp)
				}
			}
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("looked at %d packages: %v", n, err)
	}
}

func checkLibrary(t *testing.T, pkg, imp string) {
	for _, o := range only {
		if !strings.HasPrefix(imp, o.library) {
			continue
		}
		ok := false
		for _, part := range strings.Fields(o.part) {
			ok = ok || pkg == part || strings.HasPrefix(pkg, part+"/")
		}
		if !ok {
			t.Errorf("%s imports %s, which is only for %q: %s", pkg, imp, o.part, o.reason)
		}
	}
}

func partOf(pkg string) string {
	f := strings.Split(pkg, "/")
	if f[0] == "internal" && len(f) > 1 {
		return f[0] + "/" + f[1]
	}
	return f[0]
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
