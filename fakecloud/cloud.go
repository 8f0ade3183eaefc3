package fakecloud

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// Config of Open. DB, Devices and Lab are needed.
type Config struct {
	DB      string           // path of the database file
	Devices blockdev.Backend // not closed by the Cloud
	Region  string           // where EnsureDroplet makes droplets; empty means nyc3
	Lab     *lab.Lab
	Log     zerolog.Logger

	// The settings at start; Adjust and Configure change them.
	Latency Latency
	Seed    uint64
	Names   NameRule
	Limits  Limits
	Rules   Rules
}

// Cloud is a running cloud. Its methods may be called from any goroutine.
type Cloud struct {
	cfg     Config
	store   *store
	devices blockdev.Backend
	life    *lab.Component
	calls   sync.WaitGroup // public calls that change something

	mu       sync.RWMutex
	closed   bool                   // guarded by mu
	state    *state                 // guarded by mu: what is recorded
	settings Settings               // guarded by mu: those in force, start with adjusted on top
	start    Settings               // guarded by mu
	adjusted map[string]any         // guarded by mu: a merge patch, never changed in place
	held     reservations           // guarded by mu: what is being made or removed
	busy     map[VolumeID]ActionID  // guarded by mu: the action in progress on a volume
	pending  map[DropletID]int      // guarded by mu: actions in progress on a droplet
	ended    map[ActionID]chan bool // guarded by mu: closed when the action is no longer in progress

	copiesMu sync.Mutex         // taken last: progress must not wait for anything
	copies   map[*Copy]struct{} // guarded by copiesMu
}

// reservations keep two calls from making the same thing while the lock is not held.
type reservations struct {
	names       map[place]VolumeID
	volumes     map[VolumeID]bool
	snapNames   map[string]bool
	snapshots   map[SnapshotID]bool
	copying     map[VolumeID]int // snapshots of this volume in the making
	capacityGiB int64
}

// Open opens the cloud of a database, or makes a new one. It removes images without
// a record, attaches again what is recorded as attached, and lets the actions go on
// that were in progress. It refuses a database of a newer schema, a damaged one, and
// one that is open elsewhere, each in words; and images whose database is missing.
func Open(ctx context.Context, cfg Config) (*Cloud, error) {
	if cfg.Lab == nil || cfg.Devices == nil {
		return nil, errors.New("open cloud: a lab and block devices are needed")
	}
	if cfg.Region == "" {
		cfg.Region = "nyc3"
	}
	if err := refuseForgetting(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open cloud: %w", err)
	}
	st, err := openStore(cfg.DB)
	if err != nil {
		return nil, err
	}
	records, err := st.load()
	if err != nil {
		return nil, errors.Join(st.explain(err), st.close())
	}
	c := &Cloud{
		cfg: cfg, store: st, devices: cfg.Devices, state: records,
		// The component lives until Close, not until the caller's context ends.
		life:  cfg.Lab.Component(context.WithoutCancel(ctx), "cloud", ""),
		start: Settings{Latency: cfg.Latency, Seed: cfg.Seed, Names: cfg.Names, Limits: cfg.Limits.withDefaults(), Rules: cfg.Rules},
		held: reservations{names: map[place]VolumeID{}, volumes: map[VolumeID]bool{}, snapNames: map[string]bool{},
			snapshots: map[SnapshotID]bool{}, copying: map[VolumeID]int{}},
		busy: map[VolumeID]ActionID{}, pending: map[DropletID]int{}, ended: map[ActionID]chan bool{}, copies: map[*Copy]struct{}{},
	}
	c.adjusted, err = st.loadSettings()
	if err == nil {
		c.settings, err = overlay(c.start, c.adjusted)
	}
	if err != nil {
		c.life.Stop()
		return nil, errors.Join(st.explain(err), st.close())
	}
	if err := c.boot(ctx); err != nil {
		c.life.Stop()
		return nil, errors.Join(fmt.Errorf("open cloud: %w", err), st.close())
	}
	return c, nil
}

// Component is the cloud's life in the lab, by which a test or a rule kills it.
func (c *Cloud) Component() *lab.Component { return c.life }

// Region is the configured region.
func (c *Cloud) Region() string { return c.cfg.Region }

// Lab is the lab the cloud belongs to.
func (c *Cloud) Lab() *lab.Lab { return c.cfg.Lab }

// Close ends the cloud and waits for its goroutines. Actions in progress stay so
// in the database and go on at the next Open. It also ends a killed cloud.
func (c *Cloud) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.life.Stop()
	c.calls.Wait()
	return c.store.close()
}

// begin starts a call that changes something. The context it returns belongs to the
// cloud's life and ends with the caller's as well; done must be deferred.
func (c *Cloud) begin(caller context.Context) (ctx context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.life.Context().Err() != nil {
		return nil, nil, fail(Unavailable, "The cloud is stopping or was killed.")
	}
	c.calls.Add(1)
	ctx, cancel := context.WithCancelCause(c.life.Context())
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	if span := trace.SpanFromContext(caller); span.SpanContext().IsValid() {
		ctx = trace.ContextWithSpan(ctx, span)
	}
	return ctx, func() {
		stop()
		cancel(nil)
		c.calls.Done()
	}, nil
}

// detached is ctx without its caller: for work that goes on when the caller gives up.
func (c *Cloud) detached(ctx context.Context) context.Context {
	return trace.ContextWithSpan(c.life.Context(), trace.SpanFromContext(ctx))
}

// commit records a change in the database, then in memory. The caller holds mu.
func (c *Cloud) commit(ch change) error {
	if err := c.store.write(ch); err != nil {
		return err
	}
	c.state.apply(ch)
	return nil
}

func (c *Cloud) now() time.Time { return c.cfg.Lab.Clock.Now().UTC().Round(0) }

func newID() string { return uuid.NewString() }

// sleep waits on the cloud's clock.
func (c *Cloud) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := c.cfg.Lab.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
