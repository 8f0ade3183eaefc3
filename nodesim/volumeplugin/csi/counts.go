package csi

import (
	"context"
	"time"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

var _ volumeplugin.SELinuxMounter = (*Plugin)(nil)

// SELinuxMount follows CSIDriver.spec.seLinuxMount.
func (p *Plugin) SELinuxMount(s *volumeplugin.Spec) (bool, error) {
	d, err := p.csiDriver(p.host.Life, driverOf(s))
	return err == nil && d != nil && d.Spec.SELinuxMount != nil && *d.Spec.SELinuxMount, err
}

// DriversChanged is to be called when a CSIDriver object has changed.
func (p *Plugin) DriversChanged() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// KeepCounts asks each registered driver again how many volumes fit on the node, as
// often as its CSIDriver says. A driver whose CSIDriver says nothing is never asked:
// what it said when it registered stands. It returns when ctx ends.
func (p *Plugin) KeepCounts(ctx context.Context) {
	asked := map[string]time.Time{}
	for ctx.Err() == nil {
		p.sleep(ctx, p.refreshDue(ctx, asked))
	}
}

// sleep waits for a change, or for d if d is positive.
func (p *Plugin) sleep(ctx context.Context, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := p.host.Lab.Clock.NewTimer(d)
		defer t.Stop()
		after = t.C()
	}
	select {
	case <-ctx.Done():
	case <-p.wake:
	case <-after:
	}
}

// refreshDue asks the drivers whose time has come. It returns when the next one's will have, zero for never.
func (p *Plugin) refreshDue(ctx context.Context, asked map[string]time.Time) time.Duration {
	var next time.Duration
	known := map[string]bool{}
	for _, name := range p.drivers.names() {
		period := p.countPeriod(ctx, name)
		if period == 0 || p.Refresh == nil {
			continue
		}
		known[name] = true
		now := p.host.Lab.Clock.Now()
		if asked[name].IsZero() {
			asked[name] = now // it has just told its count
		}
		left := asked[name].Add(period).Sub(now)
		if left <= 0 {
			if err := p.Refresh(ctx, name); err != nil && ctx.Err() == nil {
				p.host.Log.Warn().Err(err).Str("driver", name).Msg("refresh the number of volumes that fit on the node")
			}
			asked[name], left = now, period
		}
		if next == 0 || left < next {
			next = left
		}
	}
	for name := range asked {
		if !known[name] {
			delete(asked, name)
		}
	}
	return next
}

func (p *Plugin) countPeriod(ctx context.Context, driver string) time.Duration {
	d, err := p.csiDriver(ctx, driver)
	if err != nil || d == nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}
