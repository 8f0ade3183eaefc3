package fakecloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Seed is what a cloud starts with. Everything in it is wanted once: what exists by
// its name is left as it is, so that a seed can be planted at every start.
type Seed struct {
	Settings  json.RawMessage `json:"settings,omitempty"` // a merge patch, see Adjust
	Droplets  []SeedDroplet   `json:"droplets,omitempty"`
	Volumes   []SeedVolume    `json:"volumes,omitempty"`
	Snapshots []SeedSnapshot  `json:"snapshots,omitempty"`
}

// SeedDroplet is a droplet of a Seed. An empty region is the cloud's, an empty size the smallest.
type SeedDroplet struct {
	Name   string   `json:"name"`
	Region string   `json:"region,omitempty"`
	Size   string   `json:"size,omitempty"`
	Tags   []string `json:"tags,omitempty"`
	// UserData is for its metadata service.
	UserData string `json:"user_data,omitempty"`
}

// SeedVolume is a volume of a Seed, attached to a droplet if it names one.
type SeedVolume struct {
	Name            string      `json:"name"`
	Region          string      `json:"region,omitempty"`
	SizeGiB         int64       `json:"size_gigabytes"`
	Description     string      `json:"description,omitempty"`
	FilesystemType  string      `json:"filesystem_type,omitempty"`
	FilesystemLabel string      `json:"filesystem_label,omitempty"`
	Tags            []string    `json:"tags,omitempty"`
	Droplet         string      `json:"droplet,omitempty"` // its name
	MultiAttach     bool        `json:"multi_attach,omitempty"`
	Performance     Performance `json:"performance,omitempty"`
}

// SeedSnapshot is a snapshot of a Seed.
type SeedSnapshot struct {
	Name   string   `json:"name"`
	Volume string   `json:"volume"` // its name
	Tags   []string `json:"tags,omitempty"`
}

// ParseSeed reads a seed from YAML or JSON. Fields it does not know are errors.
func ParseSeed(text []byte) (Seed, error) {
	var s Seed
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return Seed{}, fmt.Errorf("parse seed: %w", err)
	}
	return s, nil
}

// Plant makes what the seed has and the cloud lacks, in the seed's order, and waits
// until it is attached. It stops at the first error; what was made stays.
func (c *Cloud) Plant(ctx context.Context, s Seed) error {
	if len(s.Settings) > 0 {
		if _, err := c.Adjust(ctx, s.Settings); err != nil {
			return fmt.Errorf("seed settings: %w", err)
		}
	}
	for _, d := range s.Droplets {
		if err := c.plantDroplet(ctx, d); err != nil {
			return fmt.Errorf("seed droplet %s: %w", d.Name, err)
		}
	}
	for _, v := range s.Volumes {
		if err := c.plantVolume(ctx, v); err != nil {
			return fmt.Errorf("seed volume %s: %w", v.Name, err)
		}
	}
	for _, n := range s.Snapshots {
		if err := c.plantSnapshot(ctx, n); err != nil {
			return fmt.Errorf("seed snapshot %s: %w", n.Name, err)
		}
	}
	return nil
}

func (c *Cloud) plantDroplet(ctx context.Context, d SeedDroplet) error {
	if _, err := c.DropletByName(d.Name); KindOf(err) != NotFound || err == nil {
		return err
	}
	n := NewDroplet{Name: d.Name, Region: d.Region, Size: d.Size, Image: defaultImage, Tags: d.Tags, UserData: d.UserData}
	if n.Region == "" {
		n.Region = c.cfg.Region
	}
	if n.Size == "" {
		n.Size = sizes[0].Slug
	}
	_, a, err := c.CreateDroplet(ctx, n)
	if err != nil {
		return err
	}
	return c.completed(ctx, a)
}

func (c *Cloud) plantVolume(ctx context.Context, s SeedVolume) error {
	if s.Region == "" {
		s.Region = c.cfg.Region
	}
	if _, err := c.VolumeByName(s.Name, s.Region); err == nil {
		return nil
	}
	v, err := c.CreateVolume(ctx, NewVolume{Name: s.Name, Region: s.Region, SizeGiB: s.SizeGiB, Description: s.Description,
		FilesystemType: s.FilesystemType, FilesystemLabel: s.FilesystemLabel, Tags: s.Tags, Shared: s.MultiAttach, Performance: s.Performance})
	if err != nil || s.Droplet == "" {
		return err
	}
	d, err := c.DropletByName(s.Droplet)
	if err != nil {
		return fmt.Errorf("attach to droplet %s: %w", s.Droplet, err)
	}
	a, err := c.Start(ctx, Request{Type: AttachVolume, Volume: v.ID, Droplet: d.ID})
	if err != nil {
		return err
	}
	return c.completed(ctx, a)
}

func (c *Cloud) plantSnapshot(ctx context.Context, s SeedSnapshot) error {
	c.mu.RLock()
	_, known := c.state.snapshotName[s.Name]
	c.mu.RUnlock()
	if known {
		return nil
	}
	volumes, _ := c.Volumes(VolumeFilter{Name: s.Volume}, Page{})
	if len(volumes) != 1 {
		return fail(Invalid, "%d volumes have the name %q", len(volumes), s.Volume)
	}
	_, err := c.CreateSnapshot(ctx, NewSnapshot{Volume: volumes[0].ID, Name: s.Name, Tags: s.Tags})
	return err
}

// completed waits for an action and turns one that did not complete into an error.
func (c *Cloud) completed(ctx context.Context, a Action) error {
	a, err := c.Wait(ctx, a.ID)
	switch {
	case err != nil:
		return err
	case a.Status == Errored:
		return errors.New(a.Error)
	case a.Status == InProgress:
		return ctx.Err()
	}
	return nil
}
