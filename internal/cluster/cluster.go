// Package cluster wires the boxes into one running cluster: where its files lie,
// in which order its parts start and stop, who may speak to it.
//
// Promises. Start either returns a cluster whose API answers, or an error and
// nothing left running. Close stops every part, the last started first, and waits
// for it. What was acknowledged before a kill -9 is there after the next Start on
// the same directory: recovery is the ordinary start.
//
// The boxes meet over the one listener and over unix sockets only; this package is
// the single one that imports more than one of them.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/mounts"
	"drydock.dev/drydock/internal/sock"
	"drydock.dev/drydock/web"
)

// Cluster is a running cluster. Its exported fields never change after Start.
type Cluster struct {
	Layout Layout
	Lab    *lab.Lab
	Mode   host.Mode
	Reason string // why this mode, in words
	Addr   string // host:port of the listener

	opts    Options
	log     zerolog.Logger
	id      *identity
	auth    *authenticator
	started time.Time

	lock   *lock
	store  *storage.Store
	api    *server.Server
	audit  *os.File   // nil without an audit log
	cloud  *cloudPart // nil until its devices are ready, and if only the API is served
	web    *dashboard
	http   *httpServers
	parts  *parts
	tables map[string]*mounts.Table // simulated mount tables by node, nil in loop mode
	cancel context.CancelFunc
	client kubernetes.Interface
	// machines are the nodes as machines, by name.
	machines   map[string]*machine
	laboratory laboratory
	drivers    sync.Map // socket -> *driver.Driver that serves it
	proxies    sync.Map // socket -> *lab.Proxy that serves it
	closing    sync.Once
	err        error // of Close; set once

	lineMu sync.Mutex
	lines  map[string]*lab.Line // guarded by lineMu: of components, by name
	timeMu sync.Mutex           // held while the clock is advanced
}

// Start brings a cluster up. The cluster runs until Close; ctx bounds the start only.
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	if err := o.complete(); err != nil {
		return nil, OptionError{err}
	}
	c = &Cluster{Layout: Layout{o.State}, opts: o, log: o.Log, lines: map[string]*lab.Line{}}
	defer func() {
		if err != nil {
			c.Close()
			c = nil
		}
	}()
	if c.Mode, c.Reason, err = host.Examine().Decide(o.Devices); err != nil {
		return c, err
	}
	if c.lock, err = takeLock(c.Layout); err != nil {
		return c, err
	}
	if err = c.Layout.Prepare(); err != nil {
		return c, err
	}
	if c.id, err = loadIdentity(c.Layout); err != nil {
		return c, err
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return c, fmt.Errorf("listen on %s: %w; if another program has the port, choose one with --listen 127.0.0.1:PORT", o.Listen, err)
	}
	c.Addr = ln.Addr().String()
	c.http = newHTTPServers(ln, c.id, c.log)
	offset, err := readOffset(c.Layout)
	if err != nil {
		return c, err
	}
	c.Lab = lab.New(lab.Options{Offset: offset})
	c.started = c.Lab.Clock.Now()
	c.auth = newAuthenticator(c.id.token)

	run, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.parts = &parts{lab: c.Lab, log: c.log, ctx: run}
	if err = c.openBoxes(); err != nil {
		return c, err
	}
	c.http.serve(c.routes())
	if err = c.id.writeKubeconfig(c.Layout.Kubeconfig(), o.Name, c.Addr); err != nil {
		return c, err
	}
	if c.client, err = kubernetes.NewForConfig(c.RESTConfig(lab.Owner)); err != nil {
		return c, err
	}
	if !o.API.Only {
		if err = c.installDriver(ctx); err != nil {
			return c, err
		}
	}
	c.addParts()
	if err = c.beginLaboratory(ctx); err != nil {
		return c, err
	}
	for _, name := range c.parts.names() {
		if !c.has(name) {
			continue
		}
		if err = c.parts.start(name); err != nil {
			return c, err
		}
	}
	c.laboratory.run(run)
	return c, nil
}

// openBoxes opens what has a database, and prepares the nodes.
func (c *Cluster) openBoxes() error {
	c.machines = map[string]*machine{}
	if c.Mode == host.Sim {
		c.tables = map[string]*mounts.Table{}
	}
	for _, n := range c.NodeNames() {
		if err := c.prepareNode(n); err != nil {
			return err
		}
		c.machines[n] = c.newMachine(n)
	}
	reg, err := registry.NewWith(registry.Options{Clock: c.Lab.Clock, RootCA: string(c.id.ca), TokenVolume: c.opts.API.TokenVolume,
		NoControllers: c.opts.API.Only && !c.opts.API.Controllers, VolumeHealth: c.opts.Gates.CSIVolumeHealth})
	if err != nil {
		return err
	}
	c.store, err = storage.Open(storage.Config{Path: c.Layout.ClusterDB(), Durability: durabilities[c.opts.API.Durability], Clock: c.Lab.Clock, Log: c.boxLog("api")})
	if err != nil {
		return err
	}
	cfg := server.Config{
		Store: c.store, Registry: reg, Authenticate: c.authenticate, Authorization: authorizations[c.opts.API.Authorization], Address: c.Addr,
		TrackComponents: c.opts.API.ComponentManagedFields,
		Lab:             c.Lab, Log: c.boxLog("api"), Version: c.opts.Version, Kubelet: c.kubelet,
	}
	if f := c.opts.API.AuditLog; f != "" {
		if c.audit, err = os.OpenFile(f, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return OptionError{fmt.Errorf("open the audit log: %w", err)}
		}
		cfg.Audit = c.audit
	}
	if c.api, err = server.New(cfg); err != nil {
		return err
	}
	if !c.opts.API.Only {
		if c.cloud, err = c.newCloud(); err != nil {
			return err
		}
	}
	c.web = &dashboard{cfg: web.Config{
		RESTConfig: c.RESTConfig("web"), Lab: c.Lab, Log: c.boxLog("web"), Version: c.opts.Version,
		ClusterName: c.opts.Name, Mode: string(c.Mode) + ": " + c.Reason,
	}}
	return nil
}

// prepareNode makes a node's directories and forgets what a reboot forgets: device
// links, sockets and, where mounts are simulated, the mounts.
func (c *Cluster) prepareNode(n string) error {
	l := c.Layout
	for _, dir := range []string{l.Links(n), l.Registry(n), filepath.Dir(l.NodeSocket(n, c.opts.Driver))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory of node %s: %w", n, err)
		}
	}
	if err := c.clearNode(n); err != nil {
		return err
	}
	if c.tables == nil {
		return c.shareKubelet(n)
	}
	t, err := mounts.OpenTable(l.MountTable(n))
	if err == nil {
		err = t.Clear()
	}
	if err != nil {
		return fmt.Errorf("reboot node %s: %w", n, err)
	}
	c.tables[n] = t
	return nil
}

// clearNode removes what a machine's memory holds: device links and sockets.
func (c *Cluster) clearNode(n string) error {
	l := c.Layout
	for _, pattern := range []string{l.Links(n) + "/*", l.Registry(n) + "/*.sock", l.Kubelet(n) + "/plugins/*/*.sock"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return fmt.Errorf("reboot node %s: %w", n, err)
			}
		}
	}
	return nil
}

// clearTables forgets every simulated mount.
func (c *Cluster) clearTables() error {
	var errs []error
	for n, t := range c.tables {
		if err := t.Clear(); err != nil {
			errs = append(errs, fmt.Errorf("power off node %s: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) boxLog(box string) zerolog.Logger { return c.log.With().Str("box", box).Logger() }

// URL is the cluster's address for plain HTTP clients and browsers.
func (c *Cluster) URL() string { return "http://" + c.Addr }

// Token is the owner's bearer token, for the Kubernetes and the cloud API.
func (c *Cluster) Token() string { return c.id.token }

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.opts.Name }

// NodeNames lists the simulated nodes.
func (c *Cluster) NodeNames() []string {
	var out []string
	if c.opts.API.Only {
		return nil
	}
	for i := range c.opts.Nodes {
		out = append(out, nodeName(i))
	}
	return out
}

// Client is a client of the cluster's Kubernetes API, as its owner.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Settle waits until the burst of requests that may be going on is over and the memory that it took given back.
func (c *Cluster) Settle(ctx context.Context) error { return c.http.thrift.settle(ctx) }

// RESTConfig is how a component of this process reaches the Kubernetes API: in plain HTTP,
// with a credential of its own and no limit on the client's side. It works in this process only.
func (c *Cluster) RESTConfig(component string) *rest.Config {
	return &rest.Config{
		Host: c.URL(), BearerToken: c.auth.issue(component), UserAgent: "drydock-" + component, QPS: -1, Burst: -1, Transport: c.line(component),
	}
}

// line is what a component reaches the API server and the cloud by, in all of its lives.
func (c *Cluster) line(component string) *lab.Line {
	c.lineMu.Lock()
	defer c.lineMu.Unlock()
	l := c.lines[component]
	if l == nil {
		l = c.Lab.Faults.Line(component, c.http.inside)
		c.lines[component] = l
	}
	return l
}

// Close stops the cluster and waits until nothing of it runs.
func (c *Cluster) Close() error {
	c.closing.Do(func() {
		if c.lock == nil {
			if c.opts.Ephemeral {
				os.Remove(c.opts.State) // it is empty
			}
			return // nothing was begun; what is in the directory, and mounted in it, is another cluster's
		}
		c.laboratory.end()
		c.expelGuests()
		if c.parts != nil {
			c.parts.stopAll()
		}
		if c.cancel != nil {
			c.cancel()
		}
		var errs []error
		if c.http != nil {
			errs = append(errs, c.http.close())
		}
		if c.api != nil {
			c.api.Close()
		}
		if c.store != nil {
			errs = append(errs, c.store.Close())
		}
		if c.audit != nil {
			errs = append(errs, c.audit.Close())
		}
		errs = append(errs, c.powerOff())
		if c.cloud != nil {
			errs = append(errs, c.cloud.devices.Close())
		}
		errs = append(errs, sock.Forget(c.opts.State), c.lock.release())
		if c.opts.Ephemeral {
			errs = append(errs, Purge(c.Layout))
		}
		c.err = errors.Join(errs...)
	})
	return c.err
}

// Driver is the CSI driver's name.
func (c *Cluster) Driver() string { return c.opts.Driver }
