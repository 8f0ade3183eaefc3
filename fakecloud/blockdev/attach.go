package blockdev

import (
	"context"
	"fmt"
	"maps"
	"slices"

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
		return a.device, b.attachAgain(ctx, a, v, t)
	}
	link, err := b.linkPath(v, t.Droplet)
	if err != nil {
		return "", err
	}
	a, err := p.plugIn(ctx, v, t)
	if err != nil {
		return "", err
	}
	a.volume, a.readOnly, a.links = v, t.ReadOnly, map[string]string{t.Droplet: link}
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

// attachAgain shows an attached volume to the droplet that has it, or to one more.
func (b *base) attachAgain(ctx context.Context, a *attachment, v Volume, t Target) error {
	link, known := a.links[t.Droplet]
	switch {
	case !known && !t.Shared:
		return fmt.Errorf("%w: %s", ErrElsewhere, a.node())
	case a.readOnly != t.ReadOnly:
		return fmt.Errorf("%w, and read-only there: %v", ErrAttached, a.readOnly)
	}
	if !known {
		var err error
		if link, err = b.linkPath(v, t.Droplet); err != nil {
			return err
		}
	}
	if err := b.link(ctx, v, t.Droplet, link, a.device); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.links[t.Droplet] = link
	return nil
}

// detach removes the links, then the device. If the device stays, so do the links.
func (b *base) detach(ctx context.Context, p plug, v Volume) error {
	return b.release(ctx, p, v, func(a *attachment) []string { return slices.Sorted(maps.Keys(a.links)) })
}

// detachFrom is detach from one droplet.
func (b *base) detachFrom(ctx context.Context, p plug, v Volume, droplet string) error {
	return b.release(ctx, p, v, func(a *attachment) []string {
		if _, has := a.links[droplet]; !has {
			return nil
		}
		return []string{droplet}
	})
}

func (b *base) release(ctx context.Context, p plug, v Volume, from func(*attachment) []string) error {
	unlock, err := b.lock(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("detach volume %s: %w", v.Name, err)
	}
	defer unlock()
	a := b.attachment(v.ID)
	if a == nil {
		return nil
	}
	droplets := from(a)
	if len(droplets) == 0 {
		return nil
	}
	for _, d := range droplets {
		if done, err := b.unlink(ctx, v, d, a.links[d], a.device); !done {
			return fmt.Errorf("detach volume %s from droplet %s: %w", v.Name, d, err)
		}
	}
	lab.ComponentFrom(ctx).Point(pointUnlinked, v.Name)
	if len(droplets) < len(a.links) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, d := range droplets {
			delete(a.links, d)
		}
		return nil
	}
	gone, err := p.pullOut(ctx, a)
	if !gone {
		for _, d := range droplets {
			if e := b.link(ctx, v, d, a.links[d], a.device); e != nil {
				err = fmt.Errorf("%w; and %w", err, e)
			}
		}
		return fmt.Errorf("detach volume %s from droplet %s: %w", v.Name, a.node(), err)
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
		b.removeLinks(a)
		release(a)
		delete(b.attached, id)
	}
}

func (b *base) deviceList() []Device {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Device, 0, len(b.attached))
	for id, a := range b.attached {
		for droplet := range a.links {
			out = append(out, Device{Volume: id, Path: a.device, Droplet: droplet})
		}
	}
	return out
}
