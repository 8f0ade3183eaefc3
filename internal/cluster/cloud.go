package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// limits of the cluster's cloud. The real one's single pending event for each droplet would make
// every test that attaches two volumes to a node slower by whole seconds, so it is off here.
var limits = fakecloud.Limits{VolumesPerDroplet: maxVolumes, NoDropletLock: true}

// cloudPart runs the cloud's control plane. The devices are its hardware: they outlive a kill of it.
type cloudPart struct {
	c       *Cluster
	devices blockdev.Backend
	handler atomic.Pointer[http.Handler] // nil while the control plane is down
	// answered is closed when the control plane has come up for the first time.
	answered chan struct{}
	first    sync.Once
	log      api.Log // of requests, over all lives
}

func (c *Cluster) newCloud() (*cloudPart, error) {
	p := &cloudPart{c: c, answered: make(chan struct{})}
	o := blockdev.Options{Links: c.Layout.Links, Lab: c.Lab}
	var err error
	if c.Mode == host.Loop {
		p.devices, err = blockdev.NewLoop(c.Layout.Cloud(), o)
	} else {
		p.devices, err = blockdev.NewSim(c.Layout.Cloud(), o)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *cloudPart) run(ctx context.Context, life *lab.Component) error {
	c := p.c
	cloud, err := fakecloud.Open(ctx, fakecloud.Config{DB: c.Layout.CloudDB(), Devices: p.devices, Region: Region, Lab: c.Lab, Log: c.boxLog("cloud"), Limits: limits})
	if err != nil {
		return err
	}
	defer cloud.Close()
	for _, n := range c.NodeNames() {
		if err := p.ensureDroplet(ctx, cloud, n); err != nil {
			return err
		}
	}
	var h http.Handler = api.New(cloud, api.Config{Token: c.Token(), Requests: &p.log, Log: c.boxLog("cloud")})
	p.handler.Store(&h)
	p.first.Do(func() { close(p.answered) })
	defer p.handler.Store(nil)
	// The cloud has a life of its own, which a rule may end; this one ends with it, and the other way round.
	select {
	case <-ctx.Done():
		if life.Killed() {
			cloud.Component().Kill()
		}
	case <-cloud.Component().Context().Done():
		life.Kill()
	}
	return nil
}

// ensureDroplet makes a node's droplet. It runs if the node does: a start of the cluster boots all nodes that have power.
func (p *cloudPart) ensureDroplet(ctx context.Context, cloud *fakecloud.Cloud, n string) error {
	id, err := cloud.EnsureDroplet(ctx, n)
	if err != nil {
		return err
	}
	d, err := cloud.Droplet(id)
	off := p.c.machines[n].isOff()
	if err != nil || off == (d.Status == fakecloud.DropletOff) {
		return err
	}
	do := fakecloud.PowerOn
	if off {
		do = fakecloud.PowerOff
	}
	a, err := cloud.StartDroplet(ctx, id, do)
	if err == nil {
		_, err = cloud.Wait(ctx, a.ID)
	}
	if err != nil {
		return fmt.Errorf("%s of the droplet of node %s: %w", do, n, err)
	}
	return nil
}

// ServeHTTP answers for the control plane, or breaks the connection as a host that is down does.
func (p *cloudPart) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := p.handler.Load()
	if h == nil {
		panic(http.ErrAbortHandler)
	}
	(*h).ServeHTTP(w, r)
}
