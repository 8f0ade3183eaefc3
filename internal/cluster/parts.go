package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/internal/lab"
)

// part is a component of the cluster that can be killed and started again. Each life
// is a lab.Component; run returns when that life is over.
//
//	down --start--> up --kill or stop--> down
//	                up --run returns an error--> waiting --restart delay--> up
type part struct {
	name string
	kind string
	node string
	run  func(ctx context.Context, c *lab.Component) error
	comp *lab.Component // of the present life, nil when down
	done chan struct{}  // closes when the supervising goroutine has ended
	want bool           // it should be up
}

// restartDelay separates the lives of a part that ends by itself, as a container's back-off does.
const restartDelay = 200 * time.Millisecond

// parts supervises the parts of one cluster.
type parts struct {
	lab *lab.Lab
	log zerolog.Logger
	ctx context.Context

	mu   sync.Mutex
	list []*part // guarded by mu; the fields comp, done, want of each as well
}

func (p *parts) add(kind, node string, run func(context.Context, *lab.Component) error) {
	name := kind
	if node != "" {
		name = kind + "/" + node
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, &part{name: name, kind: kind, node: node, run: run})
}

// names lists the parts in their start order.
func (p *parts) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, x := range p.list {
		out = append(out, x.name)
	}
	return out
}

func (p *parts) find(name string) (*part, error) {
	i := slices.IndexFunc(p.list, func(x *part) bool { return x.name == name })
	if i < 0 {
		var known []string
		for _, x := range p.list {
			known = append(known, x.name)
		}
		return nil, fmt.Errorf("no component %q; there are %v", name, known)
	}
	return p.list[i], nil
}

// start brings a part up. Starting one that is up does nothing; one that was just killed is waited for.
func (p *parts) start(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, err := p.find(name)
	if err != nil {
		return err
	}
	for x.done != nil {
		if x.want && (x.comp == nil || !x.comp.Killed()) {
			return nil
		}
		done := x.done
		p.mu.Unlock()
		<-done
		p.mu.Lock()
		if x.done == done {
			x.done = nil
		}
	}
	x.want, x.done = true, make(chan struct{})
	x.comp = p.lab.Component(p.ctx, x.kind, x.node)
	go p.supervise(x, x.comp, x.done)
	return nil
}

func (p *parts) supervise(x *part, c *lab.Component, done chan struct{}) {
	defer close(done)
	for {
		err := p.live(x, c)
		p.mu.Lock()
		over := !x.want || p.ctx.Err() != nil
		if c.Killed() {
			over = true
			p.log.Warn().Str("component", x.name).Msg("killed; it stays down until it is started")
		}
		if over {
			x.want, x.comp = false, nil
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.log.Error().Err(err).Str("component", x.name).Msg("ended by itself; it is started again")
		t := time.NewTimer(restartDelay)
		select {
		case <-t.C:
		case <-p.ctx.Done():
		}
		t.Stop()
		p.mu.Lock()
		if !x.want {
			x.comp = nil
			p.mu.Unlock()
			return
		}
		c = p.lab.Component(p.ctx, x.kind, x.node)
		x.comp = c
		p.mu.Unlock()
	}
}

// live is one life: run, then wait for what it started. A goroutine that a kill point ended does not return from run.
func (p *parts) live(x *part, c *lab.Component) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("killed at a point")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
			result <- err
		}()
		err = x.run(c.Context(), c)
	}()
	err := <-result
	c.Stop()
	return err
}

// kill ends a part's life at once and waits until nothing of it runs any more.
func (p *parts) kill(name string) error { return p.end(name, (*lab.Component).Kill) }

// stop ends a part's life in order and waits.
func (p *parts) stop(name string) error {
	return p.end(name, func(c *lab.Component) { go c.Stop() })
}

func (p *parts) end(name string, how func(*lab.Component)) error {
	p.mu.Lock()
	x, err := p.find(name)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	x.want = false
	c, done := x.comp, x.done
	p.mu.Unlock()
	if c != nil {
		how(c)
	}
	if done != nil {
		<-done
	}
	return nil
}

// up tells which parts have a life at the moment.
func (p *parts) up() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]bool{}
	for _, x := range p.list {
		out[x.name] = x.comp != nil
	}
	return out
}

// stopAll ends all parts, the last started first.
func (p *parts) stopAll() {
	names := p.names()
	slices.Reverse(names)
	for _, n := range names {
		p.stop(n)
	}
}
