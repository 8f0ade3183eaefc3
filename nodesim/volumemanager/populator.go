package volumemanager

import (
	"context"
	"slices"
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
		touched, all := m.touches.take()
		ready := m.pods.Ready()
		next := m.addPods(ctx, retry)
		if all {
			touched = m.everyPod()
		}
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

// Reprocess makes the populator read a pod's volumes again.
func (m *Manager) Reprocess(uid types.UID) {
	m.mu.Lock()
	m.processed[uid] = false
	m.mu.Unlock()
	m.touches.add(uid)
	wake(m.populate)
}

// addPods enters the volumes of pods that have not been processed. It returns when to try again, zero for never.
func (m *Manager) addPods(ctx context.Context, retry map[types.UID]time.Time) time.Duration {
	now := m.clock.Now()
	var work []*v1.Pod
	var next time.Duration
	for _, pod := range m.pods.List() {
		if !m.mayAdd(pod.UID) {
			continue
		}
		if at, ok := retry[pod.UID]; ok && !m.seen(pod.UID) && now.Before(at) {
			next = soonest(next, at.Sub(now))
			continue
		}
		work = append(work, pod)
	}
	clear(retry)
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
// opens it does if its containers may still run.
func (m *Manager) mayAdd(uid types.UID) bool {
	m.mu.Lock()
	done, populated := m.processed[uid], m.populated
	m.mu.Unlock()
	switch {
	case done:
		return false
	case populated:
		return !m.pods.ContainersTerminating(uid)
	}
	return !m.pods.RuntimeRemovable(uid)
}

func (m *Manager) seen(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.processed[uid]
	return ok
}

// addPod enters a pod's volumes. It returns false if the pod is to be tried again soon.
func (m *Manager) addPod(ctx context.Context, pod *v1.Pod) bool {
	use := usesOf(pod)
	ok := true
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
	m.mu.Lock()
	_, seen := m.processed[pod.UID]
	if ok || seen {
		m.processed[pod.UID] = true
	}
	m.mu.Unlock()
	if ok {
		m.actual.requireRemount(pod.UID, func(s *volumeplugin.Spec) bool {
			p, err := m.plugins.BySpec(s)
			return err == nil && p.RequiresRemount(s)
		})
		m.desired.popErrors(pod.UID)
		m.changed.ring()
	}
	return ok || seen
}

// everyPod is every pod that wants a volume, has been processed or has an error.
func (m *Manager) everyPod() map[types.UID]struct{} {
	out := m.desired.podsKnown()
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.processed {
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
	delete(m.processed, uid)
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
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		add(c.VolumeMounts, c.VolumeDevices)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		add(c.VolumeMounts, c.VolumeDevices)
	}
	return u
}
