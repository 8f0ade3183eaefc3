package fakecloud

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// This file holds what the real cloud does not have: classes of performance, volumes
// that several droplets share, clones, and the progress of copies.

// classes are the performance classes, by name. A class gives the numbers that a
// volume does not name itself.
var classes = map[string]Performance{
	"basic":    {Class: "basic", IOPS: 3000, ThroughputMiBs: 125},
	"fast":     {Class: "fast", IOPS: 7500, ThroughputMiBs: 300},
	"extreme":  {Class: "extreme", IOPS: 16000, ThroughputMiBs: 1000},
	"infinite": {Class: "infinite"},
}

// Classes lists the performance classes by name.
func Classes() (out []Performance) {
	for _, p := range classes {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Performance) int { return cmp.Compare(a.Class, b.Class) })
	return out
}

// complete fills in what the class decides.
func (p Performance) complete() (Performance, error) {
	if p.IOPS < 0 || p.ThroughputMiBs < 0 {
		return p, fail(Invalid, "iops and throughput_mibs must not be negative")
	}
	if p.Class == "" {
		return p, nil
	}
	class, ok := classes[p.Class]
	if !ok {
		return p, fail(Invalid, "performance class %q is none of basic, fast, extreme and infinite", p.Class)
	}
	p.IOPS = cmp.Or(p.IOPS, class.IOPS)
	p.ThroughputMiBs = cmp.Or(p.ThroughputMiBs, class.ThroughputMiBs)
	return p, nil
}

func (p Performance) limit() blockdev.Limit {
	return blockdev.Limit{IOPS: p.IOPS, Bytes: p.ThroughputMiBs << 20}
}

// SetPerformance changes a volume's performance, of an attached one at once. The
// answer says whether this machine can hold its device to it, and if not, why;
// the volume keeps the performance either way.
func (c *Cloud) SetPerformance(ctx context.Context, id VolumeID, p Performance) (Volume, blockdev.Limited, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return Volume{}, blockdev.Limited{}, err
	}
	defer done()
	if p, err = p.complete(); err != nil {
		return Volume{}, blockdev.Limited{}, err
	}
	v, err := c.edit(id, func(v *Volume) error {
		v.Performance = p
		return nil
	})
	if err != nil {
		return Volume{}, blockdev.Limited{}, err
	}
	limited, err := c.devices.Limit(ctx, v.disk(), p.limit())
	if err != nil {
		return v, limited, internal(err)
	}
	return v, limited, nil
}

// Share lets a volume be attached to several droplets at once, as raw block: whoever
// puts a filesystem on it that is no cluster filesystem will ruin it. Unsharing one
// that several droplets have is a conflict.
func (c *Cloud) Share(ctx context.Context, id VolumeID, shared bool) (Volume, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer done()
	return c.edit(id, func(v *Volume) error {
		switch {
		case shared && v.FilesystemType != "":
			return fail(Invalid, "volume %s was made with a filesystem: only raw volumes can be shared", v.ID)
		case !shared && len(v.More) > 0:
			return fail(Conflict, "volume %s is attached to %d droplets", v.ID, 1+len(v.More))
		}
		v.Shared = shared
		return nil
	})
}

// edit changes a volume's record.
func (c *Cloud) edit(id VolumeID, apply func(*Volume) error) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.state.volumes[id]
	if p == nil {
		return Volume{}, notFound()
	}
	v := *p
	if err := apply(&v); err != nil {
		return Volume{}, err
	}
	if err := c.commit(change{volumes: []Volume{v}}); err != nil {
		return Volume{}, internal(err)
	}
	return v, nil
}

// checkClone applies the rules and fills in what the source decides: a clone is at
// least as large. The caller holds mu.
func (c *Cloud) checkClone(n *NewVolume) (err error) {
	if n.Performance, err = n.Performance.complete(); err != nil {
		return err
	}
	if n.Shared && n.FilesystemType != "" {
		return fail(Invalid, "failed to create volume: a shared volume is raw")
	}
	if n.Clone == "" {
		return nil
	}
	source := c.state.volumes[n.Clone]
	switch {
	case source == nil:
		return notFound()
	case n.Snapshot != "":
		return fail(Invalid, "failed to create volume: a snapshot and a source volume exclude each other")
	case source.Region != n.Region && !c.settings.Rules.AnyRegion:
		return fail(Invalid, "failed to create volume: volume %s is in region %s, not in %s", source.ID, source.Region, n.Region)
	case n.SizeGiB != 0 && n.SizeGiB < source.SizeGiB:
		return fail(Invalid, "failed to create volume: a clone of volume %s must have at least %d GiB, not %d", source.ID, source.SizeGiB, n.SizeGiB)
	}
	n.SizeGiB = max(n.SizeGiB, source.SizeGiB)
	return nil
}

// Copy is a copy in progress: a snapshot, a restore or a clone.
type Copy struct {
	Kind     string // snapshot, restore, clone
	Snapshot SnapshotID
	Volume   VolumeID // of a snapshot its source, else the new one
	Name     string   // of what is being made
	Done     int64    // bytes
	Total    int64    // bytes of data, without holes; zero until it is known
}

// copyKind is empty for a volume that starts blank.
func copyKind(n NewVolume) string {
	switch {
	case n.Clone != "":
		return "clone"
	case n.Snapshot != "":
		return "restore"
	}
	return ""
}

// copying lists a copy while it is made.
func (c *Cloud) copying(k Copy) (progress blockdev.Progress, done func()) {
	p := &k
	c.copiesMu.Lock()
	defer c.copiesMu.Unlock()
	c.copies[p] = struct{}{}
	return func(done, total int64) {
			c.copiesMu.Lock()
			defer c.copiesMu.Unlock()
			p.Done, p.Total = done, total
		}, func() {
			c.copiesMu.Lock()
			defer c.copiesMu.Unlock()
			delete(c.copies, p)
		}
}

// Copies lists the copies in progress, by name.
func (c *Cloud) Copies() (out []Copy) {
	c.copiesMu.Lock()
	defer c.copiesMu.Unlock()
	for p := range c.copies {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Copy) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Changes lists where a snapshot differs from an earlier one of the same volume;
// without a base, where it has data.
func (c *Cloud) Changes(ctx context.Context, of, base SnapshotID) ([]blockdev.Extent, error) {
	s, err := c.Snapshot(of)
	if err != nil {
		return nil, err
	}
	if base != "" {
		b, err := c.Snapshot(base)
		if err != nil {
			return nil, err
		}
		if b.Volume != s.Volume {
			return nil, fail(Invalid, "snapshots %s and %s are of two volumes", of, base)
		}
	}
	out, err := c.devices.Changes(ctx, of, base)
	if err != nil {
		return nil, internal(fmt.Errorf("compare snapshots: %w", err))
	}
	return out, nil
}
