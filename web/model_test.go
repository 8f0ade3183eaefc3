package web

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
)

// bench is a model with a hub and nothing else: no goroutine, no API.
type bench struct {
	*model
	t *testing.T
}

func newBench(t *testing.T) *bench {
	cfg := Config{Lab: lab.New(lab.Options{}), Log: zerolog.Nop(), ClusterName: "test", Mode: "loop: root, and the kernel has loop devices"}
	return &bench{newModel(cfg, newHub(hubLimits{})), t}
}

func (b *bench) see(objs ...runtime.Object) {
	for _, o := range objs {
		b.object(observed{obj: o})
	}
	b.publish()
}

func (b *bench) gone(o runtime.Object) { b.object(observed{o, true}); b.publish() }

// get decodes an object of the hub; false if there is none.
func (b *bench) get(key string, into any) bool {
	b.t.Helper()
	data, ok := b.hub.objects[key]
	if ok {
		if err := json.Unmarshal(data, into); err != nil {
			b.t.Fatal(err)
		}
	}
	return ok
}

func (b *bench) logs() (out []entry) {
	for _, raw := range b.hub.snapshot().Log {
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			b.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("u-" + name), CreationTimestamp: metav1.Now()}
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: named("", name), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "why"}}}}
}

func TestNodeObject(t *testing.T) {
	b := newBench(t)
	limit := int32(7)
	pv, class := "pvc-1", "late"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named("default", "data"), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: pv}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	volume := &corev1.PersistentVolume{ObjectMeta: named("", pv), Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim.UID}}}
	pod := &corev1.Pod{ObjectMeta: named("default", "web"), Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	va := &storagev1.VolumeAttachment{ObjectMeta: named("", "csi-1"), Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	csi := &storagev1.CSINode{ObjectMeta: named("", "n1"), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d", NodeID: "42", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}}
	b.see(node("n1", corev1.ConditionTrue), csi, claim, volume, pod, va)

	var n nodeObject
	if !b.get("node/n1", &n) || !n.Ready || *n.Drivers[0].Limit != 7 || len(n.Volumes) != 1 {
		t.Fatalf("%+v", n)
	}
	if v := n.Volumes[0]; v.Claim != "default/data" || v.Attach != "attached" || v.Device != "staged" || len(v.Pods) != 1 || v.Pods[0] != (podUse{"web", "published"}) {
		t.Errorf("%+v", v)
	}
	var c clusterObject
	if !b.get("cluster", &c) || c.Nodes != 1 || c.Volumes["in use"] != 1 || c.Mode != "loop" || c.Reason != "root, and the kernel has loop devices" {
		t.Errorf("%+v", c)
	}

	failed := va.DeepCopy()
	failed.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "limit"}}
	b.see(failed, node("n1", corev1.ConditionUnknown))
	if n = (nodeObject{}); !b.get("node/n1", &n) || n.Ready || n.Reason != "why" || n.Volumes[0].Attach != "failed" || n.Volumes[0].Error != "limit" {
		t.Errorf("%+v", n)
	}
	if c = (clusterObject{}); !b.get("cluster", &c) || c.NotReady != 1 {
		t.Errorf("%+v", c)
	}

	b.gone(pod)
	b.gone(va)
	if n = (nodeObject{}); !b.get("node/n1", &n) || len(n.Volumes) != 0 {
		t.Errorf("%+v", n)
	}
	b.gone(node("n1", corev1.ConditionTrue))
	b.gone(csi)
	if b.get("node/n1", &n) || len(b.nodes) != 0 {
		t.Errorf("the node is still there: %v", b.nodes)
	}
}

func TestHeartbeatIsNoChange(t *testing.T) {
	b := newBench(t)
	b.see(node("n1", corev1.ConditionTrue))
	rev := b.hub.rev
	beat := node("n1", corev1.ConditionTrue)
	beat.ResourceVersion, beat.Status.Conditions[0].LastHeartbeatTime = "2", metav1.NewTime(time.Now().Add(time.Minute))
	b.see(beat)
	if b.hub.rev != rev {
		t.Errorf("revision %d after a heartbeat, was %d", b.hub.rev, rev)
	}
}

func TestJournal(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	tl := b.cfg.Lab.Timeline
	for _, c := range []struct {
		op, code string
		err      error
	}{
		{"CreateVolume", "OK", nil}, {"NodeGetVolumeStats", "OK", nil}, {"NodeGetVolumeStats", "NotFound", errors.New("gone")},
		{"POST /v2/volumes", "202", nil}, {"POST /v2/volumes", "429", nil}, {"mkfs.ext4", "", nil},
	} {
		_, sp := tl.Start(ctx, lab.SpanOptions{Op: c.op, Volume: "v", Component: "kubelet"})
		sp.End(c.code, c.err)
	}
	_, running := tl.Start(ctx, lab.SpanOptions{Op: "NodeStageVolume", Volume: "v"})
	b.spans(tl.Spans())
	b.spans(tl.Spans()) // joined again
	b.publish()
	running.End("OK", nil)
	b.spans(tl.Spans())
	b.publish()
	var got []string
	for _, e := range b.logs() {
		got = append(got, e.What+" "+e.Code+" "+e.Level)
	}
	want := "CreateVolume OK info|NodeGetVolumeStats NotFound warn|POST /v2/volumes 202 info|POST /v2/volumes 429 warn|mkfs.ext4  info|NodeStageVolume OK info"
	if strings.Join(got, "|") != want {
		t.Errorf("log\n got %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestJournalSortsWhatWasThereAtTheStart(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"c", "a", "b"} {
		at := metav1.NewTime(time.Unix(int64(1000+map[string]int{"a": 1, "b": 2, "c": 3}[name]), 0))
		e := &corev1.Event{ObjectMeta: named("default", name), Reason: name, LastTimestamp: at, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"}}
		b.object(observed{obj: e})
	}
	b.ready()
	b.publish()
	var got string
	for _, e := range b.logs() {
		got += e.What
	}
	if got != "abc" {
		t.Errorf("order %s", got)
	}
}

func TestBurstIsMerged(t *testing.T) {
	b := newBench(t)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: named("default", "data")}
	for i := range 100 {
		c := pvc.DeepCopy()
		c.Labels = map[string]string{"i": string(rune('a' + i%26))}
		b.object(observed{obj: c})
	}
	b.publish()
	if b.hub.rev > 2 { // the volume, the cluster
		t.Errorf("%d revisions for one volume", b.hub.rev)
	}
	b.gone(pvc)
	b.gone(pvc)
	var v volumeObject
	if !b.get("volume/default/data", &v) || v.Life.Health != "gone" {
		t.Errorf("%+v", v)
	}
}
