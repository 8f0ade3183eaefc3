package attachdetach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"pgregory.net/rapid"

	"drydock.dev/drydock/apiserverlite/controllers/attachdetach"
	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/control/testapi"
	"drydock.dev/drydock/internal/lab"
)

const driverName = "csi.drydock.dev"

// model is a cluster of two nodes and a few volumes: pods come and go, kubelets mount
// what they see attached, the attacher fails at times, and the controller dies.
type model struct {
	ctx context.Context
	api *testapi.API
	lab *lab.Lab
	end func() // of the controller

	mu      sync.Mutex
	mounted map[string]map[corev1.UniqueVolumeName]bool // guarded by mu: by node, as the kernel has it
	broken  bool                                        // guarded by mu: the attacher answers errors
	wrong   []string                                    // guarded by mu: what must not have happened
}

var (
	nodeNames  = []string{"n1", "n2"}
	claimNames = []string{"a", "b", "shared"}
)

func newModel() *model {
	l := lab.New(lab.Options{})
	m := &model{ctx: context.Background(), api: testapi.New(l.Clock), lab: l, mounted: map[string]map[corev1.UniqueVolumeName]bool{}}
	for _, n := range nodeNames {
		m.mounted[n] = map[corev1.UniqueVolumeName]bool{}
		_, err := m.api.CoreV1().Nodes().Create(m.ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}, metav1.CreateOptions{})
		must(err)
	}
	for _, c := range claimNames {
		mode := corev1.ReadWriteOnce
		if c == "shared" {
			mode = corev1.ReadWriteMany
		}
		claim, err := m.api.CoreV1().PersistentVolumeClaims("d").Create(m.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: c},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + c}}, metav1.CreateOptions{})
		must(err)
		claim.Status.Phase = corev1.ClaimBound
		_, err = m.api.CoreV1().PersistentVolumeClaims("d").UpdateStatus(m.ctx, claim, metav1.UpdateOptions{})
		must(err)
		_, err = m.api.CoreV1().PersistentVolumes().Create(m.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + c},
			Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode},
				ClaimRef:               &corev1.ObjectReference{Namespace: "d", Name: c, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: c}}}}, metav1.CreateOptions{})
		must(err)
	}
	m.api.PrependReactor("*", "volumeattachments", m.judge)
	return m
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// judge sees each write of an attachment at the moment it is made.
func (m *model) judge(action clienttesting.Action) (bool, runtime.Object, error) {
	switch a := action.(type) {
	case clienttesting.DeleteActionImpl:
		for _, n := range nodeNames {
			m.mu.Lock()
			for v := range m.mounted[n] {
				if attachmentOf(v, n) == a.Name {
					m.wrong = append(m.wrong, fmt.Sprintf("attachment of %s deleted while %s has it mounted", v, n))
				}
			}
			m.mu.Unlock()
		}
	case clienttesting.CreateActionImpl:
		va := a.Object.(*storagev1.VolumeAttachment)
		if want := attachmentOf(control.UniqueName(driverName, (*va.Spec.Source.PersistentVolumeName)[len("pv-"):]), va.Spec.NodeName); va.Name != want {
			m.wrong = append(m.wrong, "attachment called "+va.Name)
		}
	}
	return false, nil, nil
}

func attachmentOf(v corev1.UniqueVolumeName, node string) string {
	d, h, err := control.SplitUniqueName(v)
	must(err)
	return control.AttachmentName(h, d, node)
}

// start begins a life of the controller.
func (m *model) start() {
	ctx, cancel := context.WithCancel(m.ctx)
	factory := informers.NewSharedInformerFactory(m.api, 0)
	c := attachdetach.New(control.Env{Client: m.api, Informers: factory, Lab: m.lab, Log: zerolog.Nop(),
		Recorder: func(string) record.EventRecorder { return &record.FakeRecorder{} }}, attachdetach.Options{})
	const informersUsed = 6
	watches := m.api.Watches()
	factory.StartWithContext(ctx)
	if n := len(factory.WaitForCacheSyncWithContext(ctx).Synced); n != informersUsed {
		panic(fmt.Sprintf("%d informers", n))
	}
	m.api.WaitWatches(watches + informersUsed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	m.end = func() {
		cancel()
		<-ended
		factory.Shutdown()
	}
}

func (m *model) node(name string) *corev1.Node {
	n, err := m.api.CoreV1().Nodes().Get(m.ctx, name, metav1.GetOptions{})
	must(err)
	return n
}

// kubelet runs one pass of a node's: report what is wanted or mounted, unmount, mount.
func (m *model) kubelet(name string) {
	wanted := map[corev1.UniqueVolumeName]bool{}
	pods, err := m.api.CoreV1().Pods("d").List(m.ctx, metav1.ListOptions{})
	must(err)
	for _, p := range pods.Items {
		if p.Spec.NodeName == name && p.DeletionTimestamp == nil {
			for _, v := range p.Spec.Volumes {
				wanted[control.UniqueName(driverName, v.PersistentVolumeClaim.ClaimName)] = true
			}
		}
	}
	m.mu.Lock()
	for v := range m.mounted[name] {
		if !wanted[v] {
			delete(m.mounted[name], v)
		}
	}
	inUse := []corev1.UniqueVolumeName{}
	for v := range wanted {
		inUse = append(inUse, v)
	}
	m.mu.Unlock()
	slices.Sort(inUse)
	body, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": inUse}})
	must(err)
	_, err = m.api.CoreV1().Nodes().Patch(m.ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	must(err)
	n := m.node(name) // only now: the controller must see the wish or take the volume off the list
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range n.Status.VolumesAttached {
		if !wanted[a.Name] || m.mounted[name][a.Name] {
			continue
		}
		m.mounted[name][a.Name] = true
		for _, other := range nodeNames {
			if other != name && m.mounted[other][a.Name] && a.Name != control.UniqueName(driverName, "shared") {
				m.wrong = append(m.wrong, fmt.Sprintf("%s is mounted on two nodes", a.Name))
			}
		}
	}
}

// attacher does one thing about one attachment, and tells whether there was one to do.
func (m *model) attacher() bool {
	vas := m.api.StorageV1().VolumeAttachments()
	list, err := vas.List(m.ctx, metav1.ListOptions{})
	must(err)
	m.mu.Lock()
	broken := m.broken
	m.mu.Unlock()
	for i := range list.Items {
		va := &list.Items[i]
		problem := &storagev1.VolumeError{Message: "no", Time: metav1.NewTime(m.lab.Clock.Now())}
		switch {
		case len(va.Finalizers) == 0 && va.DeletionTimestamp == nil:
			va.Finalizers = []string{"external-attacher/x"}
			_, err = vas.Update(m.ctx, va, metav1.UpdateOptions{})
		case va.DeletionTimestamp != nil && broken:
			if va.Status.DetachError != nil {
				continue
			}
			va.Status.DetachError = problem
			_, err = vas.UpdateStatus(m.ctx, va, metav1.UpdateOptions{})
		case va.DeletionTimestamp != nil:
			va.Finalizers = nil
			_, err = vas.Update(m.ctx, va, metav1.UpdateOptions{})
		case va.Status.Attached:
			continue
		case broken:
			if va.Status.AttachError != nil {
				continue
			}
			va.Status.AttachError = problem
			_, err = vas.UpdateStatus(m.ctx, va, metav1.UpdateOptions{})
		default:
			va.Status = storagev1.VolumeAttachmentStatus{Attached: true}
			_, err = vas.UpdateStatus(m.ctx, va, metav1.UpdateOptions{})
		}
		return err == nil
	}
	return false
}

func (m *model) addPod(name, claim, node string) {
	_, _ = m.api.CoreV1().Pods("d").Create(m.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node,
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}},
		metav1.CreateOptions{})
}

func (m *model) removePod(name string) {
	zero := int64(0)
	_ = m.api.CoreV1().Pods("d").Delete(m.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

// rest tells what is still missing until the cluster is at rest: each pod has its volume
// and nothing else is attached.
func (m *model) rest() string {
	pods, err := m.api.CoreV1().Pods("d").List(m.ctx, metav1.ListOptions{})
	must(err)
	vas, err := m.api.StorageV1().VolumeAttachments().List(m.ctx, metav1.ListOptions{})
	must(err)
	want := map[string]bool{}
	m.mu.Lock() // not around a request: judge takes it within one
	defer m.mu.Unlock()
	for _, p := range pods.Items {
		v := control.UniqueName(driverName, p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		want[attachmentOf(v, p.Spec.NodeName)] = true
		if !m.mounted[p.Spec.NodeName][v] {
			return fmt.Sprintf("pod %s on %s has no volume", p.Name, p.Spec.NodeName)
		}
	}
	for _, va := range vas.Items {
		if !want[va.Name] || va.DeletionTimestamp != nil {
			return fmt.Sprintf("%s is attached to %s for nobody", *va.Spec.Source.PersistentVolumeName, va.Spec.NodeName)
		}
	}
	return ""
}

// settle plays everybody, with time passing, until the cluster is at rest.
func (m *model) settle(t *rapid.T) {
	m.mu.Lock()
	m.broken = false
	m.mu.Unlock()
	clock := m.lab.Clock.(*lab.Clock)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	missing := ""
	for range 3000 {
		for _, n := range nodeNames {
			m.kubelet(n)
		}
		for m.attacher() {
		}
		if missing = m.rest(); missing == "" {
			return
		}
		clock.Advance(200 * time.Millisecond) // backoffs end
		<-tick.C
	}
	t.Fatalf("the cluster does not come to rest: %s", missing)
}

// TestModel: whatever pods, kubelets, the attacher and crashes do, no attachment goes from
// under a mount, no exclusive volume is mounted on two nodes, and in the end each pod
// has its volume and nothing else is attached.
func TestModel(t *testing.T) {
	before := goleak.IgnoreCurrent()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		m.start()
		defer func() { m.end() }()
		t.Repeat(map[string]func(*rapid.T){
			"add pod": func(t *rapid.T) {
				claim := rapid.SampledFrom(claimNames).Draw(t, "claim")
				node := rapid.SampledFrom(nodeNames).Draw(t, "node")
				name := claim
				if claim == "shared" {
					name += "-" + node
				} else {
					m.removePod(name) // one pod for each exclusive volume, elsewhere each time
				}
				m.addPod(name, claim, node)
			},
			"remove pod": func(t *rapid.T) {
				m.removePod(rapid.SampledFrom([]string{"a", "b", "shared-n1", "shared-n2"}).Draw(t, "pod"))
			},
			"kubelet":  func(t *rapid.T) { m.kubelet(rapid.SampledFrom(nodeNames).Draw(t, "node")) },
			"attacher": func(*rapid.T) { m.attacher() },
			"hurry": func(t *rapid.T) { // one node's kubelet is eager, the other's sleeps
				node := rapid.SampledFrom(nodeNames).Draw(t, "node")
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for range 5 {
					m.attacher()
					m.kubelet(node)
					<-tick.C
				}
			},
			"break": func(*rapid.T) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.broken = !m.broken
			},
			"time": func(t *rapid.T) {
				m.lab.Clock.(*lab.Clock).Advance(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
			"crash":  func(*rapid.T) { m.end(); m.start() },
			"settle": m.settle,
			"": func(t *rapid.T) {
				m.mu.Lock()
				defer m.mu.Unlock()
				if len(m.wrong) > 0 {
					t.Fatalf("%v", m.wrong)
				}
			},
		})
		m.settle(t)
	})
	goleak.VerifyNone(t, before)
}
