package fakecloud

import (
	"context"
	"slices"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// NewSnapshot is what is asked of CreateSnapshot.
type NewSnapshot struct {
	Volume VolumeID
	Name   string
	Tags   []string
}

// CreateSnapshot copies a volume's content as it is now. If the caller gives up,
// the copy goes on and the snapshot appears later.
func (c *Cloud) CreateSnapshot(ctx context.Context, n NewSnapshot) (Snapshot, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	type answer struct {
		s   Snapshot
		err error
	}
	result := make(chan answer, 1)
	c.mu.Lock()
	s, disk, err := c.reserveSnapshot(n)
	if err == nil && c.closed {
		err = fail(Unavailable, "The cloud is stopping or was killed.")
	}
	if err == nil {
		work := c.detached(ctx)
		c.life.Go(func() {
			var made answer
			func() {
				defer c.releaseSnapshot(s) // before the answer: who has it may ask for the next one
				made.s, made.err = c.copySnapshot(work, s, disk)
			}()
			result <- made
		})
	}
	c.mu.Unlock()
	if err != nil {
		return Snapshot{}, err
	}
	select {
	case r := <-result:
		return r.s, r.err
	case <-ctx.Done():
		return Snapshot{}, fail(Unavailable, "the snapshot is still being made: %v", context.Cause(ctx))
	}
}

// reserveSnapshot applies the rules and keeps the name. The caller holds mu.
func (c *Cloud) reserveSnapshot(n NewSnapshot) (s Snapshot, disk blockdev.Volume, err error) {
	v := c.state.volumes[n.Volume]
	if v == nil {
		return s, disk, notFound()
	}
	if n.Name == "" {
		return s, disk, fail(Invalid, "failed to create snapshot: name is required")
	}
	if err := checkTags(n.Tags); err != nil {
		return s, disk, err
	}
	if _, taken := c.state.snapshotName[n.Name]; taken || c.held.snapNames[n.Name] {
		return s, disk, fail(Conflict, TextSnapshotExists)
	}
	l, of := c.settings.Limits, c.state.snapshotsOf[v.ID]
	if l.SnapshotsPerVolume >= 0 && len(of)+c.held.copying[v.ID] >= l.SnapshotsPerVolume {
		return s, disk, fail(Invalid, "failed to create snapshot: a volume cannot have more than %d snapshots", l.SnapshotsPerVolume)
	}
	if l.SnapshotInterval > 0 && (c.held.copying[v.ID] > 0 || len(of) > 0 && c.now().Sub(of[len(of)-1].Created) < l.SnapshotInterval) {
		return s, disk, fail(Throttled, "%s%s", TextSnapshotOften, l.SnapshotInterval)
	}
	s = Snapshot{ID: SnapshotID(newID()), Name: n.Name, Region: v.Region, Volume: v.ID, SizeGiB: v.SizeGiB, Created: c.now(), Tags: slices.Clone(n.Tags)}
	c.held.snapNames[s.Name] = true
	c.held.snapshots[s.ID] = true
	c.held.copying[v.ID]++
	return s, blockdev.Volume{ID: v.ID, Name: v.Name}, nil
}

func (c *Cloud) releaseSnapshot(s Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held.snapNames, s.Name)
	delete(c.held.snapshots, s.ID)
	if c.held.copying[s.Volume]--; c.held.copying[s.Volume] == 0 {
		delete(c.held.copying, s.Volume)
	}
}

func (c *Cloud) copySnapshot(ctx context.Context, s Snapshot, disk blockdev.Volume) (_ Snapshot, err error) {
	ctx, span := c.cfg.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "snapshot", Volume: disk.Name})
	defer func() { span.End("", err) }()
	progress, copied := c.copying(Copy{Kind: "snapshot", Snapshot: s.ID, Volume: s.Volume, Name: s.Name})
	defer copied()
	bytes, err := c.devices.Snapshot(ctx, disk, s.ID, progress)
	if err != nil {
		return Snapshot{}, internal(err)
	}
	c.life.Point(pointSnapshotMade, disk.Name)
	s.Bytes = bytes
	c.mu.Lock()
	// The volume may have grown between the check and the copy; never less than it held.
	if v := c.state.volumes[s.Volume]; v != nil {
		s.SizeGiB = max(s.SizeGiB, v.SizeGiB)
	}
	err = c.commit(change{snapshots: []Snapshot{s}, tags: c.newTags(s.Tags)})
	c.mu.Unlock()
	if err != nil {
		if e := c.devices.DeleteSnapshot(ctx, s.ID); e != nil {
			c.cfg.Log.Error().Err(e).Str("snapshot", s.Name).Msg("image of a snapshot that could not be recorded stays until the next start")
		}
		return Snapshot{}, internal(err)
	}
	return s, nil
}

// DeleteSnapshot removes a snapshot.
func (c *Cloud) DeleteSnapshot(ctx context.Context, id SnapshotID) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	p := c.state.snapshots[id]
	if p == nil {
		c.mu.Unlock()
		return notFound()
	}
	s := *p
	if err := c.commit(change{noSnapshots: []SnapshotID{id}}); err != nil {
		c.mu.Unlock()
		return internal(err)
	}
	c.held.snapNames[s.Name] = true
	c.held.snapshots[id] = true
	c.held.copying[s.Volume]++
	c.mu.Unlock()
	defer c.releaseSnapshot(s)
	c.life.Point(pointSnapshotGone, s.Name)
	if err := c.devices.DeleteSnapshot(ctx, id); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e := c.commit(change{snapshots: []Snapshot{s}}); e != nil {
			c.cfg.Log.Error().Err(e).Str("snapshot", s.Name).Msg("image of a deleted snapshot stays until the next start")
		}
		return internal(err)
	}
	return nil
}

// Snapshot returns one snapshot.
func (c *Cloud) Snapshot(id SnapshotID) (Snapshot, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.state.snapshots[id]
	if s == nil {
		return Snapshot{}, notFound()
	}
	return *s, nil
}

// SnapshotFilter selects snapshots; empty fields select all.
type SnapshotFilter struct {
	Volume VolumeID
	Region string
}

// Snapshots returns a page of snapshots by creation, and how many there are on all pages.
func (c *Cloud) Snapshots(f SnapshotFilter, p Page) (page []Snapshot, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := c.state.snapshotList
	if f.Volume != "" {
		all = c.state.snapshotsOf[f.Volume]
	}
	if f.Region != "" {
		var here ordered[*Snapshot]
		for _, s := range all {
			if s.Region == f.Region {
				here = append(here, s)
			}
		}
		all = here
	}
	from, to := p.span(len(all))
	page = make([]Snapshot, 0, to-from)
	for _, s := range all[from:to] {
		page = append(page, *s)
	}
	return page, len(all)
}
