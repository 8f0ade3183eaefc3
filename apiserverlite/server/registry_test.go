package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/apiserverlite/registry"
)

var realRegistry = sync.OnceValues(registry.New)

func startReal(t testing.TB, path string) *fixture {
	t.Helper()
	r, err := realRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, path, r)
}

// TestEveryKindServesItsClients lists, watches and tabulates each kind as clients of all sorts do.
func TestEveryKindServesItsClients(t *testing.T) {
	f := startReal(t, "")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	typed := informers.NewSharedInformerFactory(f.typed(t), 0)
	dyn := dynamicinformer.NewDynamicSharedInformerFactory(f.dynamic(t), 0)
	md := metadatainformer.NewSharedInformerFactory(f.metadata(t), 0)
	defer func() { cancel(); typed.Shutdown(); dyn.Shutdown(); md.Shutdown() }()
	synced := map[string]cache.InformerSynced{}
	r, _ := realRegistry()
	for _, res := range r.Resources() {
		if !(&resourceWrap{res}).lists() {
			continue
		}
		if g, err := typed.ForResource(res.GVR); err == nil { // client-go has no informers for snapshots
			synced["typed "+res.GVR.String()] = g.Informer().HasSynced
		} else if res.Protobuf && res.GVR.Group != "apiextensions.k8s.io" {
			t.Errorf("%s: %v", res.GVR, err)
		}
		synced["dynamic "+res.GVR.String()] = dyn.ForResource(res.GVR).Informer().HasSynced
		synced["metadata "+res.GVR.String()] = md.ForResource(res.GVR).Informer().HasSynced
	}
	typed.Start(ctx.Done())
	dyn.Start(ctx.Done())
	md.Start(ctx.Done())
	for name, ok := range synced {
		if !cache.WaitForCacheSync(ctx.Done(), ok) {
			t.Errorf("%s did not sync", name)
		}
	}
	for _, res := range r.Resources() {
		if !(&resourceWrap{res}).lists() {
			continue
		}
		prefix := "/apis/" + res.GVR.Group + "/" + res.GVR.Version
		if res.GVR.Group == "" {
			prefix = "/api/" + res.GVR.Version
		}
		code, _, body := f.call(t, call{method: "GET", path: prefix + "/" + res.GVR.Resource, accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"})
		if m := decode(t, body); code != 200 || m["kind"] != "Table" || m["columnDefinitions"] == nil {
			t.Errorf("%s: %d %s", res.GVR, code, body)
		}
	}
}

type resourceWrap struct{ *registry.Resource }

func (r *resourceWrap) lists() bool {
	for _, v := range r.Verbs {
		if v == "list" {
			return true
		}
	}
	return false
}

func pvcOf(name, size string) *corev1.PersistentVolumeClaim {
	p := claim(name)
	p.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse(size)}
	return p
}

// TestStorageKindsFollowTheirRules is a walk over what CSI sidecars rely on.
func TestStorageKindsFollowTheirRules(t *testing.T) {
	path := tempDB(t)
	f := startReal(t, path)
	c := f.typed(t)
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "csi.drydock.dev"}
	if _, err := c.StorageV1().StorageClasses().Create(ctx, sc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pvc, err := c.CoreV1().PersistentVolumeClaims("default").Create(ctx, pvcOf("a", "1024Mi"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName != "fast" || pvc.Status.Phase != corev1.ClaimPending || len(pvc.Finalizers) != 1 ||
		pvc.Spec.VolumeMode == nil || pvc.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Fatalf("%+v", pvc)
	}
	if _, err := c.CoreV1().PersistentVolumeClaims("default").Create(ctx, pvcOf("zero", "0"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("size 0: %v", err)
	}
	up := pvc.DeepCopy()
	up.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	if _, err := c.CoreV1().PersistentVolumeClaims("default").Update(ctx, up, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("changed access modes: %v", err)
	}
	if _, err := c.StorageV1().CSIStorageCapacities("default").Create(ctx, &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "%123-invalid-name"}, StorageClassName: "fast"}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("the provisioner's probe: %v", err)
	}
	pv := "pv"
	va, err := c.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.drydock.dev", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	va, err = c.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
	if err != nil || !va.Status.Attached {
		t.Fatalf("%+v: %v", va, err)
	}
	snaps := f.dynamic(t).Resource(snapshotv1.SchemeGroupVersion.WithResource("volumesnapshots")).Namespace("default")
	snap := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": "s"},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": "a"}}}}
	if _, err := snaps.Create(ctx, snap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := snaps.Patch(ctx, "s", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Fatalf("strategic merge of a custom resource: %v", err)
	}
	if _, err := snaps.Patch(ctx, "s", types.MergePatchType, []byte(`{"spec":{"source":{"persistentVolumeClaimName":"b"}}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("changed source: %v", err)
	}
	// One event, seen through both groups.
	if _, err := c.CoreV1().Events("default").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Reason: "Why", Message: "because", Type: "Normal",
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ev, err := c.EventsV1().Events("default").Get(ctx, "e", metav1.GetOptions{})
	if err != nil || ev.Note != "because" || ev.Regarding.Name != "a" {
		t.Fatalf("%+v: %v", ev, err)
	}
	evs, err := c.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=a"})
	if err != nil || len(evs.Items) != 1 {
		t.Fatalf("%+v: %v", evs, err)
	}
	newer := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "n"}, EventTime: metav1.NowMicro(), Action: "Act", Reason: "Why", Type: "Normal", ReportingController: "x.io/y", ReportingInstance: "z",
		Regarding: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "a"}, Note: "new"}
	if _, err := c.EventsV1().Events("default").Create(ctx, newer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if old, err := c.CoreV1().Events("default").Get(ctx, "n", metav1.GetOptions{}); err != nil || old.Message != "new" {
		t.Fatalf("%+v: %v", old, err)
	}
	// Everything is there after a restart, typed as before.
	before := f.dump(t)
	f.stop()
	f = startReal(t, path)
	if after := f.dump(t); after != before {
		t.Fatalf("after the restart:\n%s\nbefore:\n%s", after, before)
	}
}

// dump is every stored object as JSON.
func (f *fixture) dump(t *testing.T) string {
	t.Helper()
	out := map[string]any{}
	for _, r := range f.resources {
		if r.answer != nil {
			continue
		}
		for _, o := range f.reader.List(r.Storage, "") {
			m, err := metaOf(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, untyped := o.(*unstructured.Unstructured); untyped {
				t.Errorf("%s %s came back untyped", r.Storage, m.GetName())
			}
			out[fmt.Sprintf("%s %s/%s", r.Storage, m.GetNamespace(), m.GetName())] = o
		}
	}
	b, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestApplyOverRealSchemas applies a pod twice and takes a container away again: the list is merged by its key.
func TestApplyOverRealSchemas(t *testing.T) {
	f := startReal(t, "")
	c := f.dynamic(t).Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace("default")
	apply := func(u map[string]any, manager string) error {
		_, err := c.Apply(ctx, "a", &unstructured.Unstructured{Object: u}, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	object := func(size string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "a", "namespace": "default"},
			"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": size}}}}
	}
	if err := apply(object("1Gi"), "one"); err != nil {
		t.Fatal(err)
	}
	err := apply(object("2Gi"), "two")
	if !apierrors.IsConflict(err) || err.Error() != `Apply failed with 1 conflict: conflict with "one": .spec.resources.requests.storage` {
		t.Fatalf("conflict: %v", err)
	}
	bad := object("1Gi")
	bad["spec"].(map[string]any)["foo"] = "x"
	err = apply(bad, "one")
	if err == nil || err.Error() != `failed to create typed patch object (default/a; /v1, Kind=PersistentVolumeClaim): .spec.foo: field not declared in schema` {
		t.Fatalf("unknown field: %v", err)
	}
}

func TestOpenAPIIsMounted(t *testing.T) {
	f := startReal(t, "")
	code, _, body := f.call(t, call{method: "GET", path: "/openapi/v3"})
	if f.openAPI() == nil {
		t.Skip("the registry has no OpenAPI yet")
	}
	if code != 200 || len(body) < 100 {
		t.Fatalf("%d %s", code, body)
	}
}
