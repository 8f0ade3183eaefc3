package pvbinder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/apiserverlite/controllers/control/testapi"
	"drydock.dev/drydock/internal/lab"
)

const provisionerName = "csi.drydock.dev"

// model drives a controller by hand: what its informers deliver and when, which key is
// worked on, which write fails, and when its memory is lost.
type model struct {
	ctx     context.Context
	api     *testapi.API
	clock   *clocktesting.FakeClock
	c       *Controller
	claims  cache.Indexer
	volumes cache.Indexer
	fault   string   // of the next write of the controller
	ours    bool     // the controller is writing
	failed  []func() // bring back the keys whose work failed
}

func newModel() *model {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	m := &model{ctx: context.Background(), api: testapi.New(clock), clock: clock}
	m.api.PrependReactor("update", "*", m.strike)
	for name, mode := range map[string]storagev1.VolumeBindingMode{"now": storagev1.VolumeBindingImmediate, "later": storagev1.VolumeBindingWaitForFirstConsumer} {
		_, err := m.api.StorageV1().StorageClasses().Create(m.ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Provisioner: provisionerName, VolumeBindingMode: &mode}, metav1.CreateOptions{})
		if err != nil {
			panic(err)
		}
	}
	m.restart()
	return m
}

// strike makes a write of the controller fail: not done, or done with the answer lost.
func (m *model) strike(action clienttesting.Action) (bool, runtime.Object, error) {
	f := m.fault
	if !m.ours || f == "" {
		return false, nil, nil
	}
	m.fault = ""
	if f == "lost" {
		for _, r := range m.api.ReactionChain {
			if r.Handles(action) {
				if handled, _, _ := r.React(action); handled {
					break
				}
			}
		}
	}
	return true, nil, errors.New("connection reset")
}

func (m *model) stop() {
	if m.c != nil {
		m.c.claimQueue.ShutDown()
		m.c.volumeQueue.ShutDown()
	}
}

// restart begins a new life: empty memory, caches filled from the API.
func (m *model) restart() {
	m.stop()
	m.failed = nil
	l := lab.New(lab.Options{Clock: m.clock})
	factory := informers.NewSharedInformerFactory(m.api, 0)
	m.c = New(control.Env{Client: m.api, Informers: factory, Lab: l, Log: zerolog.Nop(),
		Recorder: func(string) record.EventRecorder { return &record.FakeRecorder{} }})
	core := factory.Core().V1()
	m.claims, m.volumes = core.PersistentVolumeClaims().Informer().GetIndexer(), core.PersistentVolumes().Informer().GetIndexer()
	classes, _ := m.api.StorageV1().StorageClasses().List(m.ctx, metav1.ListOptions{})
	for i := range classes.Items {
		_ = factory.Storage().V1().StorageClasses().Informer().GetIndexer().Add(&classes.Items[i])
	}
	for _, v := range m.listVolumes() {
		m.deliverVolume(v.Name)
	}
	for _, c := range m.listClaims() {
		m.deliverClaim(c.Name)
	}
}

func (m *model) listClaims() []corev1.PersistentVolumeClaim {
	l, _ := m.api.CoreV1().PersistentVolumeClaims("d").List(m.ctx, metav1.ListOptions{})
	return l.Items
}

func (m *model) listVolumes() []corev1.PersistentVolume {
	l, _ := m.api.CoreV1().PersistentVolumes().List(m.ctx, metav1.ListOptions{})
	return l.Items
}

// deliverClaim brings the claim's present state to the controller.
func (m *model) deliverClaim(name string) {
	now, err := m.api.CoreV1().PersistentVolumeClaims("d").Get(m.ctx, name, metav1.GetOptions{})
	o, had, _ := m.claims.GetByKey("d/" + name)
	switch {
	case err == nil && had && o.(*corev1.PersistentVolumeClaim).UID != now.UID:
		_ = m.claims.Update(now)
		m.c.claimGone(o.(*corev1.PersistentVolumeClaim))
		m.c.claimSeen(now)
	case err == nil:
		_ = m.claims.Update(now)
		m.c.claimSeen(now)
	case had:
		_ = m.claims.Delete(o)
		m.c.claimGone(o.(*corev1.PersistentVolumeClaim))
	}
}

func (m *model) deliverVolume(name string) {
	now, err := m.api.CoreV1().PersistentVolumes().Get(m.ctx, name, metav1.GetOptions{})
	o, had, _ := m.volumes.GetByKey(name)
	switch {
	case err == nil && had && o.(*corev1.PersistentVolume).UID != now.UID:
		_ = m.volumes.Update(now)
		m.c.volumeGone(o.(*corev1.PersistentVolume))
		m.c.volumeSeen(now)
	case err == nil:
		_ = m.volumes.Update(now)
		m.c.volumeSeen(now)
	case had:
		_ = m.volumes.Delete(o)
		m.c.volumeGone(o.(*corev1.PersistentVolume))
	}
}

// work runs one key of a queue, if there is one.
func (m *model) work(q control.Queue[string], sync control.Worker[string]) bool {
	if q.Len() == 0 {
		return false
	}
	key, _ := q.Get()
	m.ours = true
	err := sync(m.ctx, key)
	m.ours, m.fault = false, ""
	q.Done(key)
	if err != nil {
		m.failed = append(m.failed, func() { q.Add(key) })
	}
	return true
}

// settle delivers everything and works until nothing is left to do.
func (m *model) settle(t *rapid.T) {
	for range 20 {
		busy := len(m.failed) > 0
		for _, again := range m.failed {
			again()
		}
		m.failed = nil
		for _, o := range m.volumes.List() {
			m.deliverVolume(o.(*corev1.PersistentVolume).Name)
		}
		for _, o := range m.claims.List() {
			m.deliverClaim(o.(*corev1.PersistentVolumeClaim).Name)
		}
		for _, v := range m.listVolumes() {
			m.deliverVolume(v.Name)
		}
		for _, c := range m.listClaims() {
			m.deliverClaim(c.Name)
		}
		for i := 0; m.work(m.c.volumeQueue, m.c.syncVolumeKey) || m.work(m.c.claimQueue, m.c.syncClaimKey); i++ {
			busy = true
			m.check(t)
			if i == 1000 {
				t.Fatal("the controller keeps itself busy")
			}
		}
		if !busy {
			return
		}
	}
	t.Fatal("the controller does not come to rest")
}

func size(t *rapid.T) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(rapid.SampledFrom([]string{"1Gi", "2Gi", "3Gi"}).Draw(t, "size"))}
}

func (m *model) anyClaim(t *rapid.T) *corev1.PersistentVolumeClaim {
	l := m.listClaims()
	if len(l) == 0 {
		t.Skip("no claim")
	}
	return &l[rapid.IntRange(0, len(l)-1).Draw(t, "claim")]
}

func (m *model) anyVolume(t *rapid.T) *corev1.PersistentVolume {
	l := m.listVolumes()
	if len(l) == 0 {
		t.Skip("no volume")
	}
	return &l[rapid.IntRange(0, len(l)-1).Draw(t, "volume")]
}

// check is the invariant, true after every single write.
func (m *model) check(t *rapid.T) {
	claims := map[types.UID]corev1.PersistentVolumeClaim{}
	holders := map[string][]string{}
	for _, c := range m.listClaims() {
		claims[c.UID] = c
		if c.Status.Phase == corev1.ClaimBound {
			holders[c.Spec.VolumeName] = append(holders[c.Spec.VolumeName], c.Name)
		}
	}
	for name, by := range holders {
		if len(by) > 1 {
			t.Fatalf("volume %s is bound to claims %v", name, by)
		}
	}
	for _, v := range m.listVolumes() {
		if v.Status.Phase != corev1.VolumeReleased || v.Spec.ClaimRef == nil {
			continue
		}
		if c, ok := claims[v.Spec.ClaimRef.UID]; ok && (c.Spec.VolumeName == v.Name || c.Spec.VolumeName == "") {
			t.Fatalf("volume %s was released from claim %s, which exists", v.Name, c.Name)
		}
	}
}

// checkRest is what is true besides when nothing is left to do.
func (m *model) checkRest(t *rapid.T) {
	volumes := map[string]*corev1.PersistentVolume{}
	var list []*corev1.PersistentVolume
	for _, v := range m.listVolumes() {
		volumes[v.Name] = &v
		list = append(list, &v)
	}
	claims := map[types.UID]*corev1.PersistentVolumeClaim{}
	for _, c := range m.listClaims() {
		claims[c.UID] = &c
		v := volumes[c.Spec.VolumeName]
		switch c.Status.Phase {
		case corev1.ClaimBound:
			if v == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID || v.Status.Phase != corev1.VolumeBound {
				t.Fatalf("claim %s is Bound, its volume is %s", c.Name, show(v))
			}
			if !slices.Equal(c.Status.AccessModes, v.Spec.AccessModes) || c.Status.Capacity.Storage().Cmp(*v.Spec.Capacity.Storage()) != 0 {
				t.Fatalf("status of claim %s: %v", c.Name, c.Status)
			}
		case corev1.ClaimPending:
			if c.Spec.VolumeName != "" || c.Annotations[volume.AnnBindCompleted] != "" {
				continue
			}
			delayed := *c.Spec.StorageClassName == "later"
			if match, _ := bestMatch(&c, list, delayed); match != nil {
				t.Fatalf("claim %s is Pending though volume %s fits", c.Name, show(match))
			}
		}
	}
	for _, v := range list {
		ref := v.Spec.ClaimRef
		want := corev1.VolumeAvailable
		if ref != nil && ref.UID != "" {
			c := claims[ref.UID]
			switch {
			case c == nil:
				want = corev1.VolumeReleased
			case c.Spec.VolumeName == v.Name:
				want = corev1.VolumeBound
			default:
				continue // mismatched mode or bound elsewhere
			}
		}
		if v.Status.Phase != want {
			t.Fatalf("volume %s, want %s", show(v), want)
		}
	}
}

func show(v *corev1.PersistentVolume) string {
	if v == nil {
		return "missing"
	}
	return fmt.Sprintf("%s %s, claimed by %v", v.Name, v.Status.Phase, v.Spec.ClaimRef)
}

// TestModel lets users, a provisioner, slow watches, failing writes and crashes do their
// worst: no volume is ever bound to two claims or released under an existing one, and
// in the end everything that can be bound is, without any timer.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		defer m.stop()
		modes := [][]corev1.PersistentVolumeAccessMode{
			{corev1.ReadWriteOnce}, {corev1.ReadWriteOnce, corev1.ReadOnlyMany}, {corev1.ReadWriteMany}}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", rapid.IntRange(0, 3).Draw(t, "name"))},
					Spec: corev1.PersistentVolumeClaimSpec{AccessModes: rapid.SampledFrom(modes).Draw(t, "modes"),
						Resources: corev1.VolumeResourceRequirements{Requests: size(t)}}}
				class := rapid.SampledFrom([]string{"", "now", "later"}).Draw(t, "class")
				c.Spec.StorageClassName = &class
				if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
					c.Spec.VolumeName = fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "volume"))
				}
				_, _ = m.api.CoreV1().PersistentVolumeClaims("d").Create(m.ctx, c, metav1.CreateOptions{})
			},
			"volume": func(t *rapid.T) {
				v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(t, "name"))},
					Spec: corev1.PersistentVolumeSpec{Capacity: size(t), AccessModes: rapid.SampledFrom(modes).Draw(t, "modes"),
						StorageClassName:              rapid.SampledFrom([]string{"", "now", "later"}).Draw(t, "class"),
						PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
						PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: provisionerName, VolumeHandle: "h"}}}}
				if rapid.IntRange(0, 3).Draw(t, "reserved") == 0 {
					v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "d", Name: fmt.Sprintf("c%d", rapid.IntRange(0, 3).Draw(t, "claim"))}
				}
				_, _ = m.api.CoreV1().PersistentVolumes().Create(m.ctx, v, metav1.CreateOptions{})
			},
			"provision": func(t *rapid.T) {
				c := m.anyClaim(t)
				if c.Annotations[volume.AnnStorageProvisioner] == "" || c.Spec.VolumeName != "" {
					t.Skip("nothing asked for")
				}
				_, _ = m.api.CoreV1().PersistentVolumes().Create(m.ctx, &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID), Annotations: map[string]string{volume.AnnDynamicallyProvisioned: provisionerName}},
					Spec: corev1.PersistentVolumeSpec{Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: *c.Spec.StorageClassName,
						PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
						ClaimRef:                      &corev1.ObjectReference{Namespace: "d", Name: c.Name, UID: c.UID},
						PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: provisionerName, VolumeHandle: "h"}}}},
					metav1.CreateOptions{})
			},
			"select": func(t *rapid.T) { // the scheduler: a node for a delayed claim
				c := m.anyClaim(t)
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnSelectedNode, "n1")
				_, _ = m.api.CoreV1().PersistentVolumeClaims("d").Update(m.ctx, c, metav1.UpdateOptions{})
			},
			"schedule": func(t *rapid.T) { // the scheduler: a volume for a delayed claim, which the controller may not know yet
				c, v := m.anyClaim(t), m.anyVolume(t)
				if *c.Spec.StorageClassName != "later" || c.Spec.VolumeName != "" || v.Spec.StorageClassName != "later" || v.Spec.ClaimRef != nil || satisfies(v, c) != nil {
					t.Skip("does not fit")
				}
				v, _, err := volume.GetBindVolumeToClaim(v, c)
				if err == nil {
					_, _ = m.api.CoreV1().PersistentVolumes().Update(m.ctx, v, metav1.UpdateOptions{})
				}
			},
			"drop claim": func(t *rapid.T) {
				c := m.anyClaim(t)
				c.Finalizers = nil
				_, _ = m.api.CoreV1().PersistentVolumeClaims("d").Update(m.ctx, c, metav1.UpdateOptions{})
				_ = m.api.CoreV1().PersistentVolumeClaims("d").Delete(m.ctx, c.Name, metav1.DeleteOptions{})
			},
			"drop volume": func(t *rapid.T) {
				v := m.anyVolume(t)
				if v.Status.Phase == corev1.VolumeBound {
					t.Skip("protected")
				}
				v.Finalizers = nil
				_, _ = m.api.CoreV1().PersistentVolumes().Update(m.ctx, v, metav1.UpdateOptions{})
				_ = m.api.CoreV1().PersistentVolumes().Delete(m.ctx, v.Name, metav1.DeleteOptions{})
			},
			"free volume": func(t *rapid.T) { // an admin makes a released volume available again
				v := m.anyVolume(t)
				if v.Status.Phase != corev1.VolumeReleased {
					t.Skip("not released")
				}
				v.Spec.ClaimRef = nil
				_, _ = m.api.CoreV1().PersistentVolumes().Update(m.ctx, v, metav1.UpdateOptions{})
			},
			"deliver claim":  func(t *rapid.T) { m.deliverClaim(m.anyClaim(t).Name) },
			"deliver volume": func(t *rapid.T) { m.deliverVolume(m.anyVolume(t).Name) },
			"work claim": func(t *rapid.T) {
				m.fault = rapid.SampledFrom([]string{"", "", "", "fail", "lost"}).Draw(t, "fault")
				m.work(m.c.claimQueue, m.c.syncClaimKey)
			},
			"work volume": func(t *rapid.T) {
				m.fault = rapid.SampledFrom([]string{"", "", "", "fail", "lost"}).Draw(t, "fault")
				m.work(m.c.volumeQueue, m.c.syncVolumeKey)
			},
			"crash":  func(*rapid.T) { m.restart() },
			"settle": func(t *rapid.T) { m.settle(t); m.checkRest(t) },
			"":       m.check,
		})
		m.settle(t)
		m.checkRest(t)
	})
}
