package registry_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// expect compares errors with texts, each of which one error must contain; none may be left over.
func expect(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Errorf("%d errors, want %d: %v", len(errs), len(want), errs.ToAggregate())
		return
	}
	for _, w := range want {
		found := false
		for _, e := range errs {
			found = found || strings.Contains(e.Error(), w)
		}
		if !found {
			t.Errorf("no error says %q: %v", w, errs.ToAggregate())
		}
	}
}

// New objects: the texts are those that clients of upstream see.
func TestCreate(t *testing.T) {
	for _, x := range []struct {
		name, plural, doc string
		want              []string
	}{
		{"claim", "persistentvolumeclaims", claimDoc, nil},
		{"claim of no mode", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {resources: {requests: {storage: 1Gi}}}}`,
			[]string{"spec.accessModes: Required value: at least 1 access mode is required"}},
		{"claim of no size", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce]}}`,
			[]string{"spec.resources[storage]: Required value"}},
		{"claim of size 0", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "0"}}}}`,
			[]string{`spec.resources[storage]: Invalid value: "0": must be greater than zero`}},
		{"claim of a bad class", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], storageClassName: A_B, resources: {requests: {storage: 1}}}}`,
			[]string{`spec.storageClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of`}},
		{"claim of exclusive and other modes", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOncePod, ReadWriteOnce], resources: {requests: {storage: 1}}}}`,
			[]string{"may not use ReadWriteOncePod with other access modes"}},
		{"claim of an unknown volume mode", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], volumeMode: Tape, resources: {requests: {storage: 1}}}}`,
			[]string{`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`}},
		{"claim without a namespace", "persistentvolumeclaims", `{metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}`,
			[]string{"metadata.namespace: Required value"}},

		{"volume", "persistentvolumes", volumeDoc, nil},
		{"volume of no source", "persistentvolumes", `{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}}`,
			[]string{"spec: Required value: must specify a volume type"}},
		{"volume of two sources", "persistentvolumes", `{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}, csi: {driver: d.io, volumeHandle: h}}}`,
			[]string{"may not specify more than 1 volume type"}},
		{"volume of no size and mode", "persistentvolumes", `{metadata: {name: v}, spec: {csi: {driver: d.io, volumeHandle: h}}}`,
			[]string{"spec.accessModes: Required value", "spec.capacity: Required value", "spec.capacity: Unsupported value"}},
		{"volume without handle", "persistentvolumes", `{metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: d.io}}}`,
			[]string{"spec.csi.volumeHandle: Required value"}},
		{"volume that annotates mount options", "persistentvolumes", `{metadata: {name: v, annotations: {volume.beta.kubernetes.io/mount-options: ro}}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: d.io, volumeHandle: h}}}`,
			[]string{"may not specify mount options for this volume type"}},

		{"pod", "pods", podDoc, nil},
		{"pod without containers", "pods", `{metadata: {name: p, namespace: ns}, spec: {}}`, []string{"spec.containers: Required value"}},
		{"pod that mounts what it has not", "pods", `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: a, image: x, volumeMounts: [{name: v, mountPath: /v}]}]}}`,
			[]string{`spec.containers[0].volumeMounts[0].name: Not found: "v"`}},
		{"pod with a filesystem as a device", "pods", `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: a, image: x, volumeDevices: [{name: v, devicePath: /dev/x}]}], volumes: [{name: v, emptyDir: {}}]}}`,
			[]string{"spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"}},
		{"pod with a volume of nothing", "pods", `{metadata: {name: p, namespace: ns}, spec: {containers: [{name: a, image: x}], volumes: [{name: v, persistentVolumeClaim: {}}]}}`,
			[]string{"spec.volumes[0].persistentVolumeClaim.claimName: Required value"}},

		{"class", "storageclasses", `{metadata: {name: s}, provisioner: csi.drydock.dev}`, nil},
		{"class without provisioner", "storageclasses", `{metadata: {name: s}}`, []string{"provisioner: Required value"}},
		{"class with a bad policy", "storageclasses", `{metadata: {name: s}, provisioner: p.io, reclaimPolicy: Keep}`, []string{`reclaimPolicy: Unsupported value: "Keep"`}},

		{"attachment", "volumeattachments", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {persistentVolumeName: v}}}`, nil},
		{"attachment of nothing", "volumeattachments", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {}}}`,
			[]string{"spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},

		{"driver", "csidrivers", `{metadata: {name: d.io}, spec: {}}`, nil},
		{"driver with a bad name", "csidrivers", `{metadata: {name: -d}, spec: {}}`, []string{"metadata.name: Invalid value: \"-d\""}},
		{"driver with a short token", "csidrivers", `{metadata: {name: d.io}, spec: {tokenRequests: [{audience: a, expirationSeconds: 10}]}}`, []string{"spec.tokenRequests[0].expirationSeconds: Invalid value: 10"}},

		{"node's drivers twice", "csinodes", `{metadata: {name: n}, spec: {drivers: [{name: d.io, nodeID: "1", topologyKeys: null}, {name: d.io, nodeID: "2", topologyKeys: null}]}}`,
			[]string{`spec.drivers[1].name: Duplicate value: "d.io"`}},
		{"capacity with a bad name", "csistoragecapacities", `{metadata: {name: "%123-invalid-name", namespace: ns}, storageClassName: s}`, []string{"metadata.name: Invalid value"}},
		{"attributes without parameters", "volumeattributesclasses", `{metadata: {name: a}, driverName: d.io}`, []string{"parameters: Required value"}},

		{"lease of no time", "leases", `{metadata: {name: l, namespace: ns}, spec: {leaseDurationSeconds: 0}}`, []string{"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"}},
		{"namespace with a bad name", "namespaces", `{metadata: {name: a.b}}`, []string{"metadata.name: Invalid value: \"a.b\""}},
		{"event of another namespace", "events", `{metadata: {name: e, namespace: ns}, involvedObject: {kind: Pod, namespace: other, name: p}}`, []string{"involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"}},
		{"config map with a bad key", "configmaps", `{metadata: {name: c, namespace: ns}, data: {"a/b": x}}`, []string{`data[a/b]: Invalid value: "a/b"`}},
		{"secret without its keys", "secrets", `{metadata: {name: s, namespace: ns}, type: kubernetes.io/tls}`, []string{"data[tls.crt]: Required value", "data[tls.key]: Required value"}},
		{"priority class too high", "priorityclasses", `{metadata: {name: p}, value: 2000000000}`, []string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{"budget that says too much", "poddisruptionbudgets", `{metadata: {name: b, namespace: ns}, spec: {minAvailable: 1, maxUnavailable: 1}}`, []string{"minAvailable and maxUnavailable cannot be both set"}},
		{"role that allows nothing nameable", "roles", `{metadata: {name: r, namespace: ns}, rules: [{apiGroups: [""], resources: [pods]}]}`, []string{"rules[0].verbs: Required value"}},

		{"snapshot", "volumesnapshots", `{metadata: {name: s, namespace: ns}, spec: {source: {persistentVolumeClaimName: c}}}`, nil},
		{"snapshot of nothing", "volumesnapshots", `{metadata: {name: s, namespace: ns}, spec: {source: {}}}`,
			[]string{"spec.source: Invalid value: exactly one of volumeSnapshotContentName and persistentVolumeClaimName must be set"}},
		{"snapshot of the class \"\"", "volumesnapshots", `{metadata: {name: s, namespace: ns}, spec: {volumeSnapshotClassName: "", source: {persistentVolumeClaimName: c}}}`,
			[]string{`spec.volumeSnapshotClassName: Invalid value: "": volumeSnapshotClassName must not be the empty string when set`}},
		{"content without much", "volumesnapshotcontents", `{metadata: {name: s}, spec: {}}`,
			[]string{"spec.driver: Required value", "spec.deletionPolicy: Required value", "some validation rules were not checked because the object was invalid"}},
		{"content of nobody", "volumesnapshotcontents", `{metadata: {name: s}, spec: {driver: d.io, deletionPolicy: Delete, source: {volumeHandle: a, snapshotHandle: b}, volumeSnapshotRef: {name: x}}}`,
			[]string{"exactly one of volumeHandle and snapshotHandle must be set", "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set"}},
		{"snapshot class with a bad policy", "volumesnapshotclasses", `{metadata: {name: s}, driver: d.io, deletionPolicy: Keep}`,
			[]string{`deletionPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain"`}},
		{"group of nothing", "volumegroupsnapshots", `{metadata: {name: g, namespace: ns}, spec: {source: {}}}`, []string{"exactly one of selector and volumeGroupSnapshotContentName must be set"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, errs := create(t, find(t, x.plural), x.doc)
			expect(t, errs, x.want...)
		})
	}
}

const volumeDoc = `
metadata: {name: v}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: fast, csi: {driver: csi.drydock.dev, volumeHandle: h}}
`
