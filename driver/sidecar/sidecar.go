// Package sidecar runs the upstream CSI sidecars inside this program.
//
// Provisioner, attacher and resizer are kubernetes-csi's own controllers, linked as
// libraries and wired as their commands wire them. What they do to claims, volumes
// and attachments, and when, is theirs. Leader election is off: there is one of each.
//
// # How a life ends
//
// A Run function blocks until its context ends and gives nil then. A sidecar that
// ends by itself, as its command exits when it cannot probe the driver or loses the
// connection, is started afresh after a pause, as a kubelet restarts a container.
//
// When the context ends the life ends as a killed process's does: calls to the driver
// and to the API that are in flight are cut, and none is made any more, whatever the
// library still tries. Workers, informers and queues have ended when Run returns.
// A few goroutines of upstream's that cannot be waited for end shortly after; three
// of each provisioner's and of each resizer's life (an event broadcaster that nobody
// can stop) stay.
//
// # What differs from the commands
//
// No client-side rate limit; no metrics endpoint; all informers are shared and waited
// for by event where upstream looks every 100 ms; the feature gate for volume
// attributes classes is not switched by what the API serves (a process has one set of
// gates, and it may run several clusters).
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/driver/sidecar/gates"
	"drydock.dev/drydock/internal/lab"
)

// Config of a sidecar. RESTConfig and Address are needed; the rest has upstream's defaults.
type Config struct {
	// RESTConfig reaches the API. Its user agent is set to drydock-<sidecar> where it names none.
	RESTConfig *rest.Config
	// Address is the path of the CSI socket.
	Address string
	// DriverName is what the driver must call itself; empty accepts any name.
	DriverName string
	// Component is the life that the sidecar belongs to; nil outside of a lab.
	Component *lab.Component
	Log       zerolog.Logger

	// Timeout of one CSI call; zero means 10 s, and 15 s for the attacher.
	Timeout time.Duration
	// RetryStart and RetryMax bound the back-off of one object; zero means 1 s and 5 min.
	RetryStart, RetryMax time.Duration
	// DefaultFSType is used where a class names none; empty leaves the choice to the driver.
	DefaultFSType string
	// Workers is how many objects are worked on at once; zero means 100 for the provisioner and 10 for the others.
	Workers int

	// StrictTopology gives CreateVolume the selected node's topology only (provisioner).
	StrictTopology bool
	// CapacityNamespace is where CSIStorageCapacity objects are kept; empty means none are (provisioner).
	CapacityNamespace string

	// Started is called each time the sidecar's workers have started; it may be nil.
	Started func()

	agent string                  // how the sidecar names itself to the driver
	end   context.CancelCauseFunc // ends the present life
}

// ErrDriverLost ends a life when the connection to the driver is gone.
var ErrDriverLost = errors.New("connection to the CSI driver lost")

// RunProvisioner runs external-provisioner until ctx ends.
func RunProvisioner(ctx context.Context, cfg Config) error {
	return keepRunning(ctx, "provisioner", &cfg, provisionOnce)
}

// RunAttacher runs external-attacher until ctx ends.
func RunAttacher(ctx context.Context, cfg Config) error {
	return keepRunning(ctx, "attacher", &cfg, attachOnce)
}

// RunResizer runs external-resizer until ctx ends: it enlarges volumes and, if the
// driver can, changes their attributes.
func RunResizer(ctx context.Context, cfg Config) error {
	return keepRunning(ctx, "resizer", &cfg, resizeOnce)
}

// restartPause is the pause before a sidecar that ended is started again; it doubles up to restartPauseMax.
const (
	restartPause    = 10 * time.Millisecond
	restartPauseMax = time.Second
	settled         = 10 * time.Second // a life that long starts the pauses anew
)

func keepRunning(ctx context.Context, name string, cfg *Config, once func(context.Context, *Config) error) error {
	if cfg.RESTConfig == nil || cfg.Address == "" {
		return fmt.Errorf("run %s: a REST config and the address of the driver are needed", name)
	}
	if err := gates.Ensure(); err != nil {
		return fmt.Errorf("run %s: register feature gates: %w", name, err)
	}
	log := cfg.Log.With().Str("component", name).Logger()
	return restart(ctx, name, log, cfg.Component, func(ctx context.Context) error { return lifetime(ctx, name, log, cfg, once) })
}

// restart lives one life after the other until ctx ends.
func restart(ctx context.Context, name string, log zerolog.Logger, c *lab.Component, life func(context.Context) error) error {
	var clk clock.WithTicker = clock.RealClock{}
	if c != nil {
		clk = c.Lab().Clock
	}
	pause := restartPause
	for ctx.Err() == nil {
		began := clk.Now()
		err := life(ctx)
		if ctx.Err() != nil {
			break
		}
		if clk.Since(began) > settled {
			pause = restartPause
		}
		level := zerolog.DebugLevel // at the start of a cluster the driver may take a moment longer
		if pause == restartPauseMax {
			level = zerolog.WarnLevel
		}
		log.WithLevel(level).Err(err).Dur("again", pause).Msg(name + " ended by itself")
		t := clk.NewTimer(pause)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, restartPauseMax)
	}
	return nil
}

// lifetime is one life: everything in it hangs on one context.
func lifetime(ctx context.Context, name string, log zerolog.Logger, cfg *Config, once func(context.Context, *Config) error) error {
	ctx, end := context.WithCancelCause(klog.NewContext(ctx, Logger(log)))
	defer end(nil)
	own := *cfg
	own.RESTConfig = rest.CopyConfig(cfg.RESTConfig)
	own.RESTConfig.QPS, own.RESTConfig.Burst, own.RESTConfig.RateLimiter = -1, 0, nil
	own.end, own.agent = end, "drydock-"+name
	own.RESTConfig.UserAgent = orDefault(own.RESTConfig.UserAgent, own.agent)
	own.RESTConfig.Wrap(func(rt http.RoundTripper) http.RoundTripper { return severed{ctx: ctx, next: rt} })
	err := once(ctx, &own)
	if cause := context.Cause(ctx); err == nil && errors.Is(cause, ErrDriverLost) {
		err = cause
	}
	return err
}
