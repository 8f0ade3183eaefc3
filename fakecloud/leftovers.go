package fakecloud

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// Leftover is something on this machine and in the records that does not fit together.
type Leftover struct {
	Kind string // image, snapshot, device, link, file: without a record; record: without what it promises
	Path string // or the id of a record
	Why  string
}

func (l Leftover) String() string { return fmt.Sprintf("%s %s: %s", l.Kind, l.Path, l.Why) }

// Leftovers compares records with images, devices and links, and names what does
// not fit. What an action or a call is just working on is left out. A healthy cloud
// has none.
func (c *Cloud) Leftovers(ctx context.Context) ([]Leftover, error) {
	inv, err := c.devices.Inventory(ctx, c.dropletNames())
	if err != nil {
		return nil, internal(err)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []Leftover
	add := func(kind, path, format string, args ...any) {
		out = append(out, Leftover{Kind: kind, Path: path, Why: fmt.Sprintf(format, args...)})
	}
	seen := map[VolumeID]bool{}
	for _, f := range inv.Volumes {
		id := VolumeID(f.ID)
		seen[id] = true
		v := c.state.volumes[id]
		switch {
		case c.moving(id):
		case v == nil:
			add("image", f.Path, "no volume has it")
		case f.Size > v.SizeGiB*GiB || f.Size < v.SizeGiB*GiB-blockdev.Slack:
			add("record", string(id), "volume %s should have %d bytes and its image %s has %d", v.Name, v.SizeGiB*GiB, f.Path, f.Size)
		}
	}
	kept := map[SnapshotID]bool{}
	for _, f := range inv.Snapshots {
		id := SnapshotID(f.ID)
		kept[id] = true
		if c.state.snapshots[id] == nil && !c.held.snapshots[id] {
			add("snapshot", f.Path, "no snapshot has it")
		}
	}
	for _, path := range inv.Strays {
		add("file", path, "it is none of drydock's")
	}
	for id, v := range c.state.volumes {
		if !seen[id] && !c.moving(id) {
			add("record", string(id), "volume %s has no image", v.Name)
		}
	}
	for id, n := range c.state.snapshots {
		if !kept[id] && !c.held.snapshots[id] {
			add("record", string(id), "snapshot %s has no image", n.Name)
		}
	}
	c.leftDevices(inv, add)
	return out, nil
}

// leftDevices compares devices and links with the attachments. The caller holds mu.
func (c *Cloud) leftDevices(inv blockdev.Inventory, add func(kind, path, format string, args ...any)) {
	type spot struct{ droplet, link string }
	devices := map[spot]string{} // where a link should be -> the device it should name
	type place struct {
		volume  VolumeID
		droplet string
	}
	have := map[place]bool{}
	for _, d := range inv.Devices {
		v := c.state.volumes[d.Volume]
		switch {
		case c.moving(d.Volume):
			if v != nil {
				devices[spot{d.Droplet, blockdev.LinkPrefix + v.Name}] = d.Path
			}
		case d.Droplet == "":
			add("device", d.Path, "another process or a mount keeps it on volume %s", d.Volume)
		case v == nil:
			add("device", d.Path, "its volume %s does not exist", d.Volume)
		case !slices.Contains(c.shown(v), d.Droplet):
			add("device", d.Path, "volume %s is not attached to droplet %s", v.Name, d.Droplet)
		default:
			have[place{v.ID, d.Droplet}] = true
			devices[spot{d.Droplet, blockdev.LinkPrefix + v.Name}] = d.Path
		}
	}
	linked := map[spot]bool{}
	for _, l := range inv.Links {
		at := spot{l.Droplet, filepath.Base(l.Path)}
		linked[at] = devices[at] == l.Target
		if devices[at] != l.Target && !c.movingLink(at.link) {
			add("link", l.Path, "no attached volume belongs there; it points to %s", l.Target)
		}
	}
	for id, v := range c.state.volumes {
		for _, droplet := range c.shown(v) {
			switch {
			case c.moving(id):
			case !have[place{id, droplet}]:
				add("record", string(id), "volume %s is attached to droplet %s and has no device", v.Name, droplet)
			case len(inv.Links) > 0 && !linked[spot{droplet, blockdev.LinkPrefix + v.Name}]:
				add("record", string(id), "volume %s is attached to droplet %s and has no link there", v.Name, droplet)
			}
		}
	}
}

// shown lists the droplets that should see the volume's device. The caller holds mu.
func (c *Cloud) shown(v *Volume) (names []string) {
	for _, id := range v.Droplets() {
		if d := c.state.droplets[id]; d != nil && d.Status == DropletActive {
			names = append(names, d.Name)
		}
	}
	return names
}

// moving tells whether something is just being done to the volume. The caller holds mu.
func (c *Cloud) moving(id VolumeID) bool {
	if c.held.volumes[id] || c.busy[id] != 0 {
		return true
	}
	v := c.state.volumes[id]
	return v != nil && slices.ContainsFunc(v.Droplets(), func(d DropletID) bool { return c.pending[d] > 0 })
}

// movingLink is moving by the name of a link. The caller holds mu.
func (c *Cloud) movingLink(link string) bool {
	for _, v := range c.state.volumes {
		if blockdev.LinkPrefix+v.Name == link && c.moving(v.ID) {
			return true
		}
	}
	return false
}
