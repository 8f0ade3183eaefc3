package nodesim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/pluginmanager"
)

// usualRoot is the kubelet's directory on a real node, and in the view of a program that
// "drydock node exec" runs. Drivers name their sockets by it.
const usualRoot = "/var/lib/kubelet/"

// tap stands between the registrations and their handler. It finds a driver's socket where
// the driver says that it is in its own view of the node, and puts the lab's proxy before it, so
// that calls to anybody's driver are recorded and meet faults. A driver whose socket is a
// proxy's already is left as it is.
type tap struct {
	pluginmanager.Handler
	life *life

	mu      sync.Mutex
	proxies map[string]func() // guarded by mu: ends a driver's proxy and waits
}

// Validate is pluginmanager.Handler's.
func (t *tap) Validate(name, endpoint string, versions []string) error {
	return t.Handler.Validate(name, t.resolve(endpoint), versions)
}

// Register is pluginmanager.Handler's.
func (t *tap) Register(ctx context.Context, name, endpoint string, versions []string) error {
	endpoint = t.resolve(endpoint)
	if !t.life.c.Tap || slices.Contains(t.life.c.Tapped, endpoint) {
		return t.Handler.Register(ctx, name, endpoint, versions)
	}
	if name != filepath.Base(name) {
		return fmt.Errorf("tap driver %q: its name cannot be that of a socket; name it like csi.example.com", name)
	}
	listen := filepath.Join(t.life.c.Root, "run", name+".sock")
	if err := os.MkdirAll(filepath.Dir(listen), 0o755); err != nil {
		return fmt.Errorf("tap driver %s: %w", name, err)
	}
	t.end(name)
	p, err := lab.NewProxy(lab.ProxyConfig{Listen: listen, Target: endpoint, Lab: t.life.c.Lab, Caller: "kubelet", Node: t.life.c.Name, Log: t.life.log})
	if err != nil {
		return fmt.Errorf("tap driver %s: %w", name, err)
	}
	serving, cancel := context.WithCancel(t.life.ctx)
	done := make(chan struct{})
	t.life.workers.Go(func() {
		defer close(done)
		if err := p.Serve(serving); err != nil {
			t.life.log.Error().Err(err).Str("driver", name).Msg("the tap on a driver ended")
		}
	})
	t.mu.Lock()
	t.proxies[name] = func() { cancel(); <-done }
	t.mu.Unlock()
	if err := t.Handler.Register(ctx, name, listen, versions); err != nil {
		t.end(name)
		return err
	}
	return nil
}

// Deregister is pluginmanager.Handler's.
func (t *tap) Deregister(ctx context.Context, name, endpoint string) {
	t.Handler.Deregister(ctx, name, t.resolve(endpoint))
	t.end(name)
}

func (t *tap) end(name string) {
	t.mu.Lock()
	stop := t.proxies[name]
	delete(t.proxies, name)
	t.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// resolve is where this process finds a socket that a driver named.
func (t *tap) resolve(endpoint string) string {
	if rest, ok := strings.CutPrefix(endpoint, usualRoot); ok {
		return filepath.Join(t.life.layout.Root, rest)
	}
	return endpoint
}
