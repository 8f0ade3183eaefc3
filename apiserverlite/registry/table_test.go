package registry_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// tables are objects of each kind whose rows are compared with testdata/tables.txt.
var tables = []struct{ plural, docs string }{
	{"pods", `
metadata: {name: running, namespace: ns}
spec: {nodeName: n1, containers: [{name: a, image: x}, {name: b, image: y}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}], containerStatuses: [{name: a, ready: true, state: {running: {}}}, {name: b, ready: false, restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}}]}
---
metadata: {name: starting, namespace: ns}
spec: {nodeName: n1, containers: [{name: a, image: x}]}
status: {phase: Pending, containerStatuses: [{name: a, ready: false, state: {waiting: {reason: ContainerCreating}}}]}
---
metadata: {name: ending, namespace: ns, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {nodeName: n1, containers: [{name: a, image: x}]}
status: {phase: Running}
---
metadata: {name: gated, namespace: ns}
spec: {schedulingGates: [{name: a.io/b}], containers: [{name: a, image: x}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated}]}`},
	{"nodes", `
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: ""}}
spec: {unschedulable: true}
status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 127.0.0.1}], nodeInfo: {kubeletVersion: v1.37.2, osImage: drydock, kernelVersion: "6.18", architecture: amd64, containerRuntimeVersion: none}}
---
metadata: {name: n2}
status: {conditions: [{type: Ready, status: Unknown}]}`},
	{"namespaces", `{metadata: {name: ns}, status: {phase: Active}}`},
	{"persistentvolumes", `
metadata: {name: v}
spec: {capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany], persistentVolumeReclaimPolicy: Delete, storageClassName: fast, volumeMode: Block, claimRef: {namespace: ns, name: c}, csi: {driver: d.io, volumeHandle: h}}
status: {phase: Bound}
---
metadata: {name: w, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOncePod], persistentVolumeReclaimPolicy: Retain, csi: {driver: d.io, volumeHandle: h}}
status: {phase: Released, reason: R}`},
	{"persistentvolumeclaims", `
metadata: {name: bound, namespace: ns}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: v, volumeMode: Filesystem, volumeAttributesClassName: gold}
status: {phase: Bound, capacity: {storage: 5Gi}, accessModes: [ReadWriteOnce]}
---
metadata: {name: waiting, namespace: ns}
spec: {accessModes: [ReadWriteMany], storageClassName: fast}
status: {phase: Pending}`},
	{"storageclasses", `
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: csi.drydock.dev
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
metadata: {name: slow}
provisioner: csi.drydock.dev`},
	{"volumeattachments", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n1, source: {persistentVolumeName: v}}, status: {attached: true}}`},
	{"csidrivers", `{metadata: {name: d.io}, spec: {attachRequired: true, podInfoOnMount: false, storageCapacity: true, volumeLifecycleModes: [Persistent, Ephemeral], tokenRequests: [{audience: x}, {audience: z}]}}`},
	{"csinodes", `{metadata: {name: n1}, spec: {drivers: [{name: d.io, nodeID: "1", topologyKeys: []}]}}`},
	{"csistoragecapacities", `{metadata: {name: c, namespace: ns, creationTimestamp: "2026-01-01T00:00:00Z"}, storageClassName: fast, capacity: 5Gi}`},
	{"volumeattributesclasses", `{metadata: {name: gold}, driverName: d.io, parameters: {a: b}}`},
	{"events", `{metadata: {name: e, namespace: ns}, involvedObject: {kind: Pod, name: p, fieldPath: "spec.containers{a}"}, type: Warning, reason: FailedMount, message: no such volume, source: {component: kubelet, host: n1}, count: 3}`},
	{"leases", `{metadata: {name: l, namespace: ns}, spec: {holderIdentity: me}}`},
	{"secrets", `{metadata: {name: s, namespace: ns}, type: Opaque, data: {a: YQ==, b: Yg==}}`},
	{"configmaps", `{metadata: {name: c, namespace: ns}, data: {a: b}}`},
	{"serviceaccounts", `{metadata: {name: default, namespace: ns}}`},
	{"priorityclasses", `{metadata: {name: p}, value: 5, globalDefault: true}`},
	{"horizontalpodautoscalers", `{metadata: {name: h, namespace: ns}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, minReplicas: 2, maxReplicas: 5}, status: {currentReplicas: 2}}`},
	{"poddisruptionbudgets", `{metadata: {name: b, namespace: ns}, spec: {minAvailable: 1}, status: {disruptionsAllowed: 2}}`},
	{"roles", `{metadata: {name: r, namespace: ns, creationTimestamp: "2026-01-01T00:00:00Z"}}`},
	{"clusterroles", `{metadata: {name: r, creationTimestamp: "2026-01-01T00:00:00Z"}}`},
	{"rolebindings", `{metadata: {name: b, namespace: ns}, roleRef: {kind: Role, name: r}, subjects: [{kind: ServiceAccount, name: s, namespace: ns}]}`},
	{"clusterrolebindings", `{metadata: {name: b}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: u}]}`},
	{"volumesnapshots", `
metadata: {name: s, namespace: ns}
spec: {source: {persistentVolumeClaimName: c}, volumeSnapshotClassName: k}
status: {readyToUse: true, restoreSize: 5Gi, boundVolumeSnapshotContentName: content}
---
metadata: {name: t, namespace: ns}
spec: {source: {volumeSnapshotContentName: x}}`},
	{"volumesnapshotcontents", `{metadata: {name: s}, spec: {driver: d.io, deletionPolicy: Delete, volumeSnapshotClassName: k, source: {volumeHandle: h}, volumeSnapshotRef: {name: s, namespace: ns}}, status: {readyToUse: false, restoreSize: 1073741824}}`},
	{"volumesnapshotclasses", `{metadata: {name: k}, driver: d.io, deletionPolicy: Retain}`},
	{"volumegroupsnapshots", `{metadata: {name: g, namespace: ns}, spec: {source: {selector: {matchLabels: {a: b}}}, volumeGroupSnapshotClassName: k}, status: {readyToUse: true, boundVolumeGroupSnapshotContentName: x}}`},
	{"volumegroupsnapshotcontents", `{metadata: {name: g}, spec: {driver: d.io, deletionPolicy: Delete, volumeGroupSnapshotClassName: k, source: {volumeHandles: [h]}, volumeGroupSnapshotRef: {name: g, namespace: ns}}}`},
	{"volumegroupsnapshotclasses", `{metadata: {name: k}, driver: d.io, deletionPolicy: Retain}`},
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	for _, x := range tables {
		r := find(t, x.plural)
		var objs []runtime.Object
		for _, doc := range strings.Split(x.docs, "\n---\n") {
			obj := r.New()
			if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
				t.Fatalf("%s: %v", x.plural, err)
			}
			if m, _ := meta.Accessor(obj); m.GetCreationTimestamp().Time.IsZero() {
				m.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-49 * time.Hour)))
			}
			objs = append(objs, obj)
		}
		list := r.NewList()
		if err := meta.SetList(list, objs); err != nil {
			t.Fatal(err)
		}
		tab, err := r.Table(context.Background(), list, &metav1.TableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", r.GVR.Resource)
		for _, c := range tab.ColumnDefinitions {
			star := ""
			if c.Priority > 0 {
				star = "*"
			}
			fmt.Fprintf(&out, "\t%s%s", c.Name, star)
		}
		for _, row := range tab.Rows {
			out.WriteString("\n")
			for _, c := range row.Cells {
				fmt.Fprintf(&out, "\t%v", c)
			}
			if row.Object.Object != nil || row.Object.Raw != nil {
				t.Errorf("%s: a row brings its object", x.plural)
			}
		}
		out.WriteString("\n\n")
		bare, err := r.Table(context.Background(), list, &metav1.TableOptions{NoHeaders: true})
		if err != nil || len(bare.ColumnDefinitions) != 0 {
			t.Errorf("%s: headers that nobody wants: %v", x.plural, err)
		}
	}
	golden := filepath.Join("testdata", "tables.txt")
	if *updateGolden {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, out.Bytes()) {
		t.Errorf("tables differ from %s (-update rewrites it):\n%s", golden, out.String())
	}
}
