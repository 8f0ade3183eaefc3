package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Pauses of the reconciler, for what no event announces.
const (
	retryOwed  = 500 * time.Millisecond // reading the own Node failed
	retryStuck = time.Second            // an unmount cannot start, for damaged metadata
	retryLabel = 100 * time.Millisecond // a volume waits for another pod's unmount, and its pod is to be told
)

// runReconciler reconstructs what is on disk, then compares and starts operations at each wake.
func (m *Manager) runReconciler(ctx context.Context) {
	m.reconstruct(ctx)
	for ctx.Err() == nil {
		again := m.pass(ctx)
		if over, next := m.pending.expired(); len(over) > 0 {
			m.touch(over...)
		} else if next > 0 {
			again = soonest(again, next)
		}
		m.sleep(ctx, m.reconcile, again)
	}
}

// pass is one comparison. It returns when another one is due at the latest, zero for never.
func (m *Manager) pass(ctx context.Context) time.Duration {
	var again time.Duration
	names := m.lookAt() // before ready: the gate touches everything after it has opened
	ready := m.ready()
	m.turn = false
	if ready && m.unmountVolumes(ctx, names) {
		again = retryStuck
	}
	if d := m.mountVolumes(ctx, names); d > 0 {
		again = soonest(again, d)
	}
	if ready {
		m.unmountDevices(ctx, names)
		m.cleanUpFailed(ctx)
	}
	if !m.confirmOwed(ctx) {
		again = soonest(again, retryOwed)
	}
	if m.turn {
		again = soonest(again, turn)
	}
	return again
}

// lookAt lists by name the volumes that this pass is about, and begins a new list of those to look at again.
func (m *Manager) lookAt() []UniqueName {
	set, all := m.volumes.take()
	again := m.open
	m.open = map[UniqueName]bool{}
	if all {
		return m.known()
	}
	for name := range again {
		set[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(set))
}

// known lists by name all volumes of either state.
func (m *Manager) known() []UniqueName {
	names := append(m.desired.names(), m.actual.names()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// unmountVolumes takes volumes from pods that do not want them. It returns true if one could not even be begun.
func (m *Manager) unmountVolumes(ctx context.Context, names []UniqueName) bool {
	stuck := false
	for _, v := range m.actual.mounts(names) {
		if m.pending.running(key{v.Volume, v.UID}) || m.desired.wants(v.UID, v.Volume, v.Label) {
			continue
		}
		// An operation that ended since the list was made may have unmounted it; it said so before it ended.
		if state, _, _ := m.actual.pair(v.Volume, v.UID); state == NotMounted {
			continue
		}
		err := m.startUnmount(ctx, v)
		m.keepOpen(v.Volume, err)
		if !expected(err) {
			stuck = true
			m.reportStuck(v, err)
		}
	}
	return stuck
}

// reportStuck logs why an unmount does not begin, once for each reason.
func (m *Manager) reportStuck(v mountedVolume, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := string(v.Volume) + "/" + string(v.UID)
	if m.stuck[id] != err.Error() {
		m.stuck[id] = err.Error()
		m.log.Error().Err(err).Str("volume", string(v.Volume)).Str("pod", string(v.UID)).Msg("unmount cannot start")
	}
}

// keepOpen has a volume looked at again in the next pass if its operation did not begin
// for a reason whose end touches nothing. The end of an operation and of a pause do.
func (m *Manager) keepOpen(name UniqueName, err error) {
	if err != nil && !errors.Is(err, errRunning) && !errors.Is(err, errPaused) {
		m.open[name] = true
	}
	m.turn = m.turn || errors.Is(err, errTurn)
}

// mountVolumes brings up what is wanted and not there. It returns when to try again what could not even be begun, zero for never.
func (m *Manager) mountVolumes(ctx context.Context, names []UniqueName) time.Duration {
	var again time.Duration
	for _, w := range m.desired.list(names) {
		if m.pending.running(key{w.Volume, ""}) {
			continue
		}
		is := m.actual.ask(w)
		var err error
		switch is.need {
		case needOtherLabel:
			m.open[w.Volume], again = true, soonest(again, retryLabel)
			m.desired.addError(w.Pod.UID, fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different pod with a different SELinux label", w.Spec.Name()))
		case needAttach:
			err = m.startVerify(ctx, w)
		case needMount, needRemount:
			err = m.startMount(ctx, w, is.devicePath, is.need == needRemount)
		case needResize:
			err = m.startExpand(ctx, w, is.devicePath, is.size)
		}
		m.keepOpen(w.Volume, err)
		if !expected(err) {
			again = soonest(again, retryStuck)
			m.log.Error().Err(err).Stringer("wanted", w).Msg("operation cannot start")
		}
	}
	return again
}

// unmountDevices takes down devices that nobody wants, and forgets volumes whose device is down.
// The entry is read again: it may have changed since the list was made, but no
// operation can have begun, for they all begin in this goroutine.
func (m *Manager) unmountDevices(ctx context.Context, names []UniqueName) {
	for _, v := range m.actual.list(names) {
		if !m.actual.idle(v.Volume) || m.desired.exists(v.Volume, v.Label) || m.pending.running(key{v.Volume, ""}) {
			continue
		}
		v, ok := m.actual.get(v.Volume)
		if !ok {
			continue
		}
		if !v.mayBeMounted() {
			m.forgetBlock(v)
			if err := m.actual.markDetached(v.Volume); err != nil {
				m.log.Error().Err(err).Msg("forget volume")
			}
			continue
		}
		err := m.startUnmountDevice(ctx, v)
		m.keepOpen(v.Volume, err)
		if !expected(err) {
			m.log.Error().Err(err).Str("volume", string(v.Volume)).Msg("operation cannot start")
		}
	}
}

// forgetBlock removes what was written for a block volume before its device was to be
// set up, which did not come about. The kubelet leaves that behind.
func (m *Manager) forgetBlock(v have) {
	if !v.Spec.Block() {
		return
	}
	p, err := m.blockPlugin(v.Plugin)
	if err == nil {
		err = p.Forget(v.Spec.Name())
	}
	m.logMark(err)
}

// expected errors are no news: the operation runs already, or its time has not come.
func expected(err error) bool {
	var s startError
	return err == nil || errors.As(err, &s)
}
