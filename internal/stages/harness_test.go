package stages

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"drydock.dev/drydock/internal/lab"
)

// world drives a tracker the way a cluster would: each verb is one observable change.
type world struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	tr    *Tracker
	spans int

	pvc  *corev1.PersistentVolumeClaim
	pv   *corev1.PersistentVolume
	pods map[string]*corev1.Pod
	vas  map[string]*storagev1.VolumeAttachment
}

const handle = "c0ffee-01"

func newWorld(t *testing.T) *world {
	c := clocktesting.NewFakeClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	return &world{t: t, clock: c, tr: NewTracker(c), pods: map[string]*corev1.Pod{}, vas: map[string]*storagev1.VolumeAttachment{}}
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }
func (w *world) stamp() metav1.Time   { return metav1.NewTime(w.clock.Now().Truncate(time.Second)) }
func (w *world) pvName() string       { return "pvc-" + string(w.pvc.UID) }
func (w *world) life() Life {
	w.t.Helper()
	l, ok := w.tr.Claim("default", "data")
	w.ok(ok, "no life")
	return l
}
func (w *world) step(n Name) Step {
	w.t.Helper()
	s, ok := w.life().Step(n)
	w.ok(ok, "no step "+string(n))
	return s
}
func (w *world) ok(b bool, why string) {
	w.t.Helper()
	if !b {
		w.t.Fatal(why)
	}
}

func (w *world) claim() {
	class := "drydock"
	w.pvc = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: types.UID(fmt.Sprintf("u-%d", w.clock.Now().UnixNano())), CreationTimestamp: w.stamp()},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	w.pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.tr.Object(w.pvc.DeepCopy())
}

func (w *world) provisioning() {
	w.pvc.Annotations = map[string]string{annProvisioner: "csi.drydock.dev"}
	w.tr.Object(w.pvc.DeepCopy())
}

func (w *world) volume() {
	w.pv = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.pvName(), UID: types.UID("pv-" + w.pvc.UID), CreationTimestamp: w.stamp(), Annotations: map[string]string{annProvisionedBy: "csi.drydock.dev"}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	w.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data", UID: w.pvc.UID}
	w.pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	w.pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.drydock.dev", VolumeHandle: handle}
	w.tr.Object(w.pv.DeepCopy())
}

func (w *world) bind() {
	w.pvc.Spec.VolumeName, w.pvc.Status.Phase = w.pv.Name, corev1.ClaimBound
	w.tr.Object(w.pvc.DeepCopy())
}

func (w *world) pod(name string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: w.stamp()}}
	p.Status.Phase = corev1.PodPending
	p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	w.pods[name] = p
	w.tr.Object(p.DeepCopy())
}

func (w *world) podDo(name string, change func(*corev1.Pod)) {
	change(w.pods[name])
	w.tr.Object(w.pods[name].DeepCopy())
}
func (w *world) schedule(pod, node string) {
	w.podDo(pod, func(p *corev1.Pod) { p.Spec.NodeName = node })
}
func (w *world) run(pod string) {
	w.podDo(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
}
func (w *world) podDelete(name string) {
	now := w.stamp()
	w.podDo(name, func(p *corev1.Pod) { p.DeletionTimestamp = &now })
}
func (w *world) podGone(name string) { w.tr.Deleted(w.pods[name].DeepCopy()) }

func (w *world) va(node string, change func(*storagev1.VolumeAttachment)) {
	va := w.vas[node]
	if va == nil {
		pv := w.pv.Name
		va = &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + node, UID: types.UID("va-" + node + w.clock.Now().String()), CreationTimestamp: w.stamp()}}
		va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = node, &pv
		w.vas[node] = va
	}
	if change != nil {
		change(va)
	}
	w.tr.Object(va.DeepCopy())
}
func (w *world) attached(node string) {
	w.va(node, func(a *storagev1.VolumeAttachment) { a.Status.Attached = true })
}
func (w *world) vaDelete(node string) {
	now := w.stamp()
	w.va(node, func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &now })
}
func (w *world) vaGone(node string) { w.tr.Deleted(w.vas[node].DeepCopy()); delete(w.vas, node) }

// call makes a call that takes d and ends with code and err; an err of "" is success.
func (w *world) call(op, by, node, volume string, d time.Duration, code, err string) {
	w.spans++
	s := lab.Span{ID: fmt.Sprint(w.spans), Op: op, Component: by, Node: node, Volume: volume, Start: w.clock.Now()}
	w.tr.Span(s)
	w.pass(d)
	s.End, s.Code, s.Error = w.clock.Now(), code, err
	w.tr.Span(s)
}

func (w *world) event(kind string, about metav1.Object, typ, reason, message string) {
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: reason, CreationTimestamp: w.stamp()}, Type: typ, Reason: reason, Message: message, Count: 1, LastTimestamp: w.stamp()}
	e.InvolvedObject = corev1.ObjectReference{Kind: kind, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID()}
	w.tr.Object(e)
}

// up takes the claim to a running pod on node.
func (w *world) up(pod, node string) {
	w.claim()
	w.pod(pod)
	w.pass(5 * time.Millisecond)
	w.provisioning()
	w.call("CreateVolume", "provisioner", "", w.pvName(), 10*time.Millisecond, "OK", "")
	w.volume()
	w.pass(time.Millisecond)
	w.bind()
	w.pass(time.Millisecond)
	w.use(pod, node)
}

// use takes a pod from scheduling to running.
func (w *world) use(pod, node string) {
	w.schedule(pod, node)
	w.pass(2 * time.Millisecond)
	w.va(node, nil)
	w.call("ControllerPublishVolume", "attacher", "", handle, 20*time.Millisecond, "OK", "")
	w.attached(node)
	w.pass(time.Millisecond)
	w.spans++
	stage := lab.Span{ID: fmt.Sprint(w.spans), Op: "NodeStageVolume", Component: "kubelet", Node: node, Volume: w.pv.Name, Start: w.clock.Now()}
	w.tr.Span(stage)
	w.call("wait for device", "driver", node, handle, time.Millisecond, "", "")
	w.call("mkfs.ext4", "driver", node, handle, 25*time.Millisecond, "", "")
	w.call("mount", "driver", node, handle, 6*time.Millisecond, "", "")
	stage.End, stage.Code = w.clock.Now(), "OK"
	w.tr.Span(stage)
	w.call("NodePublishVolume", "kubelet", node, w.pv.Name, time.Millisecond, "OK", "")
	w.pass(time.Millisecond)
	w.run(pod)
}

func (w *world) down(pod, node string) {
	w.podDelete(pod)
	w.call("NodeUnpublishVolume", "kubelet", node, w.pv.Name, time.Millisecond, "OK", "")
	w.podGone(pod)
	w.call("NodeUnstageVolume", "kubelet", node, w.pv.Name, 7*time.Millisecond, "OK", "")
	w.vaDelete(node)
	w.call("ControllerUnpublishVolume", "attacher", "", handle, 9*time.Millisecond, "OK", "")
	w.vaGone(node)
}

// states writes a life as "claimed:done created:done ...", leaving out what is done.
func (w *world) states() string {
	var out []string
	for _, s := range w.life().Steps() {
		out = append(out, string(s.Name)+":"+string(s.State))
	}
	return strings.Join(out, " ")
}

func (w *world) want(states string) {
	w.t.Helper()
	if got := w.states(); got != strings.Join(strings.Fields(states), " ") {
		w.t.Fatalf("states\n got %s\nwant %s\nlife %+v", got, strings.Join(strings.Fields(states), " "), w.life())
	}
}

func (w *world) health(h Health, doing string) {
	w.t.Helper()
	if l := w.life(); l.Health != h || l.Doing != doing {
		w.t.Fatalf("health %q (%q), want %q (%q)", l.Health, l.Doing, h, doing)
	}
}

var errInternal = errors.New("rpc error: code = Internal desc = disk on fire")
