package mounts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/mount-utils"
	"pgregory.net/rapid"
)

// node is a table with some devices and empty targets beside it.
type node struct {
	t     testing.TB
	dir   string
	table *Table
}

func newNode(t testing.TB) *node {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir}
	n.open()
	return n
}

func (n *node) open() {
	n.t.Helper()
	var err error
	if n.table, err = OpenTable(n.path("mounts")); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) path(elem ...string) string { return filepath.Join(append([]string{n.dir}, elem...)...) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// device makes a simulated device and returns a link to it; format is empty for a blank one.
func (n *node) device(name, format string) string {
	n.t.Helper()
	dir := n.path("cloud", name+DeviceSuffix)
	n.must(os.MkdirAll(dir, 0o755))
	n.must(os.WriteFile(filepath.Join(dir, BlockFile), nil, 0o600))
	if format != "" {
		n.must(os.Mkdir(filepath.Join(dir, DataDir), 0o755))
		n.must(os.WriteFile(filepath.Join(dir, FormatFile), []byte(format+"\n"), 0o600))
	}
	n.must(os.MkdirAll(n.path("dev"), 0o755))
	n.must(os.Symlink(filepath.Join(dir, BlockFile), n.path("dev", name)))
	return n.path("dev", name)
}

func (n *node) target(elem ...string) string {
	n.t.Helper()
	n.must(os.MkdirAll(n.path(elem...), 0o750))
	return n.path(elem...)
}

func TestMountShowsTheVolumesData(t *testing.T) {
	n := newNode(t)
	dev, stage, pod := n.device("v", "ext4"), n.target("staging"), n.target("pod", "mount")
	n.must(n.table.Mount(dev, stage, "ext4", []string{"noatime"}))
	n.must(n.table.Mount(stage, pod, "", []string{"bind", "ro"}))
	n.must(os.WriteFile(filepath.Join(pod, "marker"), []byte("x"), 0o600))
	for _, p := range []string{n.path("cloud", "v.sim", "data", "marker"), filepath.Join(stage, "marker")} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	list, err := n.table.List()
	n.must(err)
	block := n.path("cloud", "v.sim", "block")
	want := []mount.MountPoint{
		{Device: block, Path: stage, Type: "ext4", Opts: []string{"noatime"}},
		{Device: block, Path: pod, Type: "ext4", Opts: []string{"bind", "ro"}},
	}
	if d := cmp.Diff(want, list); d != "" {
		t.Error(d)
	}
	for path, ref := range map[string]string{stage: pod, pod: stage} {
		if refs, err := n.table.GetMountRefs(path); err != nil || !slices.Equal(refs, []string{ref}) {
			t.Errorf("refs of %s: %v %v", path, refs, err)
		}
	}
	if refs, err := n.table.GetMountRefs(n.path("nowhere")); err != nil || len(refs) != 0 {
		t.Errorf("refs of a missing path: %v %v", refs, err)
	}
	n.must(n.table.Unmount(pod))
	n.must(n.table.Unmount(stage))
	n.must(n.table.Unmount(stage)) // is not mounted, and that is what was wanted
	for _, p := range []string{stage, pod} {
		fi, err := os.Lstat(p)
		n.must(err)
		if !fi.IsDir() || fi.Mode().Perm() != 0o750 {
			t.Errorf("%s came back as %v", p, fi.Mode())
		}
		if is, err := n.table.IsMountPoint(p); is || err != nil {
			t.Errorf("IsMountPoint(%s) = %v %v", p, is, err)
		}
	}
	if _, err := os.Stat(n.path("cloud", "v.sim", "data", "marker")); err != nil {
		t.Error(err)
	}
}

func TestBlockFileIsBound(t *testing.T) {
	n := newNode(t)
	dev, target := n.device("v", ""), n.path("publish")
	n.must(os.WriteFile(target, nil, 0o660))
	n.must(n.table.Mount(dev, target, "", []string{"bind"}))
	n.must(os.WriteFile(target, []byte("raw"), 0o600))
	if b, _ := os.ReadFile(n.path("cloud", "v.sim", "block")); string(b) != "raw" {
		t.Errorf("the device holds %q", b)
	}
	n.must(n.table.Unmount(target))
	if b, err := os.ReadFile(target); err != nil || len(b) != 0 {
		t.Errorf("the target came back with %q, %v", b, err)
	}
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	blank, ext4, dir := n.device("blank", ""), n.device("v", "ext4"), n.target("dir")
	full := n.target("full")
	n.must(os.WriteFile(filepath.Join(full, "precious"), nil, 0o600))
	file := n.path("file")
	n.must(os.WriteFile(file, []byte("precious"), 0o600))
	busy := n.target("busy")
	n.must(n.table.Mount(ext4, busy, "ext4", nil))
	for name, c := range map[string]struct {
		source, target, fstype string
		opts                   []string
		want                   string
	}{
		"blank device":       {blank, dir, "ext4", nil, "wrong fs type"},
		"other filesystem":   {ext4, dir, "xfs", nil, "wrong fs type"},
		"no mount point":     {ext4, n.path("none"), "ext4", nil, "mount point does not exist"},
		"files underneath":   {ext4, full, "ext4", nil, "not empty"},
		"device on file":     {ext4, file, "ext4", nil, "directory"},
		"file on full file":  {ext4, file, "", []string{"bind"}, "not empty"},
		"mounted already":    {ext4, busy, "ext4", nil, "already mounted"},
		"no such source":     {n.path("none"), dir, "", []string{"bind"}, "source does not exist"},
		"an ordinary file":   {file, dir, "ext4", nil, "not a simulated device"},
		"remount of nothing": {ext4, dir, "", []string{"remount", "ro"}, "not mounted"},
	} {
		if err := n.table.Mount(c.source, c.target, c.fstype, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, _ := n.table.List(); len(list) != 1 {
		t.Errorf("refused mounts are listed: %v", list)
	}
	for _, p := range []string{filepath.Join(full, "precious"), file} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.table.IsMountPoint(n.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("IsMountPoint of nothing: %v", err)
	}
	if not, err := n.table.IsLikelyNotMountPoint(n.path("none")); !not || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("IsLikelyNotMountPoint of nothing: %v %v", not, err)
	}
	if err := n.table.Unmount(n.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Unmount of nothing: %v", err)
	}
}

func TestUnmountKeepsWhatIsUsed(t *testing.T) {
	n := newNode(t)
	a, b, stage := n.device("a", "ext4"), n.device("b", "ext4"), n.target("staging")
	n.must(n.table.Mount(a, stage, "ext4", nil))
	inner := n.target("staging", "inner")
	n.must(n.table.Mount(b, inner, "ext4", nil))
	if err := n.table.Unmount(stage); !errors.Is(err, ErrBusy) {
		t.Errorf("unmount with a mount below: %v", err)
	}
	n.must(n.table.Unmount(inner))
	n.must(os.Remove(stage))
	n.must(os.WriteFile(stage, []byte("somebody's"), 0o600))
	n.must(n.table.Unmount(stage))
	if b, _ := os.ReadFile(stage); string(b) != "somebody's" {
		t.Errorf("a file in the place of the link was touched: %q", b)
	}
}

func TestReplacedLinkIsLeftAlone(t *testing.T) {
	n := newNode(t)
	dev, stage := n.device("v", "ext4"), n.target("staging")
	n.must(n.table.Mount(dev, stage, "ext4", nil))
	n.must(os.Remove(stage))
	n.must(os.Symlink(n.dir, stage))
	if err := n.table.Unmount(stage); err == nil {
		t.Error("removed a link that is not its own")
	}
	if err := n.table.Clear(); err == nil {
		t.Error("Clear removed a link that is not its own")
	}
}

func TestMountOutlivesItsDevice(t *testing.T) {
	n := newNode(t)
	dev, stage := n.device("v", "ext4"), n.target("staging")
	n.must(n.table.Mount(dev, stage, "ext4", nil))
	n.must(os.Rename(n.path("cloud"), n.path("pulled")))
	if is, err := n.table.IsMountPoint(stage); !is || err != nil {
		t.Errorf("IsMountPoint after the device went: %v %v", is, err)
	}
	n.must(n.table.Unmount(stage))
}

// A process may die between any two effects of a mount or an unmount. Clear must
// put every target back from each of those states, and from a repeat of itself.
func TestClearAfterACrash(t *testing.T) {
	for name, crash := range map[string]func(n *node, stage string){
		"whole":                   func(*node, string) {},
		"entry, target untouched": func(n *node, s string) { n.must(os.Remove(s)); n.must(os.Mkdir(s, 0o750)) },
		"entry, no target":        func(n *node, s string) { n.must(os.Remove(s)) },
		"target's parent gone":    func(n *node, s string) { n.must(os.Remove(s)); n.must(os.Remove(filepath.Dir(s))) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			dev, stage := n.device("v", "ext4"), n.target("vol", "globalmount")
			n.must(n.table.Mount(dev, stage, "ext4", nil))
			crash(n, stage)
			n.open()
			n.must(n.table.Clear())
			n.must(n.table.Clear())
			if list, _ := n.table.List(); len(list) != 0 {
				t.Errorf("left: %v", list)
			}
			if fi, err := os.Lstat(stage); err == nil && !fi.IsDir() {
				t.Errorf("target is %v", fi.Mode())
			} else if err != nil && name != "target's parent gone" {
				t.Error(err)
			}
		})
	}
}

func TestTableSurvivesItsProcess(t *testing.T) {
	n := newNode(t)
	dev, stage := n.device("v", "xfs"), n.target("staging")
	n.must(n.table.Mount(dev, stage, "xfs", []string{"nouuid"}))
	before, _ := n.table.List()
	n.open()
	after, _ := n.table.List()
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
	if left, _ := filepath.Glob(n.path(".mounts-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	n.must(os.WriteFile(n.path("mounts"), []byte("{"), 0o600))
	if _, err := OpenTable(n.path("mounts")); err == nil {
		t.Error("opened a damaged table")
	}
}

// TestModel compares random operations with a plain map of target to source.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("/tmp", "dd")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := &node{t: t, dir: dir}
		n.open()
		devs := []string{n.device("a", "ext4"), n.device("b", "xfs")}
		targets := []string{n.target("t0"), n.target("t1"), n.target("t2")}
		model := map[string]string{}
		r.Repeat(map[string]func(*rapid.T){
			"mount": func(r *rapid.T) {
				dev, target := rapid.SampledFrom(devs).Draw(r, "dev"), rapid.SampledFrom(targets).Draw(r, "target")
				err := n.table.Mount(dev, target, "", nil)
				if _, taken := model[target]; taken != (err != nil) {
					r.Fatalf("mount: %v", err)
				} else if !taken {
					model[target] = dev
				}
			},
			"bind": func(r *rapid.T) {
				from, target := rapid.SampledFrom(targets).Draw(r, "from"), rapid.SampledFrom(targets).Draw(r, "target")
				if model[from] == "" || model[target] != "" {
					return
				}
				if err := n.table.Mount(from, target, "", []string{"bind"}); err != nil {
					r.Fatal(err)
				}
				model[target] = model[from]
			},
			"unmount": func(r *rapid.T) {
				target := rapid.SampledFrom(targets).Draw(r, "target")
				if err := n.table.Unmount(target); err != nil {
					r.Fatal(err)
				}
				delete(model, target)
			},
			"reopen": func(r *rapid.T) { n.open() },
			"reboot": func(r *rapid.T) {
				n.open()
				if err := n.table.Clear(); err != nil {
					r.Fatal(err)
				}
				clear(model)
			},
			"": func(r *rapid.T) {
				for _, target := range targets {
					is, err := n.table.IsMountPoint(target)
					if err != nil || is != (model[target] != "") {
						r.Fatalf("IsMountPoint(%s) = %v %v, model %v", target, is, err, model)
					}
					refs, err := n.table.GetMountRefs(target)
					if err != nil {
						r.Fatal(err)
					}
					want := 0
					for o, dev := range model {
						if o != target && model[target] == dev {
							want++
						}
					}
					if len(refs) != want {
						r.Fatalf("refs of %s: %v, model %v", target, refs, model)
					}
				}
			},
		})
	})
}

func TestConcurrentMounts(t *testing.T) {
	n := newNode(t)
	dev := n.device("v", "ext4")
	var wg sync.WaitGroup
	for i := range 20 {
		target := n.target("t", string(rune('a'+i)))
		wg.Go(func() {
			if err := n.table.Mount(dev, target, "ext4", nil); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := n.table.Unmount(target); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n.open()
	if list, _ := n.table.List(); len(list) != 10 {
		t.Errorf("%d mounts", len(list))
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte(`{"version":1,"mounts":[{"device":"d","path":"/a","type":"ext4","opts":null,"to":"/b","mode":493}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := parseTable(b)
		if err != nil {
			return
		}
		for _, e := range entries {
			if !filepath.IsAbs(e.Path) {
				t.Errorf("accepted relative path %q", e.Path)
			}
		}
	})
}
