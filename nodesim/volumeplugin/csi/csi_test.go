package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ what, got, want string }{
		{"attachment", AttachmentName("vol-00a1", "blk.sim.example.com", "node-1"), "csi-a30979af53b40e60bec35a2421357b3b0446bb0f8276e48d749a73a2819e0b65"},
		{"staging", StagingName("vol-00a1"), "68109bc1604df3e69fb5b314231dd9fa8e9d4a47d672de2e3bcd78c9efbc5aa3"},
		{"inline", InlineHandle("6f1c2d3e-0000-4000-8000-000000000001", "scratch"), "csi-b72a615138f402c7c49c2dc522c29fc29ce5d3328efaa58417343937deaa9c83"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestPaths(t *testing.T) {
	p := New(&volumeplugin.Host{Layout: volumeplugin.Layout{Root: "/var/lib/kubelet"}})
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-0b5e"}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "blk.sim.example.com", VolumeHandle: "vol-00a1"}
	spec := &volumeplugin.Spec{PV: pv}
	device, err := p.DeviceMountPath(spec)
	if err != nil {
		t.Fatal(err)
	}
	name, err := volumeplugin.NewRegistry(p).UniqueNameOf(spec, "uid")
	if err != nil {
		t.Fatal(err)
	}
	inline := &volumeplugin.Spec{Volume: &v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}}
	inlineName, err := volumeplugin.NewRegistry(p).UniqueNameOf(inline, "uid")
	if err != nil {
		t.Fatal(err)
	}
	b := &block{p: p, inner: "pvc-0b5e", uid: "6f1c"}
	dir, link := b.PodDeviceMapPath()
	const root = "/var/lib/kubelet/"
	for _, c := range []struct{ what, got, want string }{
		{"target", p.target("6f1c", "pvc-0b5e"), root + "pods/6f1c/volumes/kubernetes.io~csi/pvc-0b5e/mount"},
		{"global mount", device, root + "plugins/kubernetes.io/csi/blk.sim.example.com/68109bc1604df3e69fb5b314231dd9fa8e9d4a47d672de2e3bcd78c9efbc5aa3/globalmount"},
		{"unique name", string(name), "kubernetes.io/csi/blk.sim.example.com^vol-00a1"},
		{"inline unique name", string(inlineName), "kubernetes.io/csi/uid-scratch"},
		{"block data", b.data(), root + "plugins/kubernetes.io/csi/volumeDevices/pvc-0b5e/data"},
		{"global map", b.GlobalMapPath(), root + "plugins/kubernetes.io/csi/volumeDevices/pvc-0b5e/dev"},
		{"block staging", b.staging(), root + "plugins/kubernetes.io/csi/volumeDevices/staging/pvc-0b5e"},
		{"block publish", b.target(), root + "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-0b5e/6f1c"},
		{"pod device", filepath.Join(dir, link), root + "pods/6f1c/volumeDevices/kubernetes.io~csi/pvc-0b5e"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestDataFileBytes(t *testing.T) {
	dir := t.TempDir()
	err := saveData(dir, map[string]string{keySpecName: "pvc-0b5e", keyHandle: "vol-00a1", keyDriver: "blk.sim.example.com", keyNode: "node-1",
		keyMode: modePersist, keyAttach: AttachmentName("vol-00a1", "blk.sim.example.com", "node-1")})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"attachmentID":"csi-a30979af53b40e60bec35a2421357b3b0446bb0f8276e48d749a73a2819e0b65",` +
		`"driverName":"blk.sim.example.com","nodeName":"node-1","specVolID":"pvc-0b5e","volumeHandle":"vol-00a1","volumeLifecycleMode":"Persistent"}` + "\n"
	got, err := os.ReadFile(filepath.Join(dir, dataFile))
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s (%v)", got, want, err)
	}
	spec, err := New(&volumeplugin.Host{}).Reconstruct("uid", "pvc-0b5e", dir)
	if err != nil || spec.Name() != "pvc-0b5e" || spec.PV.Spec.CSI.VolumeHandle != "vol-00a1" || spec.PV.Spec.CSI.Driver != "blk.sim.example.com" {
		t.Errorf("reconstructed %+v %v", spec, err)
	}
}

func FuzzDataFile(f *testing.F) {
	f.Add([]byte(`{"driverName":"d","specVolID":"s","volumeHandle":"h","volumeLifecycleMode":"Ephemeral"}`))
	f.Add([]byte(`{`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, dataFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		spec, err := New(&volumeplugin.Host{}).Reconstruct("uid", "x", dir)
		if err == nil && (spec.Name() == "" || driverOf(spec) == "") {
			t.Errorf("%q was taken for a volume", b)
		}
	})
}

func TestClassify(t *testing.T) {
	c := &client{}
	uncertain := map[codes.Code]bool{codes.Canceled: true, codes.DeadlineExceeded: true, codes.ResourceExhausted: true, codes.Aborted: true, codes.Unavailable: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		err := c.classify(status.Error(code, "x"))
		want := volumeplugin.Final
		if uncertain[code] {
			want = volumeplugin.Uncertain
		}
		if got := volumeplugin.ClassOf(err); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
		if status.Code(err) != code {
			t.Errorf("%s became %s", code, status.Code(err))
		}
		// Only the outermost type counts.
		if got := volumeplugin.ClassOf(errors.Join(err)); got != volumeplugin.Final {
			t.Errorf("wrapped %s is %s, want final", code, got)
		}
	}
	if got := volumeplugin.ClassOf(c.classify(context.DeadlineExceeded)); got != volumeplugin.Uncertain {
		t.Errorf("an error that is none of gRPC's is %s", got)
	}
}

func TestRemoveMountDirLeavesStrayFiles(t *testing.T) {
	h := &volumeplugin.Host{Mounter: noMounts{}}
	dir := filepath.Join(t.TempDir(), "pv")
	target := filepath.Join(dir, mountDirName)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(target, "data")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeMountDir(h, target, "v"); err == nil {
		t.Error("a directory with a file in it was removed")
	}
	if _, err := os.Stat(stray); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

// TestLookupsWaitForTheCache: what a CSIDriver says is not guessed before all are known.
func TestLookupsWaitForTheCache(t *testing.T) {
	notYet := errors.New("not yet")
	h := &volumeplugin.Host{Life: t.Context(), CSIDriversSynced: func(context.Context) error { return notYet }} // there is no lister to ask
	p := New(h)
	spec := &volumeplugin.Spec{PV: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}}}
	if _, err := p.SELinuxMount(spec); !errors.Is(err, notYet) {
		t.Errorf("seLinuxMount: %v", err)
	}
	if _, err := p.Attachable(spec); !errors.Is(err, notYet) {
		t.Errorf("attachRequired: %v", err)
	}
}
