package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// settles is longer than any pause: a wait of 2m3s, a resync or a pause of an operation after it, and one that was begun late.
const settles = 10 * time.Minute

// TestProgress lets pods come and go, volumes grow and the kubelet start anew, while
// every call may fail, hang or leave the kubelet in doubt. When all is healed, and
// every pause over, what is there must be what is wanted: nothing may wait for a wake
// that never comes. What a retry would bring about in the end does not hide there: in
// half of the histories nothing fails, and then no wait may run out of time. Nor does what any other
// wake would bring about: in half of them no pod is left at the end, whose resyncs would wake the
// manager. Time is virtual, so minutes cost nothing.
func TestProgress(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		calm := rapid.Bool().Draw(r, "calm")
		empty := rapid.Bool().Draw(r, "empty")
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 25).Draw(r, "steps")
		root, err := os.MkdirTemp("/tmp", "dd")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(root)
		// synctest wants a testing.T of its own, so a failure in the bubble is carried out of it.
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = newEarth(seed, calm, root).play(steps, empty) })
		if wrong != "" {
			r.Fatal(wrong)
		}
	})
}

type step struct {
	what   string
	number int
	wait   time.Duration
}

func drawStep(r *rapid.T) step {
	return step{
		rapid.SampledFrom([]string{"create", "create", "create", "delete", "delete", "grow", "restart", "pods changed", "node changed"}).Draw(r, "what"),
		rapid.IntRange(0, 63).Draw(r, "number"),
		rapid.SampledFrom([]time.Duration{0, 0, time.Nanosecond, time.Millisecond, 60 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second, 70 * time.Second}).Draw(r, "wait"),
	}
}

// play does the steps, ends all pods if none is to be left, lets all settle, and tells what is wrong then.
func (e *earth) play(steps []step, empty bool) string {
	stopAttaching := e.keepAttaching()
	l := e.begin()
	for i, s := range steps {
		switch s.what {
		case "create":
			l.create(types.UID(fmt.Sprintf("pod%d", i)), s.number)
		case "delete":
			l.delete(s.number)
		case "grow":
			e.grow(s.number % manyDevices)
		case "restart":
			l.end()
			l = e.begin()
		case "pods changed":
			l.m.PodsChanged()
		case "node changed":
			l.m.NodeChanged()
		}
		time.Sleep(s.wait)
	}
	if empty {
		for l.delete(0) {
		}
		time.Sleep(time.Duration(e.luck("last", 20)) * 250 * time.Millisecond) // what fails meanwhile is to be tried again when all is healed
	}
	e.do(func() { e.healed = true })
	time.Sleep(settles)
	wrong := e.settled(l.m)
	l.end()
	stopAttaching()
	return wrong
}

// settled tells what of the wanted is not there, or is there and not wanted.
func (e *earth) settled(m *Manager) string {
	state := m.State()
	e.mu.Lock()
	defer e.mu.Unlock()
	wrong := e.wrong
	complain := func(format string, args ...any) {
		if wrong == "" {
			wrong = fmt.Sprintf(format, args...) + fmt.Sprintf("\nstate %+v\nin use %v attached %v staged %v published %v", state, e.inUse, e.attached, e.staged, e.published)
		}
	}
	want := map[UniqueName]bool{}
	for uid, p := range e.pods {
		if p.phase != syncing || !p.up {
			complain("pod %s is in phase %d, up %v", uid, p.phase, p.up)
		}
		for _, v := range p.pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			pv := v.PersistentVolumeClaim.ClaimName
			want[uniqueOf(pv)] = true
			if !e.published[pv][uid] {
				complain("%s is not published for pod %s", pv, uid)
			}
			if has, _ := m.actual.get(uniqueOf(pv)); has.Size.Cmp(m.desired.volumes[uniqueOf(pv)].size) != 0 {
				complain("%s has size %s, wants %s", pv, has.Size.String(), m.desired.volumes[uniqueOf(pv)].size.String())
			}
		}
	}
	for i := range manyDevices {
		pv := pvName(i)
		if e.staged[pv] != want[uniqueOf(pv)] {
			complain("%s is staged: %v", pv, e.staged[pv])
		}
		for uid := range e.published[pv] {
			if e.pods[uid] == nil {
				complain("%s is published for pod %s, which is gone", pv, uid)
			}
		}
		if e.attached[uniqueOf(pv)] != want[uniqueOf(pv)] || slices.Contains(e.inUse, uniqueOf(pv)) != want[uniqueOf(pv)] {
			complain("%s is attached %v, in use %v", pv, e.attached[uniqueOf(pv)], e.inUse)
		}
	}
	for uid, volumes := range m.actual.byPod {
		for name, p := range volumes {
			if p.remount {
				complain("%s is to be refreshed for pod %s", name, uid)
			}
		}
	}
	for _, s := range state {
		// What failed last stays on record; it keeps nothing from happening.
		if slices.ContainsFunc(s.Operations, func(o string) bool { return strings.Contains(o, "is running") }) {
			complain("%s is busy: %v", s.Name, s.Operations)
		}
		for _, p := range s.Pods {
			if p.State != Mounted || !p.Wanted {
				complain("%s is %s for pod %s, wanted %v", s.Name, p.State, p.UID, p.Wanted)
			}
		}
	}
	return wrong
}

// grow makes a PV a gibibyte larger, as a resizer does that leaves the rest to the node.
func (e *earth) grow(i int) {
	ctx := context.Background()
	for {
		pv, err := e.client.CoreV1().PersistentVolumes().Get(ctx, pvName(i), metav1.GetOptions{})
		if err != nil {
			continue // bad luck
		}
		size := pv.Spec.Capacity.Storage().DeepCopy()
		size.Add(resource.MustParse("1Gi"))
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: size}
		e.must(e.client.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{}))
		return
	}
}

// keepAttaching runs the attach controller, which the kubelet's cache hears of later.
func (e *earth) keepAttaching() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			e.attach()
			pause(ctx, time.Duration(e.luck("attach", 3))*100*time.Millisecond+100*time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// earthLife is one life of a kubelet on this earth.
type earthLife struct {
	*earth
	m    *Manager
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func (e *earth) begin() *earthLife {
	ctx, stop := context.WithCancel(context.Background())
	l := &earthLife{earth: e, m: e.newManager(), ctx: ctx, stop: stop}
	e.mu.Lock()
	for _, p := range e.pods {
		p.phase, p.up = min(p.phase, terminating), false
		p.wake = make(chan struct{}, 1)
	}
	pods := e.pods
	var uids []types.UID
	for uid := range pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	e.told = false
	e.mu.Unlock()
	l.m.TakeOver(e.listed())
	for _, f := range []func(){func() { l.m.Run(ctx) }, l.keepCache, l.keepReporting, l.tell} {
		l.wg.Go(f)
	}
	for _, uid := range uids {
		l.work(uid)
	}
	return l
}

func (l *earthLife) end() { l.stop(); l.wg.Wait() }

func (e *earth) listed() []UniqueName {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.inUse)
}

// tell says after a while that all pods were told.
func (l *earthLife) tell() {
	pause(l.ctx, time.Duration(l.luck("told", 4))*200*time.Millisecond)
	l.do(func() { l.told = true })
	l.m.PodsChanged()
}

// keepCache brings the kubelet's cache of its Node up to date, late.
func (l *earthLife) keepCache() {
	for l.ctx.Err() == nil {
		pause(l.ctx, time.Duration(l.luck("cache", 4))*150*time.Millisecond+10*time.Millisecond)
		changed := false
		l.do(func() {
			changed = len(l.cached) != len(l.attached)
			for n := range l.attached {
				changed = changed || !l.cached[n]
			}
			l.cached = l.attached
		})
		if changed {
			l.m.NodeChanged()
		}
	}
}

// keepReporting writes volumesInUse as the node's status does.
func (l *earthLife) keepReporting() {
	for l.ctx.Err() == nil {
		changed := l.m.InUseChanged()
		if l.m.Synced() {
			list := l.m.InUse()
			pause(l.ctx, time.Duration(l.luck("report", 4))*40*time.Millisecond)
			if l.ctx.Err() != nil {
				return
			}
			l.do(func() { l.inUse = list })
			l.m.MarkReported(list)
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
		}
	}
}

// create makes a pod with the volumes that the bits of number say.
func (l *earthLife) create(uid types.UID, number int) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	use := func(v v1.Volume) {
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	for i := range manyDevices {
		if number>>i&1 == 1 {
			use(v1.Volume{Name: "v" + pvName(i), VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: pvName(i)}}})
		}
	}
	if number>>manyDevices&1 == 1 {
		use(v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	l.do(func() { l.pods[uid] = &earthPod{pod: p, wake: make(chan struct{}, 1)} })
	l.work(uid)
	l.m.PodChanged(uid)
}

// delete begins to end one of the pods that are not ending, if there is one.
func (l *earthLife) delete(number int) bool {
	var alive []types.UID
	l.do(func() {
		for uid, p := range l.pods {
			if p.phase == syncing {
				alive = append(alive, uid)
			}
		}
	})
	if len(alive) == 0 {
		return false
	}
	slices.Sort(alive)
	uid := alive[number%len(alive)]
	l.do(func() {
		p := l.pods[uid]
		p.phase = terminating
		if p.end != nil {
			p.end()
		}
		wake(p.wake)
	})
	l.m.PodChanged(uid)
	return true
}

// work carries a pod from its first sight to its end, as a pod's worker does.
func (l *earthLife) work(uid types.UID) {
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			p, phase := l.look(uid)
			next := 10 * time.Second
			switch phase {
			case syncing:
				if l.await(p) == nil {
					l.do(func() { p.up = true })
					next = time.Minute + time.Duration(l.luck("resync", 30))*time.Second
				}
			case terminating:
				pause(l.ctx, time.Duration(l.luck("stop", 3))*300*time.Millisecond)
				l.do(func() { p.phase = terminated })
				l.m.PodChanged(uid)
				continue
			case terminated:
				err := l.m.WaitForUnmount(l.ctx, uid)
				l.inVain(uid, err)
				if err == nil {
					l.do(func() {
						for i := range manyDevices {
							l.expect(!l.published[pvName(i)][uid], "pod %s goes, and %s is published for it", uid, pvName(i))
						}
						delete(l.pods, uid)
					})
					l.m.PodChanged(uid)
					return
				}
			}
			if _, now := l.look(uid); now == phase {
				l.m.sleep(l.ctx, p.wake, next)
			}
		}
	})
}

func (l *earthLife) look(uid types.UID) (p *earthPod, phase int) {
	l.do(func() { p, phase = l.pods[uid], l.pods[uid].phase })
	return p, phase
}

// await waits for the pod's volumes; its end ends the wait.
func (l *earthLife) await(p *earthPod) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	l.do(func() {
		if p.end = cancel; p.phase != syncing {
			cancel()
		}
	})
	err := l.m.WaitForAttachAndMount(ctx, p.pod)
	l.inVain(p.pod.UID, err)
	return err
}

// inVain complains of a wait that ran out of time though nothing failed.
func (l *earthLife) inVain(uid types.UID, err error) {
	if l.calm && errors.Is(err, context.DeadlineExceeded) {
		l.complain("pod %s waited in vain: %v", uid, err)
	}
}
