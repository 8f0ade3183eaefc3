package attachdetach

import (
	"context"
	"errors"

	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// watchAttachment returns a channel with a token whenever the VolumeAttachment of
// that name may have changed. Only one operation at a time waits for one.
func (c *Controller) watchAttachment(name string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits[name] = ch
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waits[name] == ch {
			delete(c.waits, name)
		}
	}
}

// await asks check now and after each change, until it answers, or the attacher's time is over.
func (c *Controller) await(ctx context.Context, changed <-chan struct{}, timeout string, check func() (bool, error)) error {
	t := c.env.Clock().NewTimer(attacherWait)
	defer t.Stop()
	for {
		if done, err := check(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C():
			return errors.New(timeout)
		case <-changed:
		}
	}
}

// attachmentSeen wakes the operation that waits for the attachment. Otherwise it
// looks for what nobody waits for: an attachment that was lost, or one that the
// attacher has managed while its next attempt was being put off.
func (c *Controller) attachmentSeen(va *storagev1.VolumeAttachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.waits[va.Name]; ok {
		select {
		case ch <- struct{}{}:
		default:
		}
		return
	}
	if !c.started {
		return
	}
	for p, at := range c.actual.list {
		if string(p.Node) != va.Spec.NodeName || nameOf(p) != va.Name {
			continue
		}
		switch {
		case at.certain && c.verify.IsZero() && !c.attachedByAPI(p):
			c.verify = c.env.Clock().Now().Add(verifyPeriod)
			c.poke()
		case !at.certain && va.DeletionTimestamp == nil && va.Status.Attached:
			c.pending.forgive(keyOf(p.Volume, p.Node, at.volume), opAttach)
			c.poke()
		}
	}
}

// attachedByAPI tells whether the VolumeAttachment of a place says that it is attached.
func (c *Controller) attachedByAPI(p place) bool {
	va, err := c.vas.Get(nameOf(p))
	return err == nil && va.Status.Attached
}

// nameOf is the name of a place's VolumeAttachment, or empty if the volume's name is malformed.
func nameOf(p place) string {
	driver, handle, err := control.SplitUniqueName(p.Volume)
	if err != nil {
		return ""
	}
	return control.AttachmentName(handle, driver, string(p.Node))
}
