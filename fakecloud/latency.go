package fakecloud

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Delay is how long something takes. The zero value is at once. It is written as
//
//	300ms                          fixed
//	200ms..500ms                   evenly spread over a range
//	normal(2s,500ms)               around a mean, with a standard deviation
//	exponential(2s)                mostly short, sometimes long, with a mean
//	exponential(2s) 1s..30s        either of them, cut to a range
type Delay struct {
	Shape    Shape
	Min, Max time.Duration // a Max below Min is no upper bound, or for an even spread: Min exactly
	Mean     time.Duration
	Spread   time.Duration // standard deviation of Normal
}

// Shape is the distribution of a Delay.
type Shape string

// The shapes.
const (
	Even        Shape = ""
	Normal      Shape = "normal"
	Exponential Shape = "exponential"
)

func (d Delay) pick(r *rand.Rand) time.Duration {
	var x float64
	switch d.Shape {
	case Normal:
		x = float64(d.Mean) + r.NormFloat64()*float64(d.Spread)
	case Exponential:
		x = r.ExpFloat64() * float64(d.Mean)
	default:
		if d.Max <= d.Min {
			return d.Min
		}
		return d.Min + time.Duration(r.Int64N(int64(d.Max-d.Min)+1))
	}
	if d.Max > 0 && d.Max >= d.Min {
		x = min(x, float64(d.Max))
	}
	return time.Duration(min(max(x, float64(d.Min)), math.MaxInt64/2))
}

func (d Delay) String() string {
	switch d.Shape {
	case Normal:
		return fmt.Sprintf("normal(%s,%s)", d.Mean, d.Spread) + d.cut()
	case Exponential:
		return fmt.Sprintf("exponential(%s)", d.Mean) + d.cut()
	}
	if d.Max > d.Min {
		return d.Min.String() + ".." + d.Max.String()
	}
	return d.Min.String()
}

func (d Delay) cut() string {
	switch {
	case d.Max > 0 && d.Max >= d.Min:
		return fmt.Sprintf(" %s..%s", d.Min, d.Max)
	case d.Min > 0:
		return fmt.Sprintf(" %s..", d.Min)
	}
	return ""
}

// ParseDelay reads what String writes.
func ParseDelay(text string) (d Delay, err error) {
	s := strings.TrimSpace(text)
	if shape, rest, ok := strings.Cut(s, "("); ok {
		args, after, closed := strings.Cut(rest, ")")
		mean, spread, two := strings.Cut(args, ",")
		d.Shape = Shape(strings.TrimSpace(shape))
		known := d.Shape == Normal && two || d.Shape == Exponential && !two
		if !closed || !known {
			return Delay{}, badDelay(text)
		}
		d.Mean, err = duration(mean)
		if two && err == nil {
			d.Spread, err = duration(spread)
		}
		if s = strings.TrimSpace(after); err != nil || d.Mean == 0 {
			return Delay{}, badDelay(text)
		}
		if s == "" {
			return d, nil
		}
	}
	low, high, ranged := strings.Cut(s, "..")
	if d.Min, err = duration(low); err != nil || d.Shape != Even && !ranged {
		return Delay{}, badDelay(text)
	}
	if high = strings.TrimSpace(high); ranged && (high != "" || d.Shape == Even) {
		if d.Max, err = duration(high); err != nil || d.Max < d.Min {
			return Delay{}, badDelay(text)
		}
	}
	return d, nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is negative", s)
	}
	return d, err
}

func badDelay(text string) error {
	return fail(Invalid, "delay %q cannot be read: write 300ms, 200ms..500ms, normal(2s,500ms) or exponential(2s), the last two with a range behind them if wanted", text)
}

// MarshalText implements encoding.TextMarshaler.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Delay) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDelay(string(b))
	return err
}

// Latency is how long actions take before their effect. Zero is at once, which is
// still asynchronous: the answer to the POST says in-progress.
type Latency struct {
	Attach  Delay `json:"attach"`
	Detach  Delay `json:"detach"`
	Resize  Delay `json:"resize"`
	Power   Delay `json:"power"`   // power actions and the creation of a droplet
	Release Delay `json:"release"` // from a droplet's deletion to the release of its volumes
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

// latency is an action's delay: the seed and its id decide it, whatever happens
// beside it and however often the cloud restarts meanwhile. The caller holds mu.
func (c *Cloud) latency(a Action) time.Duration {
	return c.settings.Latency.of(a.Type).pick(rand.New(rand.NewPCG(c.settings.Seed, uint64(a.ID))))
}

// remaining is what is left of the delay of an action that an earlier life began.
// The clock may have gone back since then. The caller holds mu.
func (c *Cloud) remaining(a Action) time.Duration {
	whole := c.latency(a)
	return min(whole, max(0, whole-c.now().Sub(a.Started)))
}
