package attachdetach

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// reconcile starts the operations that the difference of the two states asks for,
// and returns after how long it must run again though nothing changes.
func (c *Controller) reconcile(ctx context.Context) (again time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	soonest := func(d time.Duration) {
		if !ok || d < again {
			again, ok = d, true
		}
	}
	c.verifyAttached(soonest)
	for _, at := range c.actual.sorted() {
		if c.desired.wants[at.place] == nil {
			c.considerDetach(ctx, at, soonest)
		}
	}
	wants := slices.SortedFunc(maps.Keys(c.desired.wants), comparePlaces)
	for _, p := range wants {
		c.considerAttach(ctx, p, c.desired.wants[p], soonest)
	}
	return again, ok
}

// considerDetach starts the detach of an unwanted attachment if that is safe now.
// Where the node has not spoken about the volume since it was attached, the
// operation asks it first.
func (c *Controller) considerDetach(ctx context.Context, at *attachment, soonest func(time.Duration)) {
	key := keyOf(at.Volume, at.Node, at.volume)
	if c.pending.running(key) {
		return
	}
	if wait := c.pending.wait(key, opDetach); wait > 0 {
		soonest(wait)
		return
	}
	if at.unwantedSince.IsZero() {
		at.unwantedSince = c.env.Clock().Now()
		c.recordUnwanted(ctx, at)
	}
	left := unmountGrace - c.env.Clock().Since(at.unwantedSince)
	expired := left <= 0 && !c.opts.NoForcedDetach
	node, _ := c.nodes.Get(string(at.Node))
	ready := node != nil && control.IsReady(node)
	tainted := node != nil && control.HasTaint(node, corev1.TaintNodeOutOfService)
	forced := expired && !ready || tainted
	if at.inUse && !at.assumed && !forced {
		if left > 0 && !c.opts.NoForcedDetach {
			soonest(left)
		}
		return
	}
	c.pending.start(key, opDetach)
	d := detachment{place: at.place, volume: at.volume, unverified: expired || tainted, ask: at.inUse && !forced}
	c.wg.Go(func() {
		c.detach(ctx, key, d)
	})
}

// considerAttach starts the attach of a wanted volume unless it is there, or
// certainly on another node though only one may have it.
func (c *Controller) considerAttach(ctx context.Context, p place, w *want, soonest func(time.Duration)) {
	key := keyOf(p.Volume, p.Node, w.volume)
	at := c.actual.list[p]
	if at != nil && at.volume == nil {
		at.volume = w.volume
	}
	if c.pending.running(key) {
		return
	}
	if at != nil && at.certain {
		at.unwantedSince = time.Time{}
		return
	}
	if !shareable(w.volume) {
		if others := c.actual.holders(p.Volume, p.Node); len(others) > 0 {
			if !w.multiAttachSaid {
				w.multiAttachSaid = true
				c.sayMultiAttach(w, others, c.desired.podsOn(p.Volume, others))
			}
			return
		}
	}
	if wait := c.pending.wait(key, opAttach); wait > 0 {
		soonest(wait)
		return
	}
	c.pending.start(key, opAttach)
	v, pods := w.volume, w.list()
	c.wg.Go(func() {
		c.attach(ctx, key, p, v, pods)
	})
}

// keyOf is the key of an operation on a volume: the whole volume if only one node may have it.
func keyOf(v Volume, n NodeName, pv *corev1.PersistentVolume) opKey {
	if shareable(pv) {
		return opKey{v, n}
	}
	return opKey{Volume: v}
}

// verifyAttached drops certain attachments whose VolumeAttachment says otherwise, a
// minute after that was noticed, so that they are attached again where wanted.
func (c *Controller) verifyAttached(soonest func(time.Duration)) {
	if c.verify.IsZero() {
		return
	}
	if left := c.verify.Sub(c.env.Clock().Now()); left > 0 {
		soonest(left)
		return
	}
	c.verify = time.Time{}
	for _, at := range c.actual.sorted() {
		if !at.certain || c.pending.running(keyOf(at.Volume, at.Node, at.volume)) || c.attachedByAPI(at.place) {
			continue
		}
		c.actual.detached(at.place)
		c.reportSoon(at.Node)
	}
}

// recordUnwanted puts the moment on the record from which the six minutes of a forced detach count.
func (c *Controller) recordUnwanted(ctx context.Context, at *attachment) {
	label := string(at.Volume)
	if at.volume != nil {
		label = at.volume.Name
	}
	_, span := c.env.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "unwanted", Volume: label, Node: string(at.Node)})
	span.End("OK", nil)
}
