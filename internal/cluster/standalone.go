package cluster

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// DefaultCloudListen is where a cloud alone listens when nobody says otherwise: beside a cluster's.
const DefaultCloudListen = "127.0.0.1:7475"

// CloudOptions of StartCloud. The zero value of each field but State means its default.
type CloudOptions struct {
	State     string // directory
	Ephemeral bool   // use a temporary directory and remove it at the end
	Listen    string
	Token     string // kept in the directory; empty takes the one that is there, or makes one
	Region    string
	Droplet   string // whose metadata requests are that do not say so
	Devices   host.Mode
	Seed      string // file in YAML or JSON, planted at every start; empty for none
	Log       zerolog.Logger
}

// Cloud is the fake cloud alone, without a cluster around it. Unlike a cluster's, its
// loop devices are for programs outside, so it stays in the mount namespace it was
// started in, and mounts nothing itself.
type Cloud struct {
	Layout Layout
	Mode   host.Mode
	Reason string // why this mode, in words
	Addr   string // host:port of the listener
	Token  string

	lock      *lock
	ephemeral bool
	devices   blockdev.Backend
	cloud     *fakecloud.Cloud
	server    *http.Server
	serving   sync.WaitGroup
}

// CloudURL is the file in which a cloud alone says where it listens.
func (l Layout) CloudURL() string { return filepath.Join(l.Root, "cloud-url") }

// StartCloud brings a cloud up and plants its seed. It runs until Close.
func StartCloud(ctx context.Context, o CloudOptions) (c *Cloud, err error) {
	c = &Cloud{}
	if c.Mode, c.Reason, err = host.Examine().Decide(o.Devices); err != nil {
		return nil, err
	}
	if o.Listen == "" {
		o.Listen = DefaultCloudListen
	}
	hostPart, _, err := net.SplitHostPort(o.Listen)
	if err != nil || !loopbackHost(hostPart) {
		return nil, OptionError{fmt.Errorf("listen address %q is not loopback; write it as %s", o.Listen, DefaultCloudListen)}
	}
	if o.Ephemeral {
		if o.State, err = os.MkdirTemp("", "drydock-cloud-"); err != nil {
			return nil, fmt.Errorf("make a temporary state directory: %w", err)
		}
	}
	if o.State, err = filepath.Abs(o.State); err != nil {
		return nil, fmt.Errorf("find state directory %s: %w", o.State, err)
	}
	c.Layout, c.ephemeral = Layout{o.State}, o.Ephemeral
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
			c = nil
		}
	}()
	if c.lock, err = takeLock(c.Layout); err != nil {
		return c, err
	}
	if err = c.Layout.Prepare(); err != nil {
		return c, err
	}
	if o.Token != "" {
		err = writeFile(c.Layout.Token(), []byte(o.Token+"\n"), 0o600)
	}
	if err == nil {
		c.Token, err = loadToken(c.Layout.Token())
	}
	if err != nil {
		return c, err
	}
	l := lab.New(lab.Options{})
	bo := blockdev.Options{Links: c.Layout.Links, Lab: l}
	if c.Mode == host.Loop {
		c.devices, err = blockdev.NewLoop(c.Layout.Cloud(), bo)
	} else {
		c.devices, err = blockdev.NewSim(c.Layout.Cloud(), bo)
	}
	if err != nil {
		return c, err
	}
	c.cloud, err = fakecloud.Open(ctx, fakecloud.Config{DB: c.Layout.CloudDB(), Devices: c.devices, Region: o.Region, Lab: l, Log: o.Log})
	if err == nil {
		err = c.plant(ctx, o.Seed)
	}
	if err != nil {
		return c, err
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return c, fmt.Errorf("listen on %s: %w; if another program has the port, choose one with --listen 127.0.0.1:PORT", o.Listen, err)
	}
	c.Addr = ln.Addr().String()
	c.server = &http.Server{Handler: guard(api.New(c.cloud, api.Config{Token: c.Token, Droplet: o.Droplet, Log: o.Log})),
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute, ErrorLog: stdlog.New(httpLog{o.Log}, "", 0)}
	c.serving.Go(func() {
		if err := c.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error().Err(err).Msg("the listener ended")
		}
	})
	return c, writeFile(c.Layout.CloudURL(), []byte(c.URL()+"\n"), 0o600)
}

func (c *Cloud) plant(ctx context.Context, file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read seed: %w", err)
	}
	seed, err := fakecloud.ParseSeed(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return c.cloud.Plant(ctx, seed)
}

// URL is the cloud's address.
func (c *Cloud) URL() string { return "http://" + c.Addr }

// Close stops the cloud and waits until nothing of it runs. Actions in progress go on at the next start.
func (c *Cloud) Close() error {
	var errs []error
	if c.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
		defer cancel()
		if c.server.Shutdown(ctx) != nil {
			c.server.Close()
		}
		os.Remove(c.Layout.CloudURL())
	}
	c.serving.Wait()
	if c.cloud != nil {
		errs = append(errs, c.cloud.Close())
	}
	if c.devices != nil {
		errs = append(errs, c.devices.Close())
	}
	if c.lock != nil {
		errs = append(errs, c.lock.release())
		if c.ephemeral {
			errs = append(errs, Purge(c.Layout))
		}
	}
	return errors.Join(errs...)
}
