package fakecloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"drydock.dev/drydock/fakecloud/blockdev"
)

// NewDroplet is what is asked of CreateDroplet.
type NewDroplet struct {
	Name    string
	Region  string
	Size    string
	Image   string
	Tags    []string
	Volumes []VolumeID // attached from the start
	// UserData is for its metadata service.
	UserData string
}

// defaultImage is of droplets that nobody chose an image for.
const defaultImage = "debian-13-x64"

// EnsureDroplet returns the droplet of that name, and makes an active one in the
// cloud's region if there is none.
func (c *Cloud) EnsureDroplet(ctx context.Context, name string) (DropletID, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if !dropletName.MatchString(name) {
		return 0, fail(Invalid, "droplet name %q is no host name", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.findDroplet(name); d != nil {
		return d.ID, nil
	}
	d := Droplet{ID: c.state.lastDroplet + 1, Name: name, Region: c.cfg.Region, Size: sizes[0].Slug, Image: defaultImage, Status: DropletActive, Created: c.now()}
	if err := c.commit(change{droplets: []Droplet{d}}); err != nil {
		return 0, internal(fmt.Errorf("create droplet %s: %w", name, err))
	}
	return d.ID, nil
}

// CreateDroplet makes a droplet; the action shows when it is active.
func (c *Cloud) CreateDroplet(ctx context.Context, n NewDroplet) (Droplet, Action, error) {
	made, actions, err := c.CreateDroplets(ctx, []NewDroplet{n})
	if err != nil {
		return Droplet{}, Action{}, err
	}
	return made[0], actions[0], nil
}

// CreateDroplets makes all of several droplets or none, unless the disk fills up midway.
func (c *Cloud) CreateDroplets(ctx context.Context, all []NewDroplet) (made []Droplet, actions []Action, err error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for i, n := range all {
		if err := c.checkNewDroplet(n, i); err != nil {
			return nil, nil, err
		}
		name := strings.ToLower(n.Name)
		if names[name] {
			return nil, nil, fail(Invalid, "the name %s is asked for twice", n.Name)
		}
		names[name] = true
	}
	for _, n := range all {
		d, a, err := c.newDroplet(n)
		if err != nil {
			return nil, nil, err
		}
		made, actions = append(made, d), append(actions, a)
	}
	return made, actions, nil
}

// newDroplet records a droplet and starts its creation. The caller holds mu.
func (c *Cloud) newDroplet(n NewDroplet) (Droplet, Action, error) {
	d := Droplet{ID: c.state.lastDroplet + 1, Name: n.Name, Region: n.Region, Size: n.Size, Image: n.Image, Status: DropletNew, Created: c.now(), Tags: slices.Clone(n.Tags), UserData: n.UserData}
	ch := change{droplets: []Droplet{d}, tags: c.newTags(n.Tags)}
	for _, id := range n.Volumes {
		v := *c.state.volumes[id]
		v.attach(d.ID)
		ch.volumes = append(ch.volumes, v)
	}
	a, err := c.launch(Action{Type: CreateDroplet, Region: d.Region, Droplet: d.ID}, ch, "")
	if err != nil {
		return Droplet{}, Action{}, err
	}
	return c.withVolumes(&d), a, nil
}

// checkNewDroplet applies the rules; before tells how many droplets are made first. The caller holds mu.
func (c *Cloud) checkNewDroplet(n NewDroplet, before int) error {
	if !dropletName.MatchString(n.Name) {
		return fail(Invalid, "Only valid hostname characters are allowed. (a-z, A-Z, 0-9, . and -)")
	}
	if !c.region(n.Region) {
		return fail(Invalid, "region %q does not exist", n.Region)
	}
	if _, ok := SizeBySlug(n.Size); !ok {
		return fail(Invalid, "You specified an invalid size for Droplet creation.")
	}
	if n.Image == "" {
		return fail(Invalid, "You specified an invalid image for Droplet creation.")
	}
	// Two droplets of one name would share a by-id directory.
	if c.findDroplet(n.Name) != nil {
		return fail(Invalid, "a droplet named %s exists already: names decide the node's directory here and must be unique", n.Name)
	}
	if err := checkTags(n.Tags); err != nil {
		return err
	}
	seen := map[VolumeID]bool{}
	for _, id := range n.Volumes {
		v := c.state.volumes[id]
		if v == nil || v.Droplet != 0 || c.busy[id] != 0 || v.Region != n.Region || seen[id] {
			return fail(Invalid, TextAllocations)
		}
		seen[id] = true
	}
	if limit := c.settings.Limits.Droplets; limit > 0 && c.liveDroplets()+before >= limit {
		return fail(Invalid, TextDropletLimit)
	}
	if limit := c.settings.Limits.VolumesPerDroplet; limit >= 0 && len(n.Volumes) > limit {
		return fail(Invalid, TextDropletFull)
	}
	return nil
}

// DeleteDroplet removes a droplet from sight at once and releases its volumes later.
func (c *Cloud) DeleteDroplet(ctx context.Context, id DropletID) error {
	_, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.liveDroplet(id)
	if p == nil {
		return notFound()
	}
	if c.pending[id] > 0 {
		return fail(Invalid, TextPending)
	}
	d := *p
	d.Status = DropletDestroyed
	_, err = c.launch(Action{Type: Destroy, Region: d.Region, Droplet: id}, change{droplets: []Droplet{d}}, "")
	return err
}

// StartDroplet starts a power action.
func (c *Cloud) StartDroplet(ctx context.Context, id DropletID, t ActionType) (Action, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return Action{}, err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.liveDroplet(id)
	switch {
	case d == nil:
		return Action{}, notFound()
	case c.pending[id] > 0:
		return Action{}, fail(Invalid, TextPending)
	}
	switch t {
	case PowerOn:
		if d.Status == DropletActive {
			return Action{}, fail(Invalid, "Droplet is already powered on.")
		}
	case PowerOff, Shutdown, Reboot, PowerCycle:
		if d.Status == DropletOff {
			return Action{}, fail(Invalid, "Droplet is already powered off.")
		}
	default:
		return Action{}, fail(Invalid, "unknown action type %q: known are power_on, power_off, power_cycle, shutdown and reboot", t)
	}
	return c.launch(Action{Type: t, Region: d.Region, Droplet: id}, change{}, "")
}

// Droplet returns one droplet.
func (c *Cloud) Droplet(id DropletID) (Droplet, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.liveDroplet(id)
	if d == nil {
		return Droplet{}, notFound()
	}
	return c.withVolumes(d), nil
}

// DropletByName finds a droplet by its name.
func (c *Cloud) DropletByName(name string) (Droplet, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d := c.findDroplet(name)
	if d == nil {
		return Droplet{}, notFound()
	}
	return c.withVolumes(d), nil
}

// DropletFilter selects droplets; empty fields select all.
type DropletFilter struct{ Name, Tag string }

// Droplets returns a page of droplets by id, and how many there are on all pages.
func (c *Cloud) Droplets(f DropletFilter, p Page) (page []Droplet, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []*Droplet
	for _, d := range c.state.droplets {
		if d.Status != DropletDestroyed && (f.Name == "" || d.Name == f.Name) && (f.Tag == "" || hasTag(d.Tags, f.Tag)) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *Droplet) int { return int(a.ID - b.ID) })
	from, to := p.span(len(all))
	page = make([]Droplet, 0, to-from)
	for _, d := range all[from:to] {
		page = append(page, c.withVolumes(d))
	}
	return page, len(all)
}

// withVolumes copies a droplet and fills in its volumes. The caller holds mu.
func (c *Cloud) withVolumes(p *Droplet) Droplet {
	d := *p
	for _, v := range c.state.onDroplet[d.ID] {
		d.Volumes = append(d.Volumes, v.ID)
	}
	return d
}

// liveDroplet is the droplet unless it is deleted. The caller holds mu.
func (c *Cloud) liveDroplet(id DropletID) *Droplet {
	if d := c.state.droplets[id]; d != nil && d.Status != DropletDestroyed {
		return d
	}
	return nil
}

// liveDroplets counts. The caller holds mu.
func (c *Cloud) liveDroplets() (n int) {
	for _, d := range c.state.droplets {
		if d.Status != DropletDestroyed {
			n++
		}
	}
	return n
}

// findDroplet is the live droplet of that name. The caller holds mu.
func (c *Cloud) findDroplet(name string) *Droplet {
	for _, d := range c.state.droplets {
		if d.Status != DropletDestroyed && strings.EqualFold(d.Name, name) {
			return d
		}
	}
	return nil
}

// disk is a volume as the block devices know it.
func (v *Volume) disk() blockdev.Volume { return blockdev.Volume{ID: v.ID, Name: v.Name} }

// dropletName is a droplet's name, also of one that is being deleted.
func (c *Cloud) dropletName(id DropletID) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if d := c.state.droplets[id]; d != nil {
		return d.Name
	}
	return ""
}

// plug shows a volume to a droplet, under the volume's limits.
func (c *Cloud) plug(ctx context.Context, v Volume, droplet string) error {
	if _, err := c.devices.Attach(ctx, v.disk(), blockdev.Target{Droplet: droplet, ReadOnly: v.ReadOnly, Shared: v.Shared}); err != nil {
		return err
	}
	if v.Performance == (Performance{}) {
		return nil
	}
	done, err := c.devices.Limit(ctx, v.disk(), v.Performance.limit())
	if err == nil && !done.Applied {
		c.cfg.Log.Info().Str("volume", v.Name).Str("why", done.Why).Msg("the volume's performance is not limited here")
	}
	return err
}

// onDroplet lists a droplet's volumes, and its name.
func (c *Cloud) onDroplet(id DropletID) (name string, volumes []Volume) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, v := range c.state.onDroplet[id] {
		volumes = append(volumes, *v)
	}
	if d := c.state.droplets[id]; d != nil {
		name = d.Name
	}
	return name, volumes
}

// plugAll shows a droplet its volumes, all or none.
func (c *Cloud) plugAll(ctx context.Context, id DropletID) error {
	name, volumes := c.onDroplet(id)
	for i, v := range volumes {
		if err := c.plug(ctx, v, name); err != nil {
			for _, w := range volumes[:i+1] {
				err = errors.Join(err, c.devices.Release(ctx, w.disk(), name))
			}
			return err
		}
	}
	return nil
}

// unplugAll takes a droplet's devices away; the volumes stay attached to it by record.
func (c *Cloud) unplugAll(ctx context.Context, id DropletID) error {
	name, volumes := c.onDroplet(id)
	var errs []error
	for _, v := range volumes {
		errs = append(errs, c.devices.Release(ctx, v.disk(), name))
	}
	return errors.Join(errs...)
}

// releaseAll detaches a deleted droplet's volumes one by one.
func (c *Cloud) releaseAll(ctx context.Context, id DropletID) error {
	name, volumes := c.onDroplet(id)
	for _, v := range volumes {
		if err := c.devices.Release(ctx, v.disk(), name); err != nil {
			return err
		}
		c.life.Point(pointReleased, v.Name)
		c.mu.Lock()
		free := *c.state.volumes[v.ID]
		free.detach(id)
		err := c.commit(change{volumes: []Volume{free}})
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
