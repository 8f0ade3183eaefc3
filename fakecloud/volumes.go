package fakecloud

import (
	"context"
	"slices"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// NewVolume is what is asked of CreateVolume.
type NewVolume struct {
	Name            string
	Region          string
	SizeGiB         int64 // ignored when Snapshot is set: the snapshot decides
	Description     string
	Snapshot        SnapshotID
	FilesystemType  string // ext4, xfs or empty for a blank disk
	FilesystemLabel string
	Tags            []string
	Clone           VolumeID // ours: a copy of this volume as it is now; it decides like a snapshot
	Shared          bool     // ours: see Volume
	Performance     Performance
}

// CreateVolume makes a volume, usable when it returns.
func (c *Cloud) CreateVolume(ctx context.Context, n NewVolume) (Volume, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer done()
	v, release, err := c.reserveVolume(n)
	if err != nil {
		return Volume{}, err
	}
	defer release()
	c.cfg.Lab.Timeline.Alias(string(v.ID), v.Name)
	disk := v.disk()
	img := blockdev.Image{Size: v.SizeGiB * GiB, From: n.Snapshot, Filesystem: v.FilesystemType, Label: v.FilesystemLabel}
	if n.Clone != "" {
		img.Clone = blockdev.Volume{ID: n.Clone}
	}
	if kind := copyKind(n); kind != "" {
		progress, copied := c.copying(Copy{Kind: kind, Volume: v.ID, Name: v.Name})
		defer copied()
		img.Progress = progress
	}
	if err := c.devices.Create(ctx, disk, img); err != nil {
		return Volume{}, internal(err)
	}
	c.life.Point(pointImageMade, v.Name)
	c.mu.Lock()
	v.Created = c.now()
	err = c.commit(change{volumes: []Volume{v}, tags: c.newTags(v.Tags)})
	c.mu.Unlock()
	if err != nil {
		if e := c.devices.Delete(ctx, disk); e != nil {
			c.cfg.Log.Error().Err(e).Str("volume", v.Name).Msg("image of a volume that could not be recorded stays until the next start")
		}
		return Volume{}, internal(err)
	}
	return v, nil
}

// reserveVolume checks everything and keeps name and capacity until release.
func (c *Cloud) reserveVolume(n NewVolume) (v Volume, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkNewVolume(&n); err != nil {
		return v, nil, err
	}
	v = Volume{ID: VolumeID(newID()), Name: n.Name, Region: n.Region, Description: n.Description, SizeGiB: n.SizeGiB,
		FilesystemType: n.FilesystemType, FilesystemLabel: n.FilesystemLabel, Tags: slices.Clone(n.Tags),
		Shared: n.Shared, Performance: n.Performance}
	at := place{v.Region, v.Name}
	c.held.names[at] = v.ID
	c.held.volumes[v.ID] = true
	c.held.capacityGiB += v.SizeGiB
	return v, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held.names, at)
		delete(c.held.volumes, v.ID)
		c.held.capacityGiB -= v.SizeGiB
	}, nil
}

// checkNewVolume applies the rules and fills in what a snapshot decides. The caller holds mu.
func (c *Cloud) checkNewVolume(n *NewVolume) error {
	if s := c.state.snapshots[n.Snapshot]; s != nil && n.Region == "" {
		n.Region = s.Region // it can be nowhere else, and old clients do not say so
	}
	switch {
	case n.Name == "":
		return fail(Invalid, "failed to create volume: name is required")
	case n.Region == "":
		return fail(Invalid, "failed to create volume: region is required")
	case !c.region(n.Region):
		return fail(Invalid, "failed to create volume: region %q does not exist", n.Region)
	case !c.settings.Names.valid(n.Name):
		return fail(Invalid, TextBadName)
	}
	if err := checkTags(n.Tags); err != nil {
		return err
	}
	if n.Snapshot != "" {
		s := c.state.snapshots[n.Snapshot]
		if s == nil {
			return notFound()
		}
		if s.Region != n.Region && !c.settings.Rules.AnyRegion {
			return fail(Invalid, "failed to create volume: snapshot %s is in region %s, not in %s", s.ID, s.Region, n.Region)
		}
		n.SizeGiB = s.SizeGiB
	}
	if err := c.checkClone(n); err != nil {
		return err
	}
	l := c.settings.Limits
	if n.SizeGiB < l.MinSizeGiB || n.SizeGiB > l.MaxSizeGiB {
		return fail(Invalid, "failed to create volume: size_gigabytes must be between %d and %d, not %d", l.MinSizeGiB, l.MaxSizeGiB, n.SizeGiB)
	}
	if err := checkFilesystem(n.FilesystemType, n.FilesystemLabel); err != nil {
		return err
	}
	if n.Snapshot != "" || n.Clone != "" {
		n.FilesystemType, n.FilesystemLabel = "", "" // formatting would erase the copy
	}
	at := place{n.Region, n.Name}
	if _, taken := c.state.byName[at]; taken || c.held.names[at] != "" {
		return fail(Conflict, TextVolumeExists)
	}
	if l.Volumes > 0 && len(c.state.volumes)+len(c.held.names) >= l.Volumes {
		return fail(Forbidden, TextCreateQuota)
	}
	if l.CapacityGiB > 0 && c.state.capacityGiB+c.held.capacityGiB+n.SizeGiB > l.CapacityGiB {
		return fail(Forbidden, TextCreateQuota)
	}
	return nil
}

func checkFilesystem(kind, label string) error {
	if kind == "" {
		if label != "" {
			return fail(Invalid, "failed to create volume: filesystem_label needs a filesystem_type")
		}
		return nil
	}
	longest, ok := filesystems[kind]
	if !ok {
		return fail(Invalid, "failed to create volume: filesystem_type must be ext4 or xfs, not %q", kind)
	}
	if len(label) > longest {
		return fail(Invalid, "failed to create volume: filesystem_label of %s must not be longer than %d characters", kind, longest)
	}
	return nil
}

// DeleteVolume removes a detached volume and its data.
func (c *Cloud) DeleteVolume(ctx context.Context, id VolumeID) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	v, release, err := c.unrecordVolume(id)
	if err != nil {
		return err
	}
	defer release()
	c.life.Point(pointRecordGone, v.Name)
	if v.Droplet != 0 { // a rule lets it go all the same
		err = c.devices.Detach(ctx, v.disk())
	}
	if err == nil {
		err = c.devices.Delete(ctx, v.disk())
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e := c.commit(change{volumes: []Volume{v}}); e != nil {
			c.cfg.Log.Error().Err(e).Str("volume", v.Name).Msg("image of a deleted volume stays until the next start")
		}
		return internal(err)
	}
	return nil
}

// unrecordVolume removes the record; its name stays taken until release. The record
// goes first: one without an image would be worse than an image without a record.
func (c *Cloud) unrecordVolume(id VolumeID) (v Volume, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.state.volumes[id]
	if p == nil {
		return v, nil, notFound()
	}
	if p.Droplet != 0 && !c.settings.Rules.DeleteAttached || c.busy[id] != 0 {
		return v, nil, fail(Conflict, TextDeleteAttached)
	}
	v = *p
	if err := c.commit(change{noVolumes: []VolumeID{id}}); err != nil {
		return v, nil, internal(err)
	}
	at := place{v.Region, v.Name}
	c.held.names[at] = id
	c.held.volumes[id] = true
	return v, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held.names, at)
		delete(c.held.volumes, id)
	}, nil
}

// Volume returns one volume.
func (c *Cloud) Volume(id VolumeID) (Volume, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v := c.state.volumes[id]
	if v == nil {
		return Volume{}, notFound()
	}
	return *v, nil
}

// VolumeByName finds a volume by what is unique about it beside its id.
func (c *Cloud) VolumeByName(name, region string) (Volume, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v := c.state.volumes[c.state.byName[place{region, name}]]
	if v == nil {
		return Volume{}, notFound()
	}
	return *v, nil
}

// VolumeFilter selects volumes; empty fields select all.
type VolumeFilter struct{ Name, Region string }

// Volumes returns a page of volumes by creation, and how many there are on all pages.
func (c *Cloud) Volumes(f VolumeFilter, p Page) (page []Volume, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := c.state.byCreation
	switch {
	case f.Name != "":
		all = c.named(f)
	case f.Region != "":
		all = c.state.byRegion[f.Region]
	}
	from, to := p.span(len(all))
	page = make([]Volume, 0, to-from)
	for _, v := range all[from:to] {
		page = append(page, *v)
	}
	return page, len(all)
}

// named collects the volumes of one name: at most one a region. The caller holds mu.
func (c *Cloud) named(f VolumeFilter) (out ordered[*Volume]) {
	if f.Region != "" {
		if v := c.state.volumes[c.state.byName[place{f.Region, f.Name}]]; v != nil {
			out = ordered[*Volume]{v}
		}
		return out
	}
	for region := range c.state.byRegion {
		if v := c.state.volumes[c.state.byName[place{region, f.Name}]]; v != nil {
			out = out.put(v)
		}
	}
	return out
}
