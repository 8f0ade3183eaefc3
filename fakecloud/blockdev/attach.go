package blockdev

import (
	"context"
	"fmt"

	"drydock.dev/drydock/internal/lab"
)

// plug is the part of attaching that differs between backends.
type plug interface {
	// plugIn makes the device. The attachment it returns owns it.
	plugIn(ctx context.Context, v Volume, t Target) (*attachment, error)
	// pullOut takes it away. Gone tells whether it is, whatever the error says.
	pullOut(ctx context.Context, a *attachment) (gone bool, err error)
	// drop releases what a killed process would have lost: descriptors, no files.
	drop(a *attachment)
}

// attach makes the device, then its link; without the link there is no device.
func (b *base) attach(ctx context.Context, p plug, v Volume, t Target) (device string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("attach volume %s to droplet %s: %w", v.Name, t.Droplet, err)
		}
	}()
	unlock, err := b.lock(ctx, v.ID)
	if err != nil {
		return "", err
	}
	defer unlock()
	if a := b.attachment(v.ID); a != nil {
		if a.target != t {
			return "", fmt.Errorf("%w: %s", ErrElsewhere, a.target.Droplet)
		}
		return a.device, b.link(ctx, v, t.Droplet, a.link, a.device)
	}
	link, err := b.linkPath(v, t.Droplet)
	if err != nil {
		return "", err
	}
	a, err := p.plugIn(ctx, v, t)
	if err != nil {
		return "", err
	}
	a.volume, a.target, a.link = v, t, link
	kept := false
	defer func() {
		if !kept {
			p.drop(a)
		}
	}()
	lab.ComponentFrom(ctx).Point(pointDevice, v.Name)
	if err := b.link(ctx, v, t.Droplet, link, a.device); err != nil {
		if gone, e := p.pullOut(context.WithoutCancel(ctx), a); !gone {
			err = fmt.Errorf("%w; and %w", err, e)
		}
		return "", err
	}
	b.setAttachment(v.ID, a)
	kept = true
	return a.device, nil
}

// detach removes the link, then the device. If the device stays, so does the link.
func (b *base) detach(ctx context.Context, p plug, v Volume) error {
	unlock, err := b.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("detach volume %s: %w", v.Name, err)
	}
	defer unlock()
	a := b.attachment(v.ID)
	if a == nil {
		return nil
	}
	if done, err := b.unlink(ctx, v, a.target.Droplet, a.link, a.device); !done {
		return fmt.Errorf("detach volume %s from droplet %s: %w", v.Name, a.target.Droplet, err)
	}
	lab.ComponentFrom(ctx).Point(pointUnlinked, v.Name)
	gone, err := p.pullOut(ctx, a)
	if !gone {
		if e := b.link(ctx, v, a.target.Droplet, a.link, a.device); e != nil {
			err = fmt.Errorf("%w; and %w", err, e)
		}
		return fmt.Errorf("detach volume %s from droplet %s: %w", v.Name, a.target.Droplet, err)
	}
	b.setAttachment(v.ID, nil)
	return nil
}

// closeAll detaches what is attached, without faults: the backend is ending.
func (b *base) closeAll(release func(*attachment)) {
	b.mu.Lock()
	b.closed = true
	waits := make([]chan struct{}, 0, len(b.busy))
	for _, c := range b.busy {
		waits = append(waits, c)
	}
	b.mu.Unlock()
	for _, c := range waits {
		<-c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, a := range b.attached {
		b.removeLink(a)
		release(a)
		delete(b.attached, id)
	}
}

func (b *base) deviceList() []Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Device, 0, len(b.attached))
	for id, a := range b.attached {
		out = append(out, Device{Volume: id, Path: a.device, Droplet: a.target.Droplet})
	}
	return out
}
