package fakecloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// Request asks for an action on a volume.
//
//	(checks pass) --> in-progress --latency--> effect --> completed
//	                       |                     '------> errored (the effect undone)
//	                       '-- kill -9, Open --> again from the start
type Request struct {
	Type    ActionType // AttachVolume, DetachVolume or ResizeVolume
	Volume  VolumeID
	Droplet DropletID // of attach and detach
	SizeGiB int64     // of resize
	Region  string    // if given, the volume must be there
	Tags    []string  // an attach may add tags to the volume
	// ReadOnly attaches a device that cannot be written; the real cloud has no such thing.
	ReadOnly bool
	// Fail lets the action end errored with this text, without an effect: a fault of the lab.
	Fail string
}

// Start checks a request against every rule and starts the action. The answer shows it in progress.
func (c *Cloud) Start(ctx context.Context, r Request) (Action, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return Action{}, err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.state.volumes[r.Volume]
	if v == nil {
		return Action{}, notFound()
	}
	if err := c.check(v, r); err != nil {
		return Action{}, err
	}
	a := Action{Type: r.Type, Region: v.Region, Volume: v.ID, Droplet: r.Droplet, SizeGiB: r.SizeGiB}
	if r.Type == ResizeVolume {
		a.Droplet, a.SizeGiB = 0, max(r.SizeGiB, v.SizeGiB)
	} else {
		a.SizeGiB = 0
	}
	a.ReadOnly = r.ReadOnly && r.Type == AttachVolume
	var ch change
	if added := missing(v.Tags, r.Tags); r.Type == AttachVolume && len(added) > 0 {
		tagged := *v
		tagged.Tags = append(append([]string{}, v.Tags...), added...)
		ch.volumes, ch.tags = []Volume{tagged}, c.newTags(added)
	}
	return c.launch(a, ch, r.Fail)
}

// launch records an action, with ch in the same transaction, and runs it. The caller holds mu.
func (c *Cloud) launch(a Action, ch change, failure string) (Action, error) {
	a.ID, a.Status, a.Started = c.state.lastAction+1, InProgress, c.now()
	ch.actions = append(ch.actions, a)
	ch.noActions = c.forgotten()
	if err := c.commit(ch); err != nil {
		return Action{}, internal(err)
	}
	c.run(a, failure, c.latency(a))
	return a, nil
}

// forgotten picks finished actions beyond the history's length, a handful at a time. The caller holds mu.
func (c *Cloud) forgotten() (ids []ActionID) {
	over := len(c.state.actionIDs) + 1 - c.settings.Limits.ActionHistory
	for _, id := range c.state.actionIDs {
		if len(ids) >= min(over, 16) {
			break
		}
		if c.state.actions[id].Status != InProgress {
			ids = append(ids, id)
		}
	}
	return ids
}

// run takes the locks and starts the action's goroutine. The caller holds mu.
func (c *Cloud) run(a Action, failure string, latency time.Duration) {
	if c.closed {
		return // it goes on at the next Open
	}
	if a.Volume != "" {
		c.busy[a.Volume] = a.ID
	}
	if a.Droplet != 0 {
		c.pending[a.Droplet]++
	}
	c.ended[a.ID] = make(chan bool)
	label := blockdev.Volume{ID: a.Volume}
	if v := c.state.volumes[a.Volume]; v != nil {
		label.Name = v.Name
	}
	node := ""
	if d := c.state.droplets[a.Droplet]; d != nil {
		node = d.Name
	}
	c.life.Go(func() {
		ctx, span := c.cfg.Lab.Timeline.Start(c.life.Context(), lab.SpanOptions{Op: string(a.Type), Volume: label.Name, Node: node})
		err := c.perform(ctx, a, label, failure, latency)
		span.End("", err)
	})
}

// perform runs one action to its end. It returns without an end only when the cloud's life ends.
func (c *Cloud) perform(ctx context.Context, a Action, v blockdev.Volume, failure string, latency time.Duration) error {
	c.life.Point(pointRequested, v.Name)
	if err := c.sleep(ctx, latency); err != nil {
		return err
	}
	var err error
	if failure != "" {
		err = fail(Internal, "%s", failure)
	} else {
		err = c.effect(ctx, a, v)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // goes on at the next Open, from the start
	}
	c.life.Point(pointEffect, v.Name)
	for {
		e := c.finish(a, err)
		if e == nil {
			return err
		}
		// What happened must be recorded or nothing agrees any more; until then it is in progress.
		c.cfg.Log.Error().Err(e).Int64("action", int64(a.ID)).Msg("the end of an action cannot be recorded yet")
		if e := c.sleep(ctx, time.Second); e != nil {
			return e
		}
	}
}

// effect does what the action is about, outside the records. It can be repeated.
func (c *Cloud) effect(ctx context.Context, a Action, v blockdev.Volume) error {
	switch a.Type {
	case AttachVolume:
		c.mu.RLock()
		d, rec := *c.state.droplets[a.Droplet], *c.state.volumes[a.Volume]
		c.mu.RUnlock()
		if d.Status == DropletOff {
			return nil // its devices appear when it is switched on
		}
		rec.ReadOnly = a.ReadOnly
		if err := c.plug(ctx, rec, d.Name); err != nil {
			// A killed life may have got further than this one.
			return errors.Join(err, c.devices.Release(ctx, v, d.Name))
		}
		return nil
	case DetachVolume:
		return c.devices.Release(ctx, v, c.dropletName(a.Droplet))
	case ResizeVolume:
		rec, err := c.Volume(a.Volume)
		if err != nil {
			return err
		}
		return c.devices.Grow(ctx, v, rec.SizeGiB*GiB, a.SizeGiB*GiB)
	case PowerOff, Shutdown:
		return c.unplugAll(ctx, a.Droplet)
	case PowerOn:
		return c.plugAll(ctx, a.Droplet)
	case Reboot, PowerCycle:
		if err := c.unplugAll(ctx, a.Droplet); err != nil {
			return err
		}
		return c.plugAll(ctx, a.Droplet)
	case CreateDroplet:
		return c.plugAll(ctx, a.Droplet)
	case Destroy:
		// There is nobody who could ask again, so this goes on until it works.
		for {
			err := c.releaseAll(ctx, a.Droplet)
			if err == nil {
				return nil
			}
			c.cfg.Log.Error().Err(err).Int64("droplet", int64(a.Droplet)).Msg("a deleted droplet's volumes cannot be released yet")
			if err := c.sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("unknown action type %q", a.Type)
}

// finish records an action's end and its effect in one transaction, and lets go of the locks.
func (c *Cloud) finish(a Action, failure error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.Ended = c.now()
	a.Status = Completed
	var ch change
	if failure != nil {
		a.Status, a.Error = Errored, failure.Error()
		c.cfg.Log.Warn().Err(failure).Int64("action", int64(a.ID)).Str("type", string(a.Type)).Msg("action errored")
	} else {
		c.outcome(a, &ch)
	}
	if a.Type == CreateDroplet && failure != nil {
		c.outcome(a, &ch) // a droplet comes up even when one of its disks does not
	}
	ch.actions = []Action{a}
	if err := c.commit(ch); err != nil {
		return err
	}
	if a.Volume != "" {
		delete(c.busy, a.Volume)
	}
	if a.Droplet != 0 {
		if c.pending[a.Droplet]--; c.pending[a.Droplet] == 0 {
			delete(c.pending, a.Droplet)
		}
	}
	close(c.ended[a.ID])
	delete(c.ended, a.ID)
	return nil
}

// outcome adds to ch what a completed action changes in the records. The caller holds mu.
func (c *Cloud) outcome(a Action, ch *change) {
	if p := c.state.volumes[a.Volume]; p != nil {
		v := *p
		switch a.Type {
		case AttachVolume:
			v.attach(a.Droplet)
			v.ReadOnly = a.ReadOnly
		case DetachVolume:
			v.detach(a.Droplet)
		case ResizeVolume:
			v.SizeGiB = a.SizeGiB
		}
		ch.volumes = append(ch.volumes, v)
		return
	}
	p := c.state.droplets[a.Droplet]
	if p == nil {
		return
	}
	d := *p
	switch a.Type {
	case PowerOff, Shutdown:
		d.Status = DropletOff
	case PowerOn, Reboot, PowerCycle, CreateDroplet:
		d.Status = DropletActive
	case Destroy:
		ch.noDroplets = append(ch.noDroplets, d.ID)
		return
	}
	ch.droplets = append(ch.droplets, d)
}
