package fakecloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// boot brings images and devices in line with the records. It runs in a goroutine
// of the cloud's life, so that a rule can kill it like everything else.
func (c *Cloud) boot(caller context.Context) error {
	ctx, cancel := context.WithCancelCause(c.life.Context())
	defer cancel(nil)
	defer context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })()
	result := make(chan error, 1)
	c.life.Go(func() {
		defer close(result)
		result <- c.reconcile(ctx)
	})
	if err, ok := <-result; ok {
		return err
	}
	return lab.ErrKilled
}

// refuseForgetting keeps images whose database was lost: a new one would know none
// of them, and all would be removed.
func refuseForgetting(ctx context.Context, cfg Config) error {
	if info, err := os.Stat(cfg.DB); err == nil && info.Size() > 0 {
		return nil
	}
	inv, err := cfg.Devices.Inventory(ctx, nil)
	if err != nil {
		return err
	}
	if images := slices.Concat(inv.Volumes, inv.Snapshots); len(images) > 0 {
		return fmt.Errorf("the database %s is missing or empty, and there are images of volumes and snapshots, such as %s: put the database back, or move the images away too to start with an empty cloud", cfg.DB, images[0].Path)
	}
	return nil
}

func (c *Cloud) reconcile(ctx context.Context) error {
	inv, err := c.devices.Inventory(ctx, nil)
	if err != nil {
		return err
	}
	// Links of an earlier process may name devices that belong to others by now.
	if err := c.devices.Sweep(ctx, c.dropletNames()); err != nil {
		return err
	}
	if err := c.detachUnrecorded(ctx, inv.Devices); err != nil {
		return err
	}
	if err := c.removeUnrecorded(ctx, inv); err != nil {
		return err
	}
	c.plugRecorded(ctx)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c.life.Point(pointBooted, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.state.volumes {
		c.cfg.Lab.Timeline.Alias(string(v.ID), v.Name)
	}
	for _, id := range c.state.actionIDs {
		if a := c.state.actions[id]; a.Status == InProgress {
			c.run(*a, "", c.remaining(*a))
		}
	}
	return nil
}

// dropletNames lists all droplets, deleted ones included: their directories may hold links.
func (c *Cloud) dropletNames() (names []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, d := range c.state.droplets {
		names = append(names, d.Name)
	}
	return names
}

// targets says which droplets should see the volume now, by the records. An action in
// progress decides for itself about its droplet, open, when it goes on.
func (c *Cloud) targets(id VolumeID) (droplets []string, open string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v := c.state.volumes[id]
	if v == nil {
		return nil, ""
	}
	for _, a := range c.state.ofVolume[id] {
		if x := c.state.actions[a]; x.Status == InProgress && x.Type != ResizeVolume {
			if d := c.state.droplets[x.Droplet]; d != nil {
				open = d.Name
			}
		}
	}
	for _, name := range c.shown(v) {
		if name != open {
			droplets = append(droplets, name)
		}
	}
	return droplets, open
}

// detachUnrecorded ends attachments that a killed life made and did not record.
func (c *Cloud) detachUnrecorded(ctx context.Context, devices []blockdev.Device) error {
	for _, d := range devices {
		droplets, open := c.targets(d.Volume)
		if d.Droplet == "" || d.Droplet == open || slices.Contains(droplets, d.Droplet) {
			continue
		}
		v := blockdev.Volume{ID: d.Volume}
		if rec, err := c.Volume(d.Volume); err == nil {
			v.Name = rec.Name
		}
		if err := c.devices.Release(ctx, v, d.Droplet); err != nil {
			return err
		}
	}
	return nil
}

// removeUnrecorded deletes images that a killed life made before or kept after their record.
func (c *Cloud) removeUnrecorded(ctx context.Context, inv blockdev.Inventory) error {
	for _, f := range inv.Volumes {
		if c.state.volumes[VolumeID(f.ID)] != nil {
			continue
		}
		c.cfg.Log.Warn().Str("path", f.Path).Msg("removing an image without a record")
		if err := c.devices.Delete(ctx, blockdev.Volume{ID: VolumeID(f.ID)}); err != nil {
			return err
		}
	}
	for _, f := range inv.Snapshots {
		if c.state.snapshots[SnapshotID(f.ID)] != nil {
			continue
		}
		c.cfg.Log.Warn().Str("path", f.Path).Msg("removing a snapshot without a record")
		if err := c.devices.DeleteSnapshot(ctx, SnapshotID(f.ID)); err != nil {
			return err
		}
	}
	return nil
}

// plugRecorded shows droplets their volumes again, a few at a time. A volume whose
// device cannot be made is detached: a record must not promise what is not there.
func (c *Cloud) plugRecorded(ctx context.Context) {
	type job struct {
		v       Volume
		droplet string
	}
	var jobs []job
	for _, v := range c.state.byCreation {
		droplets, _ := c.targets(v.ID)
		for _, d := range droplets {
			jobs = append(jobs, job{*v, d})
		}
	}
	queue := make(chan job)
	var wg sync.WaitGroup
	for range min(4, len(jobs)) {
		wg.Go(func() {
			for j := range queue {
				err := c.plugAgain(ctx, j.v, j.droplet)
				if err == nil || ctx.Err() != nil {
					continue
				}
				c.cfg.Log.Error().Err(err).Str("volume", j.v.Name).Str("droplet", j.droplet).Msg("a volume cannot be attached again and is now detached")
				c.mu.Lock()
				j.v = *c.state.volumes[j.v.ID]
				if d := c.findDroplet(j.droplet); d != nil {
					j.v.detach(d.ID)
				}
				if err := c.commit(change{volumes: []Volume{j.v}}); err != nil {
					c.cfg.Log.Error().Err(err).Str("volume", j.v.Name).Msg("its detachment cannot be recorded")
				}
				c.mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	wg.Wait()
}

func (c *Cloud) plugAgain(ctx context.Context, v Volume, droplet string) error {
	disk := v.disk()
	if err := c.devices.Grow(ctx, disk, v.SizeGiB*GiB, v.SizeGiB*GiB); err != nil {
		return err
	}
	if err := c.plug(ctx, v, droplet); err != nil {
		return errors.Join(err, c.devices.Release(ctx, disk, droplet))
	}
	return nil
}
