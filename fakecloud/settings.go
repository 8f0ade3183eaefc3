package fakecloud

import (
	"math/rand/v2"
	"time"
)

// Delay is how long something takes: Min, or evenly spread up to Max if that is longer.
type Delay struct{ Min, Max time.Duration }

func (d Delay) pick(r *rand.Rand) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(r.Int64N(int64(d.Max-d.Min)+1))
}

// Latency is how long actions take before their effect. Zero is at once, which is
// still asynchronous: the answer to the POST says in-progress.
type Latency struct {
	Attach, Detach, Resize Delay
	Power                  Delay // power actions and the creation of a droplet
	Release                Delay // from a droplet's deletion to the release of its volumes
}

// RealLatency is like the real cloud's on a good day, for demonstrations.
func RealLatency() Latency {
	short := Delay{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond}
	return Latency{Attach: short, Detach: short, Resize: short, Power: short, Release: Delay{Min: 3 * time.Second, Max: 4 * time.Second}}
}

// of returns the delay of an action type.
func (l Latency) of(t ActionType) Delay {
	switch t {
	case AttachVolume:
		return l.Attach
	case DetachVolume:
		return l.Detach
	case ResizeVolume:
		return l.Resize
	case Destroy:
		return l.Release
	}
	return l.Power
}

// NameRule decides which names volumes may have.
type NameRule int

const (
	// NamesStrict is the real rule: lower-case letters, digits and dashes, a letter first, at most 64.
	NamesStrict NameRule = iota
	// NamesLenient takes everything that can be a device link's name, as conformance suites need.
	NamesLenient
)

// Limits are the cloud's rules that can be set. The zero value is the real cloud's
// behaviour without quota and without rate limits.
type Limits struct {
	VolumesPerDroplet  int           // zero is DefaultVolumesPerDroplet, negative is no limit
	Volumes            int           // of the account, shown as volume_limit; zero is no limit
	CapacityGiB        int64         // of all volumes together; zero is no limit
	SnapshotsPerVolume int           // zero is DefaultSnapshotsPerVolume, negative is no limit
	SnapshotInterval   time.Duration // least time between two snapshots of a volume; the real cloud has 10m
	// NoDropletLock lets a droplet attach and detach several volumes at once. The real
	// cloud answers "Droplet already has a pending event." instead.
	NoDropletLock bool
	// DetachInvalid answers the detach of a volume that is not attached with the status
	// 422 of 2017 instead of the 404 of today.
	DetachInvalid bool
	// ActionHistory is how many finished actions are kept; zero is DefaultActionHistory.
	ActionHistory int
	Rate          Rate
}

// Rate is the limit on requests of one token. They are always counted, and refused
// only when Enforce is set.
type Rate struct {
	Hourly  int // zero is DefaultHourly
	Burst   int // in a minute; zero is DefaultBurst
	Enforce bool
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
	return l
}

// Settings can change while the cloud runs. They are not kept in the database.
type Settings struct {
	Latency Latency
	Names   NameRule
	Limits  Limits
}

// Settings returns those in force, with defaults filled in.
func (c *Cloud) Settings() Settings {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settings
}

// Configure puts settings in force for what is asked from now on.
func (c *Cloud) Configure(s Settings) {
	s.Limits = s.Limits.withDefaults()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings = s
}
