package registry_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Each line of want must stand in the created object's YAML, or must not if it begins with "!".
func TestDefaults(t *testing.T) {
	for _, x := range []struct{ name, plural, doc, want string }{
		{"claim", "persistentvolumeclaims", claimDoc, "volumeMode: Filesystem\nphase: Pending\nstorage: 1Gi"},
		{"claim with a status", "persistentvolumeclaims", strings.TrimSpace(claimDoc) + "\nstatus: {phase: Bound, capacity: {storage: 1Gi}}\n", "phase: Pending\n!capacity"},
		{"claim from a snapshot", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}}}`,
			"dataSourceRef:\nname: s\nstorage: 1Gi"},
		{"claim from something else", "persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {apiGroup: x.io, kind: Y, name: s}}}`,
			"!dataSource"},
		{"volume", "persistentvolumes", volumeDoc, "persistentVolumeReclaimPolicy: Retain\nvolumeMode: Filesystem\nphase: Pending\nlastPhaseTransitionTime:"},
		{"class", "storageclasses", `{metadata: {name: s}, provisioner: p.io}`, "reclaimPolicy: Delete\nvolumeBindingMode: Immediate"},
		{"driver", "csidrivers", `{metadata: {name: d.io}, spec: {}}`, "attachRequired: true\npodInfoOnMount: false\nstorageCapacity: false\nfsGroupPolicy: ReadWriteOnceWithFSType\n- Persistent\nrequiresRepublish: false\nseLinuxMount: false\npreventPodSchedulingIfMissing: false"},
		{"pod", "pods", podDoc, "restartPolicy: Always\ndnsPolicy: ClusterFirst\nterminationGracePeriodSeconds: 30\nschedulerName: default-scheduler\nsecurityContext: {}\nimagePullPolicy: Always\nterminationMessagePolicy: File\nphase: Pending\nqosClass: BestEffort\ngeneration: 1\nserviceAccount: default"},
		{"pod with gates", "pods", `{metadata: {name: p, namespace: ns}, spec: {schedulingGates: [{name: a.io/b}], containers: [{name: a, image: "x:1"}], volumes: [{name: v, secret: {secretName: s}}]}}`,
			"reason: SchedulingGated\nimagePullPolicy: IfNotPresent\ndefaultMode: 420"},
		{"secret", "secrets", `{metadata: {name: s, namespace: ns}, stringData: {a: b}}`, "type: Opaque\na: Yg==\n!stringData"},
		{"namespace", "namespaces", `{metadata: {name: x}, status: {phase: Terminating}}`, "kubernetes.io/metadata.name: x\n- kubernetes\nphase: Active"},
		{"node with a status", "nodes", `{metadata: {name: n}, status: {volumesInUse: [v]}}`, "volumesInUse:"},
		{"attachment with a status", "volumeattachments", `{metadata: {name: a}, spec: {attacher: d.io, nodeName: n, source: {persistentVolumeName: v}}, status: {attached: true}}`, "attached: false"},
		{"service account", "serviceaccounts", `{metadata: {name: a, namespace: ns}, secrets: [{name: s, kind: Secret}]}`, "- name: s\n!kind: Secret"},
		{"budget", "poddisruptionbudgets", `{metadata: {name: b, namespace: ns}, spec: {minAvailable: 1}}`, "generation: 1"},
		{"cluster role binding", "clusterrolebindings", `{metadata: {name: b}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, name: s, namespace: ns}]}`, "apiGroup: rbac.authorization.k8s.io"},
		{"snapshot with a status", "volumesnapshots", `{metadata: {name: s, namespace: ns}, spec: {source: {persistentVolumeClaimName: c}}, status: {readyToUse: true}}`, "generation: 1\n!readyToUse"},
	} {
		t.Run(x.name, func(t *testing.T) {
			obj, errs := create(t, find(t, x.plural), x.doc)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			b, err := yaml.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range strings.Split(x.want, "\n") {
				if not, absent := strings.CutPrefix(w, "!"); absent && strings.Contains(string(b), not) || !absent && !strings.Contains(string(b), w) {
					t.Errorf("%q:\n%s", w, b)
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	ctx := context.Background()
	for _, x := range []struct{ plural, doc, want string }{
		{"persistentvolumeclaims", `{metadata: {name: c, namespace: ns, annotations: {volume.beta.kubernetes.io/storage-class: s}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}`,
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`},
		{"persistentvolumeclaims", `{metadata: {name: c, namespace: ns}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "0.5"}}}}`,
			`spec.resources.requests[storage]: fractional byte value "500m" is invalid, must be an integer`},
		{"persistentvolumes", `{metadata: {name: v}, spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /x}}}`,
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."},
		{"csidrivers", `{metadata: {name: d.io}, spec: {tokenRequests: [{audience: a}]}}`, "spec.serviceAccountTokenInSecrets is unset"},
		{"pods", `{metadata: {name: a.b, namespace: ns}, spec: {containers: [{name: a, image: x}]}}`, "metadata.name: this is used in the Pod's hostname"},
		{"volumesnapshots", `{metadata: {name: s, namespace: ns, finalizers: [mine]}, spec: {source: {persistentVolumeClaimName: c}}}`,
			`metadata.finalizers: "mine": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`},
	} {
		r := find(t, x.plural)
		obj, _ := create(t, r, x.doc)
		w := r.Strategy.WarningsOnCreate(ctx, obj)
		if len(w) != 1 || !strings.HasPrefix(w[0], x.want) {
			t.Errorf("%s: warnings %q, want %q", x.plural, w, x.want)
		}
	}
}

func TestGracePeriod(t *testing.T) {
	s := find(t, "pods").Strategy
	for _, x := range []struct {
		node  string
		phase corev1.PodPhase
		own   *int64
		asked *int64
		want  int64
	}{
		{"n", "Running", ptr.To[int64](30), nil, 30},
		{"n", "Running", ptr.To[int64](30), ptr.To[int64](5), 5},
		{"n", "Running", ptr.To[int64](30), ptr.To[int64](0), 0},
		{"n", "Running", ptr.To[int64](-3), nil, 1},
		{"", "Pending", ptr.To[int64](30), nil, 0},
		{"n", "Succeeded", ptr.To[int64](30), nil, 0},
		{"n", "Failed", ptr.To[int64](30), ptr.To[int64](5), 0},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: x.node, TerminationGracePeriodSeconds: x.own}, Status: corev1.PodStatus{Phase: x.phase}}
		if got := s.GracePeriod(p, &metav1.DeleteOptions{GracePeriodSeconds: x.asked}); got != x.want {
			t.Errorf("%+v: %d", x, got)
		}
	}
	if got := find(t, "nodes").Strategy.GracePeriod(&corev1.Node{}, nil); got != 0 {
		t.Errorf("a node: %d", got)
	}
}

func TestFieldSelectors(t *testing.T) {
	for _, x := range []struct{ plural, label, want, refusal string }{
		{"pods", "spec.nodeName", "spec.nodeName", ""},
		{"pods", "spec.host", "spec.nodeName", ""},
		{"pods", "status.phase", "status.phase", ""},
		{"pods", "spec.x", "", "field label not supported: spec.x"},
		{"nodes", "spec.unschedulable", "spec.unschedulable", ""},
		{"persistentvolumes", "name", "", `"name" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"storageclasses", "provisioner", "", `"provisioner" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"secrets", "type", "type", ""},
		{"namespaces", "status.phase", "status.phase", ""},
		{"events", "involvedObject.uid", "involvedObject.uid", ""},
		{"volumesnapshots", "metadata.name", "metadata.name", ""},
		{"volumesnapshots", "spec.x", "", "field label not supported: spec.x"},
	} {
		got, _, err := find(t, x.plural).FieldLabel(x.label, "v")
		if got != x.want || x.refusal == "" && err != nil || x.refusal != "" && (err == nil || err.Error() != x.refusal) {
			t.Errorf("%s %s: %q, %v", x.plural, x.label, got, err)
		}
	}
	// Every label that is converted must have a value.
	for _, r := range reg(t).Resources() {
		set := r.Fields(r.New())
		for _, label := range []string{"metadata.name", "metadata.namespace", "spec.nodeName", "spec.hostNetwork", "status.podIP", "status.nominatedNodeName", "spec.unschedulable", "name", "type",
			"involvedObject.kind", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "regarding.name", "reportingController"} {
			to, _, err := r.FieldLabel(label, "v")
			if err != nil || label == "metadata.namespace" && !r.Namespaced {
				continue
			}
			if _, ok := set[to]; !ok {
				t.Errorf("%s: %s is selectable as %s but has no value", r.GVR, label, to)
			}
		}
	}
}

func TestEventsOfBothGroupsSelectAlike(t *testing.T) {
	var newer, core = reg(t).Resources()[0], find(t, "events")
	for _, r := range reg(t).Resources() {
		if r.GVR.Group == "events.k8s.io" {
			newer = r
		}
	}
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Reason: "R", ReportingController: "c"}
	view, err := newer.FromStorage(e)
	if err != nil {
		t.Fatal(err)
	}
	to, _, err := newer.FieldLabel("regarding.name", "p")
	if err != nil || newer.Fields(view)[to] != "p" || core.Fields(e)["involvedObject.name"] != "p" || core.Fields(e)["source"] != "c" {
		t.Errorf("%v %v %v", newer.Fields(view), core.Fields(e), err)
	}
	if newer.Storage != core.Storage || !newer.NoGC || newer.Strategy.AllowCreateOnUpdate() != true {
		t.Errorf("%+v", newer)
	}
}
