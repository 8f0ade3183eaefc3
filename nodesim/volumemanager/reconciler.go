package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pauses of the reconciler, for what no event announces.
const (
	retryOwed  = 500 * time.Millisecond // reading the own Node failed
	retryStuck = time.Second            // an unmount cannot start, for damaged metadata
)

// runReconciler reconstructs what is on disk, then compares and starts operations at each wake.
func (m *Manager) runReconciler(ctx context.Context) {
	m.reconstruct(ctx)
	for ctx.Err() == nil {
		again := m.pass(ctx)
		if d := m.pending.due(); d > 0 {
			again = soonest(again, d)
		}
		m.sleep(ctx, m.reconcile, again)
	}
}

// pass is one comparison. It returns when another one is due at the latest, zero for never.
func (m *Manager) pass(ctx context.Context) time.Duration {
	var again time.Duration
	ready := m.ready()
	if ready && m.unmountVolumes(ctx) {
		again = retryStuck
	}
	if m.mountVolumes(ctx) {
		again = retryStuck
	}
	if ready {
		m.unmountDevices(ctx)
		m.cleanUpFailed(ctx)
	}
	if !m.confirmOwed(ctx) {
		again = soonest(again, retryOwed)
	}
	return again
}

// unmountVolumes takes volumes from pods that do not want them. It returns true if one could not even be begun.
func (m *Manager) unmountVolumes(ctx context.Context) bool {
	stuck := false
	for _, v := range m.actual.mounts() {
		if m.pending.running(key{v.Volume, v.UID}) || m.desired.wants(v.UID, v.Volume, v.Label) {
			continue
		}
		// An operation that ended since the list was made may have unmounted it; it said so before it ended.
		if state, _, _ := m.actual.pair(v.Volume, v.UID); state == NotMounted {
			continue
		}
		err := m.startUnmount(ctx, v)
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

// mountVolumes brings up what is wanted and not there. It returns true if something could not even be begun.
func (m *Manager) mountVolumes(ctx context.Context) bool {
	stuck := false
	for _, w := range m.desired.list() {
		if m.pending.running(key{w.Volume, ""}) {
			continue
		}
		is := m.actual.ask(w)
		var err error
		switch is.need {
		case needOtherLabel:
			m.desired.addError(w.Pod.UID, fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a different pod with a different SELinux label", w.Spec.Name()))
		case needAttach:
			err = m.startVerify(ctx, w)
		case needMount, needRemount:
			err = m.startMount(ctx, w, is.devicePath, is.need == needRemount)
		case needResize:
			err = m.startExpand(ctx, w, is.devicePath, is.size)
		}
		if !expected(err) {
			stuck = true
			m.log.Error().Err(err).Stringer("wanted", w).Msg("operation cannot start")
		}
	}
	return stuck
}

// unmountDevices takes down devices that nobody wants, and forgets volumes whose device is down.
// The entry is read again: it may have changed since the list was made, but no
// operation can have begun, for they all begin in this goroutine.
func (m *Manager) unmountDevices(ctx context.Context) {
	for _, v := range m.actual.list(true) {
		if m.desired.exists(v.Volume, v.Label) || m.pending.running(key{v.Volume, ""}) {
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
		if err := m.startUnmountDevice(ctx, v); !expected(err) {
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
