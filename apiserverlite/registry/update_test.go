package registry_test

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/registry"
)

func bound(o runtime.Object) {
	c := o.(*corev1.PersistentVolumeClaim)
	c.Status.Phase = corev1.ClaimBound
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c.Spec.VolumeName = "v"
}

func size(s string) func(runtime.Object) {
	return func(o runtime.Object) {
		o.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(s)
	}
}

const immutableClaim = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"

// What may change, and what upstream says when it may not.
func TestUpdate(t *testing.T) {
	for _, x := range []struct {
		name, plural, sub, doc string
		before, change         func(runtime.Object)
		want                   []string
	}{
		{"a claim is bound", "persistentvolumeclaims", "", claimDoc, nil, func(o runtime.Object) { o.(*corev1.PersistentVolumeClaim).Spec.VolumeName = "v" }, nil},
		{"an unbound claim grows", "persistentvolumeclaims", "", claimDoc, nil, size("2Gi"), []string{immutableClaim}},
		{"a bound claim grows", "persistentvolumeclaims", "", claimDoc, bound, size("2Gi"), nil},
		{"a bound claim shrinks", "persistentvolumeclaims", "", claimDoc, bound, size("1Mi"), []string{"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		{"a claim's mode", "persistentvolumeclaims", "", claimDoc, bound, func(o runtime.Object) {
			o.(*corev1.PersistentVolumeClaim).Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, []string{immutableClaim}},
		{"a claim's volume", "persistentvolumeclaims", "", claimDoc, bound, func(o runtime.Object) { o.(*corev1.PersistentVolumeClaim).Spec.VolumeName = "w" }, []string{immutableClaim}},
		{"a claim's wrong resize status", "persistentvolumeclaims", "status", claimDoc, bound, func(o runtime.Object) {
			o.(*corev1.PersistentVolumeClaim).Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: "Soon"}
		}, []string{"status.allocatedResourceStatuses: Unsupported value"}},

		{"a volume's source", "persistentvolumes", "", volumeDoc, nil, func(o runtime.Object) { o.(*corev1.PersistentVolume).Spec.CSI.VolumeHandle = "other" },
			[]string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"}},
		{"a volume's policy, size and claim", "persistentvolumes", "", volumeDoc, nil, func(o runtime.Object) {
			s := &o.(*corev1.PersistentVolume).Spec
			s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			s.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
			s.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
		}, nil},

		{"a pod's image", "pods", "", podDoc, nil, func(o runtime.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = "z" }, nil},
		{"a pod's volume", "pods", "", podDoc, nil, func(o runtime.Object) { o.(*corev1.Pod).Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "d" },
			[]string{"spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"}},

		{"a class's provisioner and parameters", "storageclasses", "", `{metadata: {name: s}, provisioner: p.io}`, nil, func(o runtime.Object) {
			c := o.(*storagev1.StorageClass)
			c.Provisioner, c.Parameters = "q.io", map[string]string{"a": "b"}
		}, []string{"provisioner: Invalid value: null: field is immutable", "parameters: Invalid value: null: field is immutable"}},
		{"a class's expansion", "storageclasses", "", `{metadata: {name: s}, provisioner: p.io}`, nil, func(o runtime.Object) { o.(*storagev1.StorageClass).AllowVolumeExpansion = ptr.To(true) }, nil},
		{"an attachment's node", "volumeattachments", "", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {persistentVolumeName: v}}}`, nil,
			func(o runtime.Object) { o.(*storagev1.VolumeAttachment).Spec.NodeName = "m" }, []string{"spec: Invalid value"}},
		{"an attachment's long error", "volumeattachments", "status", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {persistentVolumeName: v}}}`, nil, func(o runtime.Object) {
			o.(*storagev1.VolumeAttachment).Status.AttachError = &storagev1.VolumeError{Message: string(make([]byte, 1025))}
		}, []string{"status.attachError.message: Too long"}},
		{"a driver's attach rule", "csidrivers", "", `{metadata: {name: d.io}, spec: {}}`, nil, func(o runtime.Object) { o.(*storagev1.CSIDriver).Spec.AttachRequired = ptr.To(false) },
			[]string{"spec.attachedRequired: Invalid value: false: field is immutable"}},
		{"a node's driver", "csinodes", "", `{metadata: {name: n}, spec: {drivers: [{name: d.io, nodeID: "1", topologyKeys: null}]}}`, nil,
			func(o runtime.Object) { o.(*storagev1.CSINode).Spec.Drivers[0].NodeID = "2" }, []string{"field is immutable"}},
		{"a capacity's class", "csistoragecapacities", "", `{metadata: {name: c, namespace: ns}, storageClassName: s}`, nil,
			func(o runtime.Object) { o.(*storagev1.CSIStorageCapacity).StorageClassName = "t" }, []string{"storageClassName: Invalid value: \"t\": field is immutable"}},
		{"attributes", "volumeattributesclasses", "", `{metadata: {name: a}, driverName: d.io, parameters: {a: b}}`, nil,
			func(o runtime.Object) { o.(*storagev1.VolumeAttributesClass).Parameters["a"] = "c" }, []string{"parameters: Forbidden: updates to parameters are forbidden."}},
		{"an immutable config map", "configmaps", "", `{metadata: {name: c, namespace: ns}, immutable: true, data: {a: b}}`, nil,
			func(o runtime.Object) { o.(*corev1.ConfigMap).Data["a"] = "c" }, []string{"data: Forbidden: field is immutable when `immutable` is set"}},
		{"an immutable secret", "secrets", "", `{metadata: {name: c, namespace: ns}, immutable: true, stringData: {a: b}}`, nil,
			func(o runtime.Object) { o.(*corev1.Secret).Data["a"] = []byte("c") }, []string{"data: Forbidden: field is immutable when `immutable` is set"}},
		{"a snapshot's claim", "volumesnapshots", "", `{metadata: {name: s, namespace: ns}, spec: {source: {persistentVolumeClaimName: c}}}`, nil,
			func(o runtime.Object) {
				o.(*snapshotv1.VolumeSnapshot).Spec.Source.PersistentVolumeClaimName = ptr.To("d")
			}, []string{`spec.source.persistentVolumeClaimName: Invalid value: "d": persistentVolumeClaimName is immutable`}},
		{"a snapshot's source for another", "volumesnapshots", "", `{metadata: {name: s, namespace: ns}, spec: {source: {persistentVolumeClaimName: c}}}`, nil, func(o runtime.Object) {
			o.(*snapshotv1.VolumeSnapshot).Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("x")}
		}, []string{"persistentVolumeClaimName is required once set"}},
		{"a content's mode", "volumesnapshotcontents", "", contentDoc, nil, func(o runtime.Object) { o.(*snapshotv1.VolumeSnapshotContent).Spec.SourceVolumeMode = nil },
			[]string{"spec: Invalid value: sourceVolumeMode is required once set"}},
		{"a content's policy", "volumesnapshotcontents", "", contentDoc, nil, func(o runtime.Object) {
			o.(*snapshotv1.VolumeSnapshotContent).Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
		}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := find(t, x.plural)
			old, errs := create(t, r, x.doc)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if x.before != nil {
				x.before(old)
			}
			_, errs = update(t, r, x.sub, old, x.change)
			expect(t, errs, x.want...)
		})
	}
}

const contentDoc = `
metadata: {name: s}
spec: {driver: d.io, deletionPolicy: Delete, sourceVolumeMode: Filesystem, source: {volumeHandle: a}, volumeSnapshotRef: {name: x, namespace: ns}}
`

// A write of the object leaves the status alone, a write of the status everything else; only what
// upstream counts makes a new generation.
func TestStatusAndSpecAreApart(t *testing.T) {
	for _, plural := range []string{"pods", "persistentvolumeclaims", "persistentvolumes", "nodes", "namespaces", "volumeattachments", "csinodes", "poddisruptionbudgets", "volumesnapshots", "volumesnapshotcontents"} {
		t.Run(plural, func(t *testing.T) {
			r := find(t, plural)
			doc := map[string]string{
				"pods": podDoc, "persistentvolumeclaims": claimDoc, "persistentvolumes": volumeDoc, "volumesnapshotcontents": contentDoc,
				"volumeattachments":    `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {persistentVolumeName: v}}}`,
				"volumesnapshots":      `{metadata: {name: s, namespace: ns}, spec: {source: {persistentVolumeClaimName: c}}}`,
				"poddisruptionbudgets": `{metadata: {name: b, namespace: ns}, spec: {minAvailable: 1}}`,
			}[plural]
			if doc == "" {
				doc = `{metadata: {name: x}}`
			}
			old, errs := create(t, r, doc)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			change := func(o runtime.Object) {
				m, _ := meta.Accessor(o)
				m.SetLabels(map[string]string{"changed": "yes"})
				setStatus(o)
			}
			got, errs := update(t, r, "", old, change)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if hasStatus(got) {
				t.Error("a write of the object changes its status")
			}
			got, errs = update(t, r, "status", old, change)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if !hasStatus(got) && plural != "csinodes" {
				t.Error("a write of the status does not change it")
			}
			m, _ := meta.Accessor(got)
			before, _ := meta.Accessor(old)
			if m.GetGeneration() != before.GetGeneration() {
				t.Error("a write of the status makes a new generation")
			}
		})
	}
}

func setStatus(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status.Message = "m"
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimLost
	case *corev1.PersistentVolume:
		o.Status.Phase = corev1.VolumeFailed
	case *corev1.Node:
		o.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	case *corev1.Namespace:
		o.Status.Conditions = []corev1.NamespaceCondition{{Type: "A", Status: "True"}}
	case *storagev1.VolumeAttachment:
		o.Status.Attached = true
	case *policyv1.PodDisruptionBudget:
		o.Status.CurrentHealthy = 1
	case *snapshotv1.VolumeSnapshot:
		o.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true)}
	case *snapshotv1.VolumeSnapshotContent:
		o.Status = &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: ptr.To(true)}
	}
}

func hasStatus(o runtime.Object) bool {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Status.Message != ""
	case *corev1.PersistentVolumeClaim:
		return o.Status.Phase != corev1.ClaimPending
	case *corev1.PersistentVolume:
		return o.Status.Phase != corev1.VolumePending
	case *corev1.Node:
		return len(o.Status.VolumesInUse) > 0
	case *corev1.Namespace:
		return len(o.Status.Conditions) > 0
	case *storagev1.VolumeAttachment:
		return o.Status.Attached
	case *policyv1.PodDisruptionBudget:
		return o.Status.CurrentHealthy > 0
	case *snapshotv1.VolumeSnapshot:
		return o.Status != nil
	case *snapshotv1.VolumeSnapshotContent:
		return o.Status != nil
	}
	return false
}

func TestGeneration(t *testing.T) {
	for _, x := range []struct {
		plural, doc   string
		first, second int64
		change        func(runtime.Object)
	}{
		{"pods", podDoc, 1, 2, func(o runtime.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = "z" }},
		{"csidrivers", `{metadata: {name: d.io}, spec: {}}`, 0, 1, func(o runtime.Object) { o.(*storagev1.CSIDriver).Spec.RequiresRepublish = ptr.To(true) }},
		{"poddisruptionbudgets", `{metadata: {name: b, namespace: ns}, spec: {minAvailable: 1}}`, 1, 2, func(o runtime.Object) {
			o.(*policyv1.PodDisruptionBudget).Spec.MinAvailable = ptr.To(intstr.FromInt32(2))
		}},
		{"volumesnapshotcontents", contentDoc, 1, 2, func(o runtime.Object) { o.(*snapshotv1.VolumeSnapshotContent).Spec.DeletionPolicy = "Retain" }},
		{"volumesnapshotclasses", `{metadata: {name: s}, driver: d.io, deletionPolicy: Delete}`, 1, 2, func(o runtime.Object) { o.(*snapshotv1.VolumeSnapshotClass).DeletionPolicy = "Retain" }},
		{"persistentvolumes", volumeDoc, 0, 0, func(o runtime.Object) { o.(*corev1.PersistentVolume).Spec.PersistentVolumeReclaimPolicy = "Delete" }},
		{"priorityclasses", `{metadata: {name: p}, value: 1}`, 1, 1, func(runtime.Object) {}},
	} {
		t.Run(x.plural, func(t *testing.T) {
			r := find(t, x.plural)
			old, errs := create(t, r, x.doc)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got, errs := update(t, r, "", old, x.change)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			a, _ := meta.Accessor(old)
			b, _ := meta.Accessor(got)
			if a.GetGeneration() != x.first || b.GetGeneration() != x.second {
				t.Errorf("generations %d and %d, want %d and %d", a.GetGeneration(), b.GetGeneration(), x.first, x.second)
			}
		})
	}
}

// A volume's change of phase is dated by the registry's clock, unless the writer has dated it.
func TestVolumePhaseIsDated(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clk := testclock.NewFakePassiveClock(at)
	reg, err := registry.NewWith(registry.Options{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	r, ok := reg.Lookup(corev1.SchemeGroupVersion.WithResource("persistentvolumes"))
	if !ok {
		t.Fatal("no volumes")
	}
	old, _ := create(t, r, volumeDoc)
	if got := old.(*corev1.PersistentVolume).Status.LastPhaseTransitionTime; !got.Time.Equal(at) {
		t.Errorf("created: %v", got)
	}
	clk.SetTime(at.Add(time.Hour))
	phase := func(o runtime.Object) { o.(*corev1.PersistentVolume).Status.Phase = corev1.VolumeBound }
	got, _ := update(t, r, "status", old, phase)
	if s := got.(*corev1.PersistentVolume).Status; !s.LastPhaseTransitionTime.Time.Equal(at.Add(time.Hour)) {
		t.Errorf("bound: %v", s.LastPhaseTransitionTime)
	}
	mine := metav1.NewTime(at.Add(time.Minute))
	got, _ = update(t, r, "status", old, func(o runtime.Object) { phase(o); o.(*corev1.PersistentVolume).Status.LastPhaseTransitionTime = &mine })
	if s := got.(*corev1.PersistentVolume).Status; !s.LastPhaseTransitionTime.Equal(&mine) {
		t.Errorf("dated by the writer: %v", s.LastPhaseTransitionTime)
	}
}
