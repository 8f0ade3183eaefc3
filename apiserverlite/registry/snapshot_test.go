package registry_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	groupv1beta1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta1"
	groupv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

// definition is what a CRD of the snapshot module says.
type definition struct {
	Spec struct {
		Group string
		Scope string
		Names struct {
			Kind, Plural, Singular string
			ShortNames, Categories []string
		}
		Versions []struct {
			Name                     string
			Served                   bool
			Subresources             map[string]any
			AdditionalPrinterColumns []struct{ Name, Type, JSONPath, Description string }
		}
	}
}

// The snapshot kinds look as if their definitions were installed.
func TestSnapshotDiscovery(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(module(t, "github.com/kubernetes-csi/external-snapshotter/client/v8"), "config", "crd", "*snapshot*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		n := d.Spec.Names
		for _, v := range d.Spec.Versions {
			gvr := schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: n.Plural}
			r, ok := reg(t).Lookup(gvr)
			if ok != v.Served {
				t.Errorf("%s: served %v, upstream %v", gvr, ok, v.Served)
			}
			if !ok {
				continue
			}
			if r.GVK.Kind != n.Kind || r.Singular != n.Singular || !slices.Equal(r.ShortNames, n.ShortNames) || !slices.Equal(r.Categories, n.Categories) || r.Namespaced != (d.Spec.Scope == "Namespaced") || r.Protobuf {
				t.Errorf("%s: %+v differs from %+v", gvr, r, n)
			}
			if _, status := r.Subresources["status"]; status != (v.Subresources["status"] != nil) {
				t.Errorf("%s: status subresource %v", gvr, status)
			}
			tab, err := r.Table(context.Background(), r.New(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, c := range tab.ColumnDefinitions[1:] {
				got = append(got, c.Name+" "+c.Type+": "+c.Description)
			}
			for _, c := range v.AdditionalPrinterColumns {
				text := "Custom resource definition column (in JSONPath format): " + c.JSONPath
				if c.Description != "" { // upstream's words are not ours
					text = openapi.SnapshotText(n.Kind, strings.TrimPrefix(c.JSONPath, "."))
				}
				if text == "" {
					t.Errorf("%s: column %s is not described", gvr, c.Name)
				}
				want = append(want, c.Name+" "+c.Type+": "+text)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: columns\n%v\nwant\n%v", gvr, got, want)
			}
		}
	}
}

func TestGroupSnapshotContentRules(t *testing.T) {
	r := find(t, "volumegroupsnapshotcontents")
	old, errs := create(t, r, `
metadata: {name: g}
spec: {driver: d.io, deletionPolicy: Delete, volumeGroupSnapshotClassName: k, source: {volumeHandles: [a, b]}, volumeGroupSnapshotRef: {name: g, namespace: ns, uid: u}}
`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, x := range []struct {
		name   string
		change func(*groupv1.VolumeGroupSnapshotContentSpec)
		want   []string
	}{
		{"nothing", func(*groupv1.VolumeGroupSnapshotContentSpec) {}, nil},
		{"driver and class", func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.Driver, s.VolumeGroupSnapshotClassName = "e.io", ptr.To("l")
		}, []string{`spec.driver: Invalid value: "e.io": driver is immutable once set`, `spec.volumeGroupSnapshotClassName: Invalid value: "l": volumeGroupSnapshotClassName is immutable once set`}},
		{"volumes", func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.Source.VolumeHandles = []string{"a"} }, []string{"spec.source.volumeHandles: Invalid value: volumeHandles is immutable"}},
		{"no source", func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.Source.VolumeHandles = nil },
			[]string{"spec.source: Invalid value: volumeHandles is required once set", "exactly one of volumeHandles and groupSnapshotHandles must be set"}},
		{"another group", func(s *groupv1.VolumeGroupSnapshotContentSpec) {
			s.VolumeGroupSnapshotRef = corev1.ObjectReference{Name: "h", Namespace: "ns", UID: "u"}
		},
			[]string{"volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable"}},
		{"another uid", func(s *groupv1.VolumeGroupSnapshotContentSpec) { s.VolumeGroupSnapshotRef.UID = "" }, []string{"volumeGroupSnapshotRef.uid is immutable once set"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, errs := update(t, r, "", old, func(o runtime.Object) { x.change(&o.(*groupv1.VolumeGroupSnapshotContent).Spec) })
			expect(t, errs, x.want...)
		})
	}
	bad := old.DeepCopyObject().(*groupv1.VolumeGroupSnapshotContent)
	bad.Spec.VolumeGroupSnapshotRef = corev1.ObjectReference{}
	if _, errs := update(t, r, "status", bad, func(o runtime.Object) {
		o.(*groupv1.VolumeGroupSnapshotContent).Status = &groupv1.VolumeGroupSnapshotContentStatus{ReadyToUse: ptr.To(true)}
	}); len(errs) > 0 {
		t.Errorf("what was wrong before stops a write of the status: %v", errs)
	}
}

// A class of a group keeps all it says; one of plain snapshots does not.
func TestSnapshotClasses(t *testing.T) {
	group, plain := find(t, "volumegroupsnapshotclasses"), find(t, "volumesnapshotclasses")
	old, errs := create(t, group, `{metadata: {name: k}, driver: d.io, deletionPolicy: Delete, parameters: {a: b}}`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	_, errs = update(t, group, "", old, func(o runtime.Object) {
		c := o.(*groupv1.VolumeGroupSnapshotClass)
		c.Driver, c.DeletionPolicy, c.Parameters = "e.io", "Retain", map[string]string{"a": "c"}
	})
	expect(t, errs, "driver is immutable once set", "deletionPolicy is immutable once set", "parameters: Invalid value: parameters are immutable once set")
	old, _ = create(t, plain, `{metadata: {name: k}, driver: d.io, deletionPolicy: Delete}`)
	_, errs = update(t, plain, "", old, func(o runtime.Object) { o.(*snapshotv1.VolumeSnapshotClass).Driver = "e.io" })
	expect(t, errs)
}

// One object in all its versions: what a version does not know is lost in it, nothing else.
func TestVersionsOfAGroupSnapshot(t *testing.T) {
	lookup := func(version, resource string) *registry.Resource {
		r, ok := reg(t).Lookup(schema.GroupVersionResource{Group: "groupsnapshot.storage.k8s.io", Version: version, Resource: resource})
		if !ok {
			t.Fatal(version, resource)
		}
		return r
	}
	r := lookup("v1beta1", "volumegroupsnapshots")
	old, errs := create(t, r, `{metadata: {name: g, namespace: ns, labels: {a: b}}, spec: {source: {selector: {matchLabels: {a: b}}}}, status: {readyToUse: true}}`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	g := old.(*groupv1beta1.VolumeGroupSnapshot)
	if g.Status != nil || g.Generation != 1 || g.Labels["a"] != "b" || g.APIVersion != "" {
		t.Errorf("%+v", g)
	}
	if w := r.Deprecation; !strings.Contains(w, "groupsnapshot.storage.k8s.io/v1beta1 VolumeGroupSnapshot is deprecated") {
		t.Error(w)
	}
	got, errs := update(t, r, "status", old, func(o runtime.Object) {
		g := o.(*groupv1beta1.VolumeGroupSnapshot)
		g.Status = &groupv1beta1.VolumeGroupSnapshotStatus{ReadyToUse: ptr.To(true)}
		g.Spec.Source.Selector = nil
	})
	if g := got.(*groupv1beta1.VolumeGroupSnapshot); len(errs) > 0 || g.Status == nil || g.Spec.Source.Selector == nil {
		t.Errorf("%v %+v", errs, g)
	}
	stored, err := r.ToStorage(got)
	if err != nil {
		t.Fatal(err)
	}
	view, err := lookup("v1beta2", "volumegroupsnapshots").FromStorage(stored)
	if err != nil || !*view.(*groupv1beta2.VolumeGroupSnapshot).Status.ReadyToUse {
		t.Errorf("%v %+v", err, view)
	}
	if set := r.Strategy.ResetFields(); set["groupsnapshot.storage.k8s.io/v1beta1"] == nil {
		t.Error(set)
	}
	if r.Strategy.GracePeriod(old, &metav1.DeleteOptions{}) != 0 || r.Strategy.AllowUnconditionalUpdate() {
		t.Error("a custom resource is not deleted gracefully and not replaced without a version")
	}

	content := &groupv1.VolumeGroupSnapshotContent{Status: &groupv1.VolumeGroupSnapshotContentStatus{VolumeSnapshotInfoList: []groupv1.VolumeSnapshotInfo{{VolumeHandle: "a"}}}}
	o, err := lookup("v1beta1", "volumegroupsnapshotcontents").FromStorage(content)
	if err != nil || o.(*groupv1beta1.VolumeGroupSnapshotContent).Status == nil {
		t.Errorf("%v %+v", err, o)
	}
	if content.Status.VolumeSnapshotInfoList == nil {
		t.Error("looking at a stored object changes it")
	}
}
