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
	"strings"
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
	Metadata  string // one more address, for metadata alone: 169.254.169.254:80 in a network namespace of the droplet
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
	servers   []*http.Server
	log       zerolog.Logger
	serving   sync.WaitGroup
}

// CloudURL is the file in which a cloud alone says where it listens.
func (l Layout) CloudURL() string { return filepath.Join(l.Root, "cloud-url") }

// StartCloud brings a cloud up and plants its seed. It runs until Close.
func StartCloud(ctx context.Context, o CloudOptions) (c *Cloud, err error) {
	c = &Cloud{log: o.Log}
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
	if o.Metadata != "" {
		hostPart, _, err := net.SplitHostPort(o.Metadata)
		if err != nil || !loopbackHost(hostPart) && hostPart != "169.254.169.254" {
			return nil, OptionError{fmt.Errorf("metadata address %q is neither loopback nor 169.254.169.254:80", o.Metadata)}
		}
		if o.Droplet == "" {
			return nil, OptionError{errors.New("--metadata needs --droplet: nobody says there who asks")}
		}
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
	handler := guard(api.New(c.cloud, api.Config{Token: c.Token, Droplet: o.Droplet, Log: o.Log}))
	if c.Addr, err = c.serve(o.Listen, handler); err != nil {
		return c, fmt.Errorf("%w; if another program has the port, choose one with --listen 127.0.0.1:PORT", err)
	}
	if o.Metadata != "" {
		if _, err = c.serve(o.Metadata, metadataOnly(handler)); err != nil {
			return c, fmt.Errorf("%w; a droplet's network namespace has that address after \"ip addr add 169.254.169.254/32 dev lo\"", err)
		}
	}
	return c, writeFile(c.Layout.CloudURL(), []byte(c.URL()+"\n"), 0o600)
}

// serve listens on an address and answers until Close.
func (c *Cloud) serve(addr string, h http.Handler) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", addr, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute, ErrorLog: stdlog.New(httpLog{c.log}, "", 0)}
	c.servers = append(c.servers, server)
	c.serving.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error().Err(err).Msg("the listener ended")
		}
	})
	return ln.Addr().String(), nil
}

// metadataOnly hides everything but the metadata service.
func metadataOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/metadata/") {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
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
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	for _, s := range c.servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
	if c.lock != nil {
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
