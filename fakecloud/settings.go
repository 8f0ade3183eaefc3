package fakecloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// NameRule decides which names volumes may have.
type NameRule int

const (
	// NamesStrict is the real rule: lower-case letters, digits and dashes, a letter first, at most 64.
	NamesStrict NameRule = iota
	// NamesLenient takes everything that can be a device link's name, as conformance suites need.
	NamesLenient
)

func (r NameRule) String() string {
	return map[NameRule]string{NamesStrict: "strict", NamesLenient: "lenient"}[r]
}

// MarshalText implements encoding.TextMarshaler.
func (r NameRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *NameRule) UnmarshalText(b []byte) error {
	for _, known := range []NameRule{NamesStrict, NamesLenient} {
		if known.String() == string(b) {
			*r = known
			return nil
		}
	}
	return fail(Invalid, "names are %q: strict and lenient are known", b)
}

// Limits are the cloud's numbers that can be set. The zero value is the real cloud's
// behaviour without quota and without rate limits.
type Limits struct {
	VolumesPerDroplet  int           `json:"volumes_per_droplet"`  // zero is DefaultVolumesPerDroplet, negative is no limit
	Volumes            int           `json:"volumes"`              // of the account, shown as volume_limit; zero is no limit
	CapacityGiB        int64         `json:"capacity_gib"`         // of all volumes together; zero is no limit
	Droplets           int           `json:"droplets"`             // of the account, as far as the API creates them; zero is no limit
	MinSizeGiB         int64         `json:"min_size_gib"`         // of a volume; zero is MinSizeGiB
	MaxSizeGiB         int64         `json:"max_size_gib"`         // of a volume; zero is MaxSizeGiB, which is also the highest
	SnapshotsPerVolume int           `json:"snapshots_per_volume"` // zero is DefaultSnapshotsPerVolume, negative is no limit
	SnapshotInterval   time.Duration `json:"snapshot_interval"`    // least time between two snapshots of a volume; the real cloud has 10m
	// NoDropletLock lets a droplet attach and detach several volumes at once. The real
	// cloud answers "Droplet already has a pending event." instead.
	NoDropletLock bool `json:"no_droplet_lock"`
	// DetachInvalid answers the detach of a volume that is not attached with the status
	// 422 of 2017 instead of the 404 of today.
	DetachInvalid bool `json:"detach_invalid"`
	// ActionHistory is how many finished actions are kept; zero is DefaultActionHistory.
	ActionHistory int  `json:"action_history"`
	Rate          Rate `json:"rate"`
}

// Rate is the limit on requests of one token. They are always counted, and refused
// only when Enforce is set.
type Rate struct {
	Hourly  int  `json:"hourly"` // zero is DefaultHourly
	Burst   int  `json:"burst"`  // in a minute; zero is DefaultBurst
	Enforce bool `json:"enforce"`
}

// Rules can be loosened one by one. The zero value is the real cloud's behaviour.
type Rules struct {
	AnyRegion      bool `json:"any_region"`      // a volume attaches to droplets of other regions, and restores there
	LenientResize  bool `json:"lenient_resize"`  // a resize that is not larger completes without an effect
	DeleteAttached bool `json:"delete_attached"` // deleting an attached volume pulls its disk first
}

// Defaults of Limits, from the real cloud's documentation.
const (
	DefaultVolumesPerDroplet  = 15
	DefaultSnapshotsPerVolume = 25
	DefaultActionHistory      = 10000
	DefaultHourly             = 5000
	DefaultBurst              = 250
)

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.VolumesPerDroplet, DefaultVolumesPerDroplet)
	set(&l.SnapshotsPerVolume, DefaultSnapshotsPerVolume)
	set(&l.ActionHistory, DefaultActionHistory)
	set(&l.Rate.Hourly, DefaultHourly)
	set(&l.Rate.Burst, DefaultBurst)
	if l.MinSizeGiB <= 0 {
		l.MinSizeGiB = MinSizeGiB
	}
	if l.MaxSizeGiB <= 0 || l.MaxSizeGiB > MaxSizeGiB {
		l.MaxSizeGiB = MaxSizeGiB
	}
	return l
}

// MarshalJSON writes the interval as text, like all times of the settings.
func (l Limits) MarshalJSON() ([]byte, error) {
	type fields Limits
	return json.Marshal(struct {
		fields
		SnapshotInterval string `json:"snapshot_interval"`
	}{fields(l), l.SnapshotInterval.String()})
}

// UnmarshalJSON changes the fields that b names and leaves the others.
func (l *Limits) UnmarshalJSON(b []byte) error {
	type fields Limits
	in := struct {
		*fields
		SnapshotInterval *string `json:"snapshot_interval"`
	}{fields: (*fields)(l)}
	if err := strictly(b, &in); err != nil || in.SnapshotInterval == nil {
		return err
	}
	d, err := duration(*in.SnapshotInterval)
	if err != nil {
		return fail(Invalid, "snapshot_interval: %v", err)
	}
	l.SnapshotInterval = d
	return nil
}

// Settings can change while the cloud runs.
type Settings struct {
	Latency Latency  `json:"latency"`
	Seed    uint64   `json:"seed"` // of the latencies; zero is a seed like any other
	Names   NameRule `json:"names"`
	Limits  Limits   `json:"limits"`
	Rules   Rules    `json:"rules"`
}

// Settings returns those in force, with defaults filled in.
func (c *Cloud) Settings() Settings {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settings
}

// Configure puts settings in force for what is asked from now on, until Close.
func (c *Cloud) Configure(s Settings) {
	s.Limits = s.Limits.withDefaults()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.adjusted, c.settings = s, nil, s
}

// Adjust changes the settings that a JSON merge patch (RFC 7396) names, and keeps the
// patch in the database: the next Open applies it to the settings of its Config. A
// null gives a setting back to those.
func (c *Cloud) Adjust(ctx context.Context, patch []byte) (Settings, error) {
	_, done, err := c.begin(ctx)
	if err != nil {
		return Settings{}, err
	}
	defer done()
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil || change == nil {
		return Settings{}, fail(Invalid, "settings are changed by a JSON object: %v", errors.Join(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	merged, _ := merge(c.adjusted, change).(map[string]any)
	next, err := overlay(c.start, merged)
	if err != nil {
		return Settings{}, err
	}
	if err := c.store.keepSettings(merged); err != nil {
		return Settings{}, internal(err)
	}
	c.adjusted, c.settings = merged, next
	return next, nil
}

// ResetSettings gives up what was adjusted.
func (c *Cloud) ResetSettings(ctx context.Context) error {
	_, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.store.keepSettings(nil); err != nil {
		return internal(err)
	}
	c.adjusted, c.settings = nil, c.start
	return nil
}

// overlay applies a merge patch to settings; s itself stays as it is.
func overlay(s Settings, patch map[string]any) (Settings, error) {
	b, err := json.Marshal(patch)
	if err != nil {
		return s, fail(Invalid, "settings: %v", err)
	}
	if patch == nil {
		return s, nil
	}
	if err := strictly(b, &s); err != nil {
		var own *Error
		if errors.As(err, &own) {
			return s, own
		}
		return s, fail(Invalid, "settings: %v", err)
	}
	s.Limits = s.Limits.withDefaults()
	if s.Limits.MinSizeGiB > s.Limits.MaxSizeGiB {
		return s, fail(Invalid, "settings: min_size_gib %d is more than max_size_gib %d", s.Limits.MinSizeGiB, s.Limits.MaxSizeGiB)
	}
	return s, nil
}

// strictly decodes b into v and refuses fields that v does not have.
func strictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w", err)
	}
	return nil
}

// merge applies an RFC 7396 patch to a document without changing either.
func merge(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if d, ok := doc.(map[string]any); ok {
		for k, v := range d {
			out[k] = v
		}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = merge(out[k], v)
	}
	return out
}
