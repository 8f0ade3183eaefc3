package subpath

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/mounts"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// node is a pod's volume on a node with a simulated mount table.
type node struct {
	t      *testing.T
	h      *volumeplugin.Host
	volume string
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	table, err := mounts.OpenTable(filepath.Join(dir, "mounts.json"))
	if err != nil {
		t.Fatal(err)
	}
	return prepareNode(t, dir, table, true)
}

func prepareNode(t *testing.T, dir string, m mount.Interface, simulated bool) *node {
	t.Helper()
	l := lab.New(lab.Options{})
	n := &node{t: t, volume: filepath.Join(dir, "volume"), h: &volumeplugin.Host{Lab: l, Component: l.Component(context.Background(), "kubelet", "n1"),
		Layout: volumeplugin.Layout{Root: filepath.Join(dir, "kubelet")}, Mounter: m, Simulated: simulated}}
	n.must(os.Mkdir(n.volume, 0o750))
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) prepare(sub string, index int) (string, error) {
	return Prepare(n.t.Context(), n.h, Path{Pod: "uid", Volume: "pv", Root: n.volume, Container: "app", Index: index, SubPath: sub})
}

func TestSubPathShowsPartOfTheVolume(t *testing.T) {
	n := newNode(t)
	n.must(os.Chmod(n.volume, 0o770|os.ModeSetgid))
	target, err := n.prepare("a/b", 2)
	n.must(err)
	if want := filepath.Join(n.h.Layout.Root, "pods/uid/volume-subpaths/pv/app/2"); target != want {
		t.Errorf("bound at %s, not %s", target, want)
	}
	n.must(os.WriteFile(filepath.Join(target, "f"), []byte("x"), 0o600))
	if b, err := os.ReadFile(filepath.Join(n.volume, "a/b/f")); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
	for _, d := range []string{"a", "a/b"} {
		if fi, err := os.Stat(filepath.Join(n.volume, d)); err != nil || fi.Mode().Perm() != 0o770 || fi.Mode()&os.ModeSetgid == 0 {
			t.Errorf("%s has not the mode of the volume: %v %v", d, fi.Mode(), err)
		}
	}

	// A file of the volume is bound on a file.
	n.must(os.WriteFile(filepath.Join(n.volume, "config"), []byte("c"), 0o600))
	file, err := n.prepare("config", 0)
	n.must(err)
	if b, err := os.ReadFile(file); err != nil || string(b) != "c" {
		t.Errorf("%q %v", b, err)
	}

	n.must(Clean(t.Context(), n.h, "uid", "pv"))
	if _, err := os.Lstat(n.h.Layout.PodSubPaths("uid")); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
	if list, _ := n.h.Mounter.List(); len(list) != 0 {
		t.Errorf("still mounted: %v", list)
	}
	if b, err := os.ReadFile(filepath.Join(n.volume, "a/b/f")); err != nil || string(b) != "x" {
		t.Errorf("the volume lost its data: %q %v", b, err)
	}
	n.must(Clean(t.Context(), n.h, "uid", "pv"))
}

func TestSubPathIsReusedOrRedone(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare("a", 0)
	n.must(err)
	before, _ := n.h.Mounter.List()
	target, err := n.prepare("a", 0)
	n.must(err)
	if after, _ := n.h.Mounter.List(); len(before) != 1 || len(after) != 1 {
		t.Errorf("mounts %v, then %v", before, after)
	}
	_, err = n.prepare("b", 0)
	n.must(err)
	n.must(os.WriteFile(filepath.Join(target, "f"), nil, 0o600))
	if _, err := os.Stat(filepath.Join(n.volume, "b", "f")); err != nil {
		t.Errorf("the bind still shows the old directory: %v", err)
	}
	// A file in the place of a directory.
	n.must(os.WriteFile(filepath.Join(n.volume, "file"), []byte("x"), 0o600))
	target, err = n.prepare("file", 0)
	n.must(err)
	if b, err := os.ReadFile(target); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
	// A second volume's subPaths keep the common parent.
	_, err = Prepare(t.Context(), n.h, Path{Pod: "uid", Volume: "other", Root: n.volume, Container: "app", Index: 1, SubPath: "a"})
	n.must(err)
	n.must(Clean(t.Context(), n.h, "uid", "pv"))
	if entries, err := os.ReadDir(n.h.Layout.PodSubPaths("uid")); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestSubPathStaysInTheVolume(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(filepath.Dir(n.volume), "outside")
	n.must(os.Mkdir(outside, 0o755))
	n.must(os.Symlink("../outside", filepath.Join(n.volume, "climbs")))
	n.must(os.Symlink(outside, filepath.Join(n.volume, "absolute")))
	n.must(os.Symlink("loop", filepath.Join(n.volume, "loop")))
	n.must(os.Mkdir(filepath.Join(n.volume, "real"), 0o750))
	n.must(os.Symlink("real", filepath.Join(n.volume, "inner")))
	for sub, want := range map[string]string{
		"/etc":         "must not be an absolute path",
		"a/../../b":    "must not contain '..'",
		"climbs":       "not within volume path",
		"climbs/new":   "not within volume path",
		"absolute/new": "not within volume path",
		"loop/x":       "not within volume path",
	} {
		if target, err := n.prepare(sub, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q %v, want %q", sub, target, err, want)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("made outside of the volume: %v", entries)
	}
	if list, _ := n.h.Mounter.List(); len(list) != 0 {
		t.Errorf("mounted: %v", list)
	}
	target, err := n.prepare("inner/deep", 0)
	n.must(err)
	n.must(os.WriteFile(filepath.Join(target, "f"), nil, 0o600))
	if _, err := os.Stat(filepath.Join(n.volume, "real/deep/f")); err != nil {
		t.Errorf("a link within the volume: %v", err)
	}
}

// What cannot be unbound stays, and is said.
func TestCleanStopsAtWhatIsBusy(t *testing.T) {
	n := newNode(t)
	target, err := n.prepare("a", 0)
	n.must(err)
	if _, err := n.h.Lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "unmount", Action: lab.Fail, Code: "EBUSY", Times: 1}); err != nil {
		t.Fatal(err)
	}
	if err := Clean(t.Context(), n.h, "uid", "pv"); err == nil || !strings.Contains(err.Error(), "error unmounting") {
		t.Fatal(err)
	}
	if is, err := n.h.Mounter.IsMountPoint(target); err != nil || !is {
		t.Errorf("%v %v", is, err)
	}
	n.must(Clean(t.Context(), n.h, "uid", "pv"))
}
