package webtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/web"
)

// story plays a cluster's part in front of the dashboard: API objects and spans, as
// the other boxes would leave them, one observable change a verb.
type story struct {
	t   *testing.T
	ctx context.Context
	end func() // stops the dashboard; it may be called again
	api kubernetes.Interface
	lab *lab.Lab
	url string
	srv *httptest.Server

	claims map[string]*corev1.PersistentVolumeClaim
	pods   map[string]*corev1.Pod
}

const driver = "csi.drydock.dev"

// nodeIDs are the driver's own names of the nodes.
var nodeIDs = map[string]string{"n1": "4711", "n2": "4712", "n3": "4713"}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, api: fake.NewClientset(), lab: lab.New(lab.Options{}), claims: map[string]*corev1.PersistentVolumeClaim{}, pods: map[string]*corev1.Pod{}}
	s.serve("127.0.0.1:0")
	return s
}

// serve starts the dashboard at an address.
func (s *story) serve(addr string) {
	s.t.Helper()
	l, err := net.Listen("tcp", addr)
	s.must(err)
	server, err := web.New(web.Config{Client: s.api, Lab: s.lab, Log: zerolog.Nop(), Version: "v0.1.0-test", ClusterName: "story", Mode: "sim: this is a test"})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: server.Handler()}}
	srv.Start()
	s.ctx, s.srv, s.url = context.Background(), srv, srv.URL
	s.end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	s.t.Cleanup(s.end)
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) now() metav1.Time { return metav1.NewTime(s.lab.Clock.Now().Truncate(time.Second)) }

func (s *story) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + name), CreationTimestamp: s.now()}
}

func (s *story) nodes(names ...string) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: s.meta("", "drydock"), Provisioner: driver, VolumeBindingMode: &mode}
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	_, err := s.api.StorageV1().StorageClasses().Create(s.ctx, class, metav1.CreateOptions{})
	s.must(err)
	limit := int32(7)
	for _, n := range names {
		node := &corev1.Node{ObjectMeta: s.meta("", n), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		_, err := s.api.CoreV1().Nodes().Create(s.ctx, node, metav1.CreateOptions{})
		s.must(err)
		csi := &storagev1.CSINode{ObjectMeta: s.meta("", n), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: nodeIDs[n], Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}}
		_, err = s.api.StorageV1().CSINodes().Create(s.ctx, csi, metav1.CreateOptions{})
		s.must(err)
	}
}

// notReady makes a node lose its kubelet.
func (s *story) notReady(name string) {
	n, err := s.api.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	n.Status.Conditions[0].Status, n.Status.Conditions[0].Message = corev1.ConditionUnknown, "Kubelet stopped posting node status."
	_, err = s.api.CoreV1().Nodes().UpdateStatus(s.ctx, n, metav1.UpdateOptions{})
	s.must(err)
}

func (s *story) claim(name string) {
	class := "drydock"
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: s.meta("default", name), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	s.claims[name] = pvc
	_, err := s.api.CoreV1().PersistentVolumeClaims("default").Create(s.ctx, pvc, metav1.CreateOptions{})
	s.must(err)
}

func (s *story) updateClaim(name string, change func(*corev1.PersistentVolumeClaim)) {
	change(s.claims[name])
	_, err := s.api.CoreV1().PersistentVolumeClaims("default").Update(s.ctx, s.claims[name].DeepCopy(), metav1.UpdateOptions{})
	s.must(err)
}

func (s *story) provision(name string) {
	s.updateClaim(name, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": driver}
	})
}

func (s *story) pv(name string) string     { return "pvc-" + string(s.claims[name].UID) }
func (s *story) handle(name string) string { return "0d0c4f00-" + name }

// call records a call that takes d.
func (s *story) call(op, by, node, volume string, d time.Duration, code, problem string) {
	s.begin(op, by, node, volume)(d, code, problem)
}

// begin records the start of a call; the returned function ends it d later.
func (s *story) begin(op, by, node, volume string) func(d time.Duration, code, problem string) {
	attrs := map[string]string{}
	if by == "attacher" {
		attrs["node_id"], node = node, ""
	}
	_, sp := s.lab.Timeline.Start(context.Background(), lab.SpanOptions{Op: op, Volume: volume, Component: by, Node: node, Attrs: attrs})
	return func(d time.Duration, code, problem string) {
		s.lab.Clock.(*lab.Clock).Advance(d)
		var err error
		if problem != "" {
			err = errors.New(problem)
		}
		sp.End(code, err)
	}
}

func (s *story) bind(name string) {
	pv := &corev1.PersistentVolume{ObjectMeta: s.meta("", s.pv(name)), Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": driver}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name, UID: s.claims[name].UID}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: s.handle(name)}
	_, err := s.api.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{})
	s.must(err)
	s.lab.Timeline.Alias(s.handle(name), pv.Name)
	s.updateClaim(name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = pv.Name, corev1.ClaimBound
	})
}

func (s *story) pod(name, claim string) {
	p := &corev1.Pod{ObjectMeta: s.meta("default", name), Status: corev1.PodStatus{Phase: corev1.PodPending}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	s.pods[name] = p
	_, err := s.api.CoreV1().Pods("default").Create(s.ctx, p, metav1.CreateOptions{})
	s.must(err)
}

func (s *story) updatePod(name string, change func(*corev1.Pod)) {
	change(s.pods[name])
	_, err := s.api.CoreV1().Pods("default").Update(s.ctx, s.pods[name].DeepCopy(), metav1.UpdateOptions{})
	s.must(err)
}

func (s *story) schedule(pod, node string) {
	s.updatePod(pod, func(p *corev1.Pod) { p.Spec.NodeName = node })
}

func (s *story) run(pod string) {
	s.updatePod(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
}

// attach makes the VolumeAttachment; problem is its attachError, or empty for success.
func (s *story) attach(claim, node, problem string) {
	pv := s.pv(claim)
	va := &storagev1.VolumeAttachment{ObjectMeta: s.meta("", "csi-"+claim+node), Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	_, err := s.api.StorageV1().VolumeAttachments().Create(s.ctx, va, metav1.CreateOptions{})
	s.must(err)
	code := "OK"
	if problem != "" {
		code = "ResourceExhausted"
		va.Status.AttachError = &storagev1.VolumeError{Message: problem}
	}
	s.call("ControllerPublishVolume", "attacher", nodeIDs[node], s.handle(claim), 21*time.Millisecond, code, problem)
	va.Status.Attached = problem == ""
	_, err = s.api.StorageV1().VolumeAttachments().UpdateStatus(s.ctx, va, metav1.UpdateOptions{})
	s.must(err)
}

func (s *story) stage(claim, node string) {
	stage := s.begin("NodeStageVolume", "kubelet", node, s.pv(claim))
	s.call("wait for device", "driver", node, s.handle(claim), 2*time.Millisecond, "", "")
	s.call("mkfs.ext4", "driver", node, s.handle(claim), 25*time.Millisecond, "", "")
	stage(7*time.Millisecond, "OK", "")
}

// up takes a claim with its pod to running.
func (s *story) up(claim, pod, node string) {
	s.claim(claim)
	s.pod(pod, claim)
	s.provision(claim)
	s.call("CreateVolume", "provisioner", "", s.pv(claim), 12*time.Millisecond, "OK", "")
	s.bind(claim)
	s.schedule(pod, node)
	s.attach(claim, node, "")
	s.stage(claim, node)
	s.call("NodePublishVolume", "kubelet", node, s.pv(claim), time.Millisecond, "OK", "")
	s.run(pod)
}

// down takes a pod and its volume back as far as the detached volume.
func (s *story) down(claim, pod, node string) {
	now := s.now()
	s.updatePod(pod, func(p *corev1.Pod) { p.DeletionTimestamp = &now })
	s.call("NodeUnpublishVolume", "kubelet", node, s.pv(claim), time.Millisecond, "OK", "")
	s.must(s.api.CoreV1().Pods("default").Delete(s.ctx, pod, metav1.DeleteOptions{}))
	s.call("NodeUnstageVolume", "kubelet", node, s.pv(claim), 7*time.Millisecond, "OK", "")
	s.call("ControllerUnpublishVolume", "attacher", nodeIDs[node], s.handle(claim), 9*time.Millisecond, "OK", "")
	s.must(s.api.StorageV1().VolumeAttachments().Delete(s.ctx, "csi-"+claim+node, metav1.DeleteOptions{}))
}

func (s *story) event(kind, name, typ, reason, message string) {
	e := &corev1.Event{ObjectMeta: s.meta("default", fmt.Sprintf("%s.%d", name, time.Now().UnixNano())), Type: typ, Reason: reason, Message: message, Count: 1, LastTimestamp: s.now()}
	e.InvolvedObject = corev1.ObjectReference{Kind: kind, Namespace: "default", Name: name}
	if c := s.claims[name]; kind == "PersistentVolumeClaim" && c != nil {
		e.InvolvedObject.UID = c.UID
	}
	if p := s.pods[name]; kind == "Pod" && p != nil {
		e.InvolvedObject.UID = p.UID
	}
	_, err := s.api.CoreV1().Events("default").Create(s.ctx, e, metav1.CreateOptions{})
	s.must(err)
}
