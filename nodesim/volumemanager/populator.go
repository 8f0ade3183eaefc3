package volumemanager

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// retryUnseen is the pause before a pod is looked at again that failed before its worker asked for it.
const retryUnseen = 100 * time.Millisecond

// lookups bounds how many pods are read from the API at once.
const lookups = 8

// runPopulator keeps the desired state. The gate opens with the first pass that
// began after all pods were known.
func (m *Manager) runPopulator(ctx context.Context) {
	retry := map[types.UID]time.Time{}
	for ctx.Err() == nil {
		// Each pod was touched before the pods were said to be known, so it is taken with this pass or was with one before.
		ready := m.pods.Ready()
		touched, all := m.touches.take()
		if all {
			touched = m.everyPod()
		}
		next := m.addPods(ctx, touched, retry)
		m.removePods(touched)
		if ready && ctx.Err() == nil {
			m.openGate()
		}
		m.sleep(ctx, m.populate, next)
	}
}

func (m *Manager) openGate() {
	m.mu.Lock()
	was := m.populated
	m.populated = true
	m.mu.Unlock()
	if !was {
		m.notify()
	}
}

// sleep waits for a wake, or for d if d is positive.
func (m *Manager) sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := m.clock.NewTimer(d)
		defer t.Stop()
		after = t.C()
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-after:
	}
}

// progress is how far the populator is with a pod.
type progress struct {
	asked bool    // the pod's worker has asked for its volumes, and hears of a failure
	done  bool    // they are entered, or are not as the worker has heard
	doing *v1.Pod // the pod as it is being read just now
	again bool    // the worker has asked since for the pod as it is now
}

// reprocess makes the populator read a pod's volumes again, unless it is just about that very object.
func (m *Manager) reprocess(pod *v1.Pod) {
	m.mu.Lock()
	p := m.progress[pod.UID]
	p.asked, p.done, p.again = true, false, p.doing != nil && p.doing != pod
	m.progress[pod.UID] = p
	m.mu.Unlock()
	m.touchPod(pod.UID)
}

// begin records that a pod's volumes are read now.
func (m *Manager) begin(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.progress[pod.UID]
	p.doing, p.again = pod, false
	m.progress[pod.UID] = p
}

// finish records how that went, and tells whether the pod's worker has asked for it.
func (m *Manager) finish(uid types.UID, ok bool) (asked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.progress[uid]
	p.doing, p.done = nil, (ok || p.asked) && !p.again
	m.progress[uid] = p
	return p.asked
}

// addPods enters the volumes of those of the touched pods, and of those to try again,
// that have not been processed. It returns when to try again, zero for never.
func (m *Manager) addPods(ctx context.Context, touched map[types.UID]struct{}, retry map[types.UID]time.Time) time.Duration {
	now := m.clock.Now()
	var work []*v1.Pod
	var next time.Duration
	look := func(uid types.UID) {
		pod, exists := m.pods.Get(uid)
		may, asked := m.mayAdd(uid)
		if at, waits := retry[uid]; exists && may && waits && !asked && now.Before(at) {
			next = soonest(next, at.Sub(now))
			return
		}
		delete(retry, uid)
		if exists && may {
			work = append(work, pod)
		}
	}
	for uid := range touched {
		look(uid)
	}
	for uid := range retry {
		if _, looked := touched[uid]; !looked {
			look(uid)
		}
	}
	var mu sync.Mutex
	m.each(work, func(pod *v1.Pod) {
		if m.addPod(ctx, pod) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		retry[pod.UID] = now.Add(retryUnseen)
		next = soonest(next, retryUnseen)
	})
	return next
}

// each runs f for every pod, a few at once, and waits.
func (m *Manager) each(pods []*v1.Pod, f func(*v1.Pod)) {
	if len(pods) == 1 {
		f(pods[0])
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, lookups)
	for _, pod := range pods {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(pod)
		})
	}
	wg.Wait()
}

func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// mayAdd: in ordinary life a pod that is ending gets no volumes. Until the gate
// opens it does if its containers may still run. Asked: its worker has asked for them.
func (m *Manager) mayAdd(uid types.UID) (may, asked bool) {
	m.mu.Lock()
	p, populated := m.progress[uid], m.populated
	m.mu.Unlock()
	switch {
	case p.done:
		return false, p.asked
	case populated:
		return !m.pods.ContainersTerminating(uid), p.asked
	}
	return !m.pods.RuntimeRemovable(uid), p.asked
}

// addPod enters a pod's volumes. It returns false if the pod is to be tried again soon.
func (m *Manager) addPod(ctx context.Context, pod *v1.Pod) bool {
	use := usesOf(pod)
	ok := true
	m.begin(pod)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !use.mounts[v.Name] && !use.devices[v.Name] {
			continue
		}
		if err := m.addVolume(ctx, pod, v, use); err != nil {
			if ctx.Err() != nil {
				return true
			}
			m.log.Debug().Err(err).Str("pod", pod.Namespace+"/"+pod.Name).Str("volume", v.Name).Msg("process volume")
			m.desired.addError(pod.UID, err)
			ok = false
		}
	}
	asked := m.finish(pod.UID, ok)
	if ok {
		m.actual.requireRemount(pod.UID, func(s *volumeplugin.Spec) bool {
			p, err := m.plugins.BySpec(s)
			return err == nil && p.RequiresRemount(s)
		})
		m.desired.popErrors(pod.UID)
	}
	return ok || asked
}

// everyPod is every pod that the node has, that wants a volume, was processed or has an error.
func (m *Manager) everyPod() map[types.UID]struct{} {
	out := m.desired.podsKnown()
	for _, pod := range m.pods.List() {
		out[pod.UID] = struct{}{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.progress {
		out[uid] = struct{}{}
	}
	return out
}

// removePods drops what these pods no longer want: their containers have ended, and
// what was up is up for good.
func (m *Manager) removePods(pods map[types.UID]struct{}) {
	for uid := range pods {
		_, exists := m.pods.Get(uid)
		wanted := m.desired.pod(uid)
		for _, w := range wanted {
			m.removeWanted(w, exists)
		}
		if len(wanted) == 0 && !exists && m.pods.RuntimeRemovable(uid) {
			m.forget(uid)
			m.desired.popErrors(uid)
		}
	}
}

func (m *Manager) removeWanted(w wanted, exists bool) {
	uid := w.Pod.UID
	if exists && w.Attachable {
		if a, err := m.plugins.Attachable(w.Spec); err == nil && a == nil {
			m.desired.markNotAttachable(w.Volume)
			m.log.Info().Str("volume", string(w.Volume)).Msg("volume changes from attachable to non-attachable")
			m.touchPod(uid) // the volume may have to go all the same
			return
		}
	}
	// A mount may be in flight: its outcome must be known before the pod is let go.
	// The kubelet keeps the entry of a pod that exists as long as nothing is mounted,
	// and so may mount for a pod whose end it does not wait for any more.
	if !m.pods.RuntimeRemovable(uid) || m.pending.busy(uid) {
		return
	}
	m.desired.remove(uid, w.Volume)
	m.forget(uid)
}

func (m *Manager) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.progress, uid)
}

// uses are the names of the pod's volumes that some container mounts or maps.
type uses struct{ mounts, devices map[string]bool }

func usesOf(pod *v1.Pod) uses {
	u := uses{map[string]bool{}, map[string]bool{}}
	add := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for _, x := range mounts {
			u.mounts[x.Name] = true
		}
		for _, x := range devices {
			u.devices[x.Name] = true
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts, list[i].VolumeDevices)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices)
	}
	return u
}
