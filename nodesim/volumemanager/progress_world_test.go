package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// The names of the world's plugins, and how many volumes the one with devices has.
const (
	devices     = "test/devices"
	own         = "test/own"
	manyDevices = 3
)

// earth is what a manager works on: an API, an attach controller, a driver whose calls
// fail and take their time, and workers of pods. It outlives the manager's lives.
type earth struct {
	seed   uint64
	calm   bool // nothing fails, and all that takes time takes little
	root   string
	client *fake.Clientset

	mu        sync.Mutex
	turns     map[string]int                // guarded by mu: how often each thing was done
	healed    bool                          // guarded by mu: nothing fails any more
	staged    map[string]bool               // guarded by mu: by PV
	published map[string]map[types.UID]bool // guarded by mu: by volume
	pods      map[types.UID]*earthPod       // guarded by mu
	told      bool                          // guarded by mu: all pods were told
	inUse     []UniqueName                  // guarded by mu: volumesInUse of the Node
	attached  map[UniqueName]bool           // guarded by mu: volumesAttached of the Node
	cached    map[UniqueName]bool           // guarded by mu: the same as the kubelet's cache has it
	wrong     string                        // guarded by mu: the first thing that must not be
}

type earthPod struct {
	pod   *v1.Pod
	phase int // syncing, terminating, terminated
	up    bool
	wake  chan struct{}
	end   func() // ends its wait
}

const (
	syncing = iota
	terminating
	terminated
)

func newEarth(seed uint64, calm bool, root string) *earth {
	e := &earth{seed: seed, calm: calm, root: root, client: fake.NewSimpleClientset(), turns: map[string]int{}, //nolint:staticcheck // SA1019: no field management is wanted
		staged: map[string]bool{}, published: map[string]map[types.UID]bool{}, pods: map[types.UID]*earthPod{},
		attached: map[UniqueName]bool{}, cached: map[UniqueName]bool{}}
	e.must(e.client.CoreV1().Nodes().Create(context.Background(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}))
	for i := range manyDevices {
		name, size := pvName(i), v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		e.must(e.client.CoreV1().PersistentVolumes().Create(context.Background(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{Capacity: size, ClaimRef: &v1.ObjectReference{Namespace: "default", Name: name, UID: types.UID(name)},
				PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: name}}}}, metav1.CreateOptions{}))
		e.must(e.client.CoreV1().PersistentVolumeClaims("default").Create(context.Background(), &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: name},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size}}, metav1.CreateOptions{}))
	}
	e.client.PrependReactor("get", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		if !e.calm && e.luck("api "+a.GetResource().Resource, 8) == 0 {
			return true, nil, errors.New("the API does not answer")
		}
		return false, nil, nil
	})
	return e
}

func pvName(i int) string { return fmt.Sprintf("pv%d", i) }

func (e *earth) must(_ any, err error) {
	if err != nil {
		e.complain("%v", err)
	}
}

func (e *earth) complain(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// luck draws a number below n for the next time that something is done. Once all is healed it is the last one.
func (e *earth) luck(what string, n int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.healed {
		return n - 1
	}
	e.turns[what]++
	h := fnv.New64a()
	fmt.Fprint(h, e.seed, what, e.turns[what])
	return int(h.Sum64() >> 16 % uint64(n))
}

// act does a step of the driver, with the luck that it has: it may take its time, fail
// before or after it was done, and leave the kubelet in doubt. A driver that says that
// it failed for good leaves nothing of it behind.
func (e *earth) act(ctx context.Context, what string, effect, undo func()) error {
	pauses := []time.Duration{time.Minute * 3, 20 * time.Second, time.Second, 50 * time.Millisecond, 0, 0, 0, 0}
	if e.calm {
		pauses = pauses[2:]
	}
	if d := pauses[e.luck("pause "+what, len(pauses))]; d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return volumeplugin.AsUncertain(ctx.Err())
		}
	}
	turn := 8
	if !e.calm {
		turn = e.luck(what, 9)
	}
	switch turn {
	case 0:
		e.do(undo)
		return errors.New(what + " failed")
	case 1:
		return volumeplugin.AsTransient(errors.New(what + " cannot begin"))
	case 2:
		return volumeplugin.AsUncertain(errors.New(what + " got no answer"))
	case 3:
		e.do(effect)
		return volumeplugin.AsUncertain(errors.New(what + " was done, and got no answer"))
	}
	e.do(effect)
	return nil
}

func (e *earth) do(effect func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	effect()
}

// expect notes what must not be. The caller holds mu.
func (e *earth) expect(ok bool, format string, args ...any) {
	if !ok && e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// List, Get and the rest are what a manager asks of its pods.
func (e *earth) List() []*v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*v1.Pod
	for _, p := range e.pods {
		out = append(out, p.pod)
	}
	return out
}

func (e *earth) Get(uid types.UID) (*v1.Pod, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil {
		return p.pod, true
	}
	return nil, false
}

func (e *earth) ContainersTerminating(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil {
		return p.phase != syncing
	}
	return e.told
}

func (e *earth) RuntimeRemovable(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pods[uid]; p != nil {
		return p.phase == terminated
	}
	return e.told
}

func (e *earth) Ready() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told
}

// newManager is another life on this earth.
func (e *earth) newManager() *Manager {
	l := lab.New(lab.Options{})
	h := &volumeplugin.Host{Life: context.Background(), Node: "n1", Layout: volumeplugin.Layout{Root: e.root}, Client: e.client, Lab: l, Log: zerolog.Nop(),
		NodeLabels: func() map[string]string { return nil }}
	return New(Config{Host: h, Plugins: volumeplugin.NewRegistry(&devicePlugin{earth: e}, &ownPlugin{earth: e}), Pods: e,
		Recorder: &record.FakeRecorder{}, Attached: func() (map[UniqueName]bool, bool) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.cached, true
		}})
}

// ownPlugin has volumes that are a pod's own, without a device, and are refreshed at each sync.
type ownPlugin struct{ earth *earth }

func (p *ownPlugin) Name() string                            { return own }
func (p *ownPlugin) Supports(s *volumeplugin.Spec) bool      { return s.Volume != nil }
func (p *ownPlugin) RequiresRemount(*volumeplugin.Spec) bool { return true }
func (p *ownPlugin) SupportsMountOptions() bool              { return false }
func (p *ownPlugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	return &ownMount{p.earth, volumeplugin.Layout{Root: p.earth.root}.PodVolume(pod.UID, own, s.Name()), pod.UID}, nil
}
func (p *ownPlugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	return &ownMount{p.earth, volumeplugin.Layout{Root: p.earth.root}.PodVolume(uid, own, inner), uid}, nil
}
func (p *ownPlugin) Reconstruct(_ types.UID, inner, _ string) (*volumeplugin.Spec, error) {
	return &volumeplugin.Spec{Volume: &v1.Volume{Name: inner}}, nil
}

type ownMount struct {
	earth *earth
	path  string
	uid   types.UID
}

func (o *ownMount) Path() string { return o.path }
func (o *ownMount) SetUp(ctx context.Context, _ volumeplugin.SetUpArgs) error {
	return o.earth.act(ctx, "set up", func() { os.MkdirAll(o.path, 0o755) }, func() { os.Remove(o.path) })
}
func (o *ownMount) TearDown(ctx context.Context) error {
	return o.earth.act(ctx, "tear down", func() { os.Remove(o.path) }, nothing)
}

func nothing() {}

// devicePlugin has volumes that are attached, staged, published and expanded.
type devicePlugin struct{ earth *earth }

func (p *devicePlugin) Name() string                            { return devices }
func (p *devicePlugin) Supports(s *volumeplugin.Spec) bool      { return s.PV != nil }
func (p *devicePlugin) RequiresRemount(*volumeplugin.Spec) bool { return false }
func (p *devicePlugin) SupportsMountOptions() bool              { return true }
func (p *devicePlugin) NewMounter(s *volumeplugin.Spec, pod *v1.Pod) (volumeplugin.Mounter, error) {
	return &deviceMount{p.earth, s.Name(), pod.UID}, nil
}
func (p *devicePlugin) NewUnmounter(inner string, uid types.UID) (volumeplugin.Unmounter, error) {
	return &deviceMount{p.earth, inner, uid}, nil
}
func (p *devicePlugin) Reconstruct(types.UID, string, string) (*volumeplugin.Spec, error) {
	return nil, errors.New("there are no directories of these volumes")
}
func (p *devicePlugin) Attachable(*volumeplugin.Spec) (bool, error)        { return true, nil }
func (p *devicePlugin) Exhausted(context.Context, *volumeplugin.Spec) bool { return false }
func (p *devicePlugin) DeviceMountable(*volumeplugin.Spec) bool            { return true }
func (p *devicePlugin) VolumeName(s *volumeplugin.Spec) (string, error)    { return s.Name(), nil }
func (p *devicePlugin) DeviceMountPath(s *volumeplugin.Spec) (string, error) {
	return "/" + s.Name(), nil
}
func (p *devicePlugin) DeviceMountRefs(string) ([]string, error) { return nil, nil }
func (p *devicePlugin) WaitForAttach(context.Context, *volumeplugin.Spec) (string, error) {
	return "attachment", nil
}

func (p *devicePlugin) MountDevice(ctx context.Context, s *volumeplugin.Spec, _, _ string, _ volumeplugin.DeviceArgs) error {
	e := p.earth
	return e.act(ctx, "stage", func() {
		e.expect(e.attached[uniqueOf(s.Name())], "%s is staged, and not attached", s.Name())
		e.staged[s.Name()] = true
	}, func() {
		if len(e.published[s.Name()]) == 0 {
			delete(e.staged, s.Name())
		}
	})
}

func (p *devicePlugin) UnmountDevice(ctx context.Context, s *volumeplugin.Spec, _ string) error {
	e := p.earth
	return e.act(ctx, "unstage", func() {
		e.expect(len(e.published[s.Name()]) == 0, "%s is unstaged while %v have it", s.Name(), e.published[s.Name()])
		delete(e.staged, s.Name())
	}, nothing)
}

func (p *devicePlugin) NodeExpand(ctx context.Context, s *volumeplugin.Spec, _ volumeplugin.ExpandArgs) error {
	return p.earth.act(ctx, "expand", nothing, nothing)
}

// FindDevices lists what a life before has left.
func (p *devicePlugin) FindDevices() ([]volumeplugin.FoundDevice, error) {
	e := p.earth
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []volumeplugin.FoundDevice
	for i := range manyDevices {
		f := volumeplugin.FoundDevice{Spec: &volumeplugin.Spec{PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName(i)}}}}
		for uid := range e.published[pvName(i)] {
			f.Pods = append(f.Pods, uid)
		}
		if e.staged[pvName(i)] || len(f.Pods) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

func uniqueOf(pv string) UniqueName { return UniqueName(devices + "/" + pv) }

type deviceMount struct {
	earth *earth
	name  string
	uid   types.UID
}

func (d *deviceMount) Path() string { return filepath.Join("/", string(d.uid), d.name) }

func (d *deviceMount) SetUp(ctx context.Context, _ volumeplugin.SetUpArgs) error {
	e := d.earth
	return e.act(ctx, "publish", func() {
		e.expect(e.staged[d.name], "%s is published, and not staged", d.name)
		e.expect(e.pods[d.uid] != nil, "%s is published for pod %s, which is gone", d.name, d.uid)
		if e.published[d.name] == nil {
			e.published[d.name] = map[types.UID]bool{}
		}
		e.published[d.name][d.uid] = true
	}, func() { delete(e.published[d.name], d.uid) })
}

func (d *deviceMount) TearDown(ctx context.Context) error {
	e := d.earth
	return e.act(ctx, "unpublish", func() { delete(e.published[d.name], d.uid) }, nothing)
}

// attach is one round of the attach controller: what pods want and the kubelet lists
// in use is attached, and what is neither is detached.
func (e *earth) attach() (changed bool) {
	e.mu.Lock()
	want := map[UniqueName]bool{}
	for _, p := range e.pods {
		for _, v := range p.pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && p.phase != terminated {
				want[uniqueOf(v.PersistentVolumeClaim.ClaimName)] = true
			}
		}
	}
	next := map[UniqueName]bool{}
	for n := range want {
		next[n] = true
		changed = changed || !e.attached[n]
	}
	for n := range e.attached {
		if slices.Contains(e.inUse, n) {
			next[n] = true
		} else if !want[n] {
			pv := string(n)[len(devices)+1:]
			e.expect(!e.staged[pv] && len(e.published[pv]) == 0, "%s is detached while it is mounted", pv)
			changed = true
		}
	}
	e.attached = next
	var list []v1.AttachedVolume
	for n := range next {
		list = append(list, v1.AttachedVolume{Name: n})
	}
	e.mu.Unlock()
	if changed {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{VolumesAttached: list}}
		e.must(e.client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}))
	}
	return changed
}
