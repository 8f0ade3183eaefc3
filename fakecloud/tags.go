package fakecloud

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// ResourceType is what a tag can be on, as the API words it.
type ResourceType string

// The resources that can be tagged here. The cloud knows images and databases as
// words only: there are none.
const (
	TagDroplet        ResourceType = "droplet"
	TagVolume         ResourceType = "volume"
	TagVolumeSnapshot ResourceType = "volume_snapshot"
	TagImage          ResourceType = "image"
	TagDatabase       ResourceType = "database"
)

// Resource names something to tag.
type Resource struct {
	ID   string
	Type ResourceType
}

// Tag is a label and what bears it, oldest first.
type Tag struct {
	Name      string
	Droplets  []DropletID
	Volumes   []VolumeID
	Snapshots []SnapshotID
}

func checkTags(tags []string) error {
	for _, t := range tags {
		if !tagName.MatchString(t) {
			return fail(Invalid, "tag %q is not valid: letters, digits, colons, dashes and underscores, at most 255", t)
		}
	}
	return nil
}

func hasTag(tags []string, tag string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return strings.EqualFold(t, tag) })
}

// missing returns those of want that have lacks.
func missing(have, want []string) (out []string) {
	for _, t := range want {
		if !hasTag(have, t) && !hasTag(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// newTags returns the tags that do not exist yet. The caller holds mu.
func (c *Cloud) newTags(tags []string) (out []string) {
	for _, t := range tags {
		if c.state.tags[strings.ToLower(t)] == "" {
			out = append(out, t)
		}
	}
	return out
}

// CreateTag makes a tag; one that exists is returned as it was first written.
func (c *Cloud) CreateTag(ctx context.Context, name string) (Tag, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return Tag{}, err
	}
	defer done()
	if err := checkTags([]string{name}); err != nil {
		return Tag{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.tags[strings.ToLower(name)] == "" {
		if err := c.commit(change{tags: []string{name}}); err != nil {
			return Tag{}, internal(err)
		}
	}
	return c.tag(name), nil
}

// Tag returns one tag.
func (c *Cloud) Tag(name string) (Tag, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.state.tags[strings.ToLower(name)] == "" {
		return Tag{}, notFound()
	}
	return c.tag(name), nil
}

// Tags returns a page of tags by name, and how many there are on all pages.
func (c *Cloud) Tags(p Page) (page []Tag, total int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var names []string
	for key := range c.state.tags {
		names = append(names, key)
	}
	slices.Sort(names)
	from, to := p.span(len(names))
	page = make([]Tag, 0, to-from)
	for _, name := range names[from:to] {
		page = append(page, c.tag(name))
	}
	return page, len(names)
}

// tag collects what bears the tag. The caller holds mu.
func (c *Cloud) tag(name string) Tag {
	t := Tag{Name: c.state.tags[strings.ToLower(name)]}
	for _, d := range c.state.droplets {
		if d.Status != DropletDestroyed && hasTag(d.Tags, name) {
			t.Droplets = append(t.Droplets, d.ID)
		}
	}
	slices.Sort(t.Droplets)
	for _, v := range c.state.byCreation {
		if hasTag(v.Tags, name) {
			t.Volumes = append(t.Volumes, v.ID)
		}
	}
	for _, s := range c.state.snapshotList {
		if hasTag(s.Tags, name) {
			t.Snapshots = append(t.Snapshots, s.ID)
		}
	}
	return t
}

// DeleteTag removes a tag from everything and then itself.
func (c *Cloud) DeleteTag(ctx context.Context, name string) error {
	_, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.tags[strings.ToLower(name)] == "" {
		return notFound()
	}
	t := c.tag(name)
	var all []Resource
	for _, id := range t.Droplets {
		all = append(all, Resource{strconv.FormatInt(int64(id), 10), TagDroplet})
	}
	for _, id := range t.Volumes {
		all = append(all, Resource{string(id), TagVolume})
	}
	for _, id := range t.Snapshots {
		all = append(all, Resource{string(id), TagVolumeSnapshot})
	}
	ch, err := c.retag(all, func(tags []string) []string { return untagged(tags, name) })
	if err != nil {
		return err
	}
	ch.noTags = []string{t.Name}
	if err := c.commit(ch); err != nil {
		return internal(err)
	}
	return nil
}

// Tagging puts a tag on resources; Remove takes it off instead.
type Tagging struct {
	Tag       string
	Resources []Resource
	Remove    bool
}

// TagResources tags or untags, all of the resources or none.
func (c *Cloud) TagResources(ctx context.Context, t Tagging) error {
	_, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	name := c.state.tags[strings.ToLower(t.Tag)]
	if name == "" {
		return notFound()
	}
	edit := func(tags []string) []string { return append(untagged(tags, name), name) }
	if t.Remove {
		edit = func(tags []string) []string { return untagged(tags, name) }
	}
	ch, err := c.retag(t.Resources, edit)
	if err != nil {
		return err
	}
	if err := c.commit(ch); err != nil {
		return internal(err)
	}
	return nil
}

// retag edits the tags of resources. The caller holds mu.
func (c *Cloud) retag(resources []Resource, edit func([]string) []string) (ch change, err error) {
	for _, r := range resources {
		switch r.Type {
		case TagVolume:
			p := c.state.volumes[VolumeID(r.ID)]
			if p == nil {
				return ch, notFound()
			}
			v := *p
			v.Tags = edit(v.Tags)
			ch.volumes = append(ch.volumes, v)
		case TagVolumeSnapshot:
			p := c.state.snapshots[SnapshotID(r.ID)]
			if p == nil {
				return ch, notFound()
			}
			s := *p
			s.Tags = edit(s.Tags)
			ch.snapshots = append(ch.snapshots, s)
		case TagDroplet:
			id, err := strconv.ParseInt(r.ID, 10, 64)
			p := c.liveDroplet(DropletID(id))
			if err != nil || p == nil {
				return ch, notFound()
			}
			d := *p
			d.Tags = edit(d.Tags)
			ch.droplets = append(ch.droplets, d)
		case TagImage, TagDatabase:
			return ch, notFound()
		default:
			return ch, fail(Invalid, "resource_type %q is not one of droplet, image, volume, volume_snapshot and database", r.Type)
		}
	}
	return ch, nil
}

// untagged is a copy of tags without one.
func untagged(tags []string, tag string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return strings.EqualFold(t, tag) })
}
