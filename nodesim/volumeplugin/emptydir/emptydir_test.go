package emptydir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

func newPlugin(t *testing.T, m mount.Interface) *Plugin {
	t.Helper()
	l := lab.New(lab.Options{})
	return New(&volumeplugin.Host{Lab: l, Component: l.Component(context.Background(), "kubelet", "n1"), Mounter: m,
		Layout: volumeplugin.Layout{Root: t.TempDir()}, Memory: 8 << 30})
}

func spec(src v1.EmptyDirVolumeSource) *volumeplugin.Spec {
	return &volumeplugin.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &src}}}
}

func pod(memory ...string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = "uid"
	for _, m := range memory {
		c := v1.Container{Name: "c"}
		if m != "" {
			c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(m)}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// A tmpfs is as large as the smallest of what the node has, what the pod may use and what the volume says.
func TestMemorySize(t *testing.T) {
	for name, c := range map[string]struct {
		limit  string
		memory []string
		want   string
	}{
		"the node's memory":             {"", []string{""}, "size=8589934592"},
		"the pod's limit":               {"", []string{"1Gi", "1Gi"}, "size=2147483648"},
		"a container without a limit":   {"", []string{"1Gi", ""}, "size=8589934592"},
		"the volume's limit":            {"64Mi", []string{"1Gi"}, "size=67108864"},
		"a volume's limit above others": {"4Gi", []string{"1Gi"}, "size=1073741824"},
		"a limit of zero is none":       {"0", []string{"1Gi"}, "size=1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mount.NewFakeMounter(nil)
			p := newPlugin(t, m)
			src := v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
			if c.limit != "" {
				src.SizeLimit = new(resource.MustParse(c.limit))
			}
			d, err := p.NewMounter(spec(src), pod(c.memory...))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time nothing is done
				if err := d.SetUp(t.Context(), volumeplugin.SetUpArgs{}); err != nil {
					t.Fatal(err)
				}
			}
			list, _ := m.List()
			if len(list) != 1 || list[0].Type != "tmpfs" || !slices.Contains(list[0].Opts, c.want) || !slices.Contains(list[0].Opts, "noswap") {
				t.Errorf("mounts %+v, want %s", list, c.want)
			}
			u, err := p.NewUnmounter("v", "uid")
			if err != nil {
				t.Fatal(err)
			}
			if err := u.TearDown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if list, _ := m.List(); len(list) != 0 {
				t.Errorf("still mounted: %v", list)
			}
			if _, err := os.Lstat(d.Path()); !os.IsNotExist(err) {
				t.Errorf("the directory is left: %v", err)
			}
		})
	}
}

// oldKernel knows no noswap.
type oldKernel struct{ *mount.FakeMounter }

func (k oldKernel) Mount(source, target, fstype string, options []string) error {
	if slices.Contains(options, "noswap") {
		return errors.Join(errors.New("mount"), syscall.EINVAL)
	}
	return k.FakeMounter.Mount(source, target, fstype, options)
}

func TestMemoryWithoutNoswap(t *testing.T) {
	m := oldKernel{mount.NewFakeMounter(nil)}
	d, err := newPlugin(t, m).NewMounter(spec(v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}), pod(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetUp(t.Context(), volumeplugin.SetUpArgs{}); err != nil {
		t.Fatal(err)
	}
	if list, _ := m.List(); len(list) != 1 || slices.Contains(list[0].Opts, "noswap") {
		t.Errorf("mounts %+v", list)
	}
}

func TestHugePagesAreRefused(t *testing.T) {
	for _, medium := range []v1.StorageMedium{v1.StorageMediumHugePages, v1.StorageMediumHugePagesPrefix + "2Mi", "Tape"} {
		_, err := newPlugin(t, mount.NewFakeMounter(nil)).NewMounter(spec(v1.EmptyDirVolumeSource{Medium: medium}), pod(""))
		if err == nil || !strings.Contains(err.Error(), string(medium)) {
			t.Errorf("%s: %v", medium, err)
		}
	}
}

// The marker says that the directory is set up: content is kept as long as it is there,
// and a volume without it is set up anew.
func TestDiskMarker(t *testing.T) {
	p := newPlugin(t, mount.NewFakeMounter(nil))
	d, err := p.NewMounter(spec(v1.EmptyDirVolumeSource{}), pod(""))
	if err != nil {
		t.Fatal(err)
	}
	setUp := func() {
		t.Helper()
		if err := d.SetUp(t.Context(), volumeplugin.SetUpArgs{}); err != nil {
			t.Fatal(err)
		}
	}
	setUp()
	marker := filepath.Join(p.host.Layout.PodPlugin("uid", PluginName, "v"), "ready")
	if fi, err := os.Stat(d.Path()); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("directory %v %v", fi, err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(d.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	setUp()
	if fi, _ := os.Stat(d.Path()); fi.Mode().Perm() != 0o700 {
		t.Error("a volume that is ready was set up again")
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	setUp()
	if fi, _ := os.Stat(d.Path()); fi.Mode().Perm() != 0o777 {
		t.Error("a volume without its marker was not set up")
	}
	// What is gone is torn down.
	for range 2 {
		u, err := p.NewUnmounter("v", "uid")
		if err != nil {
			t.Fatal(err)
		}
		if err := u.TearDown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
