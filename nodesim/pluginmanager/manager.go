// Package pluginmanager makes drivers known to a node: it watches the directory in
// which they announce themselves, speaks the kubelet's registration protocol with
// each socket, and writes what they say about the node to the Node and CSINode
// objects.
//
// Ordering. For one socket, deregistration comes before a new registration. A socket
// that was made anew is a new registration, even under the same name. A registration
// that fails is tried again after a growing pause, while its socket is there.
//
// Blocking. Run returns when the watcher and all registrations have ended. It does
// not deregister at the end: a kubelet that stops leaves its drivers on record.
package pluginmanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/lab"
)

// Handler acts on the registrations of one type of plugin.
type Handler interface {
	// Validate refuses a plugin before anything is recorded.
	Validate(name, endpoint string, versions []string) error
	// Register records a plugin. After an error nothing is recorded.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister forgets a plugin.
	Deregister(ctx context.Context, name, endpoint string)
}

// Config of a Manager.
type Config struct {
	// Dir is plugins_registry; it is made if it is not there.
	Dir string
	// Handlers by type: CSIPlugin.
	Handlers  map[string]Handler
	Lab       *lab.Lab
	Component *lab.Component
	Log       zerolog.Logger
}

// Manager watches one directory and what is below it.
type Manager struct {
	c  Config
	wg sync.WaitGroup
	// connect is dial, unless a test has a plugin without a socket.
	connect func(ctx context.Context, path string) (registration.RegistrationClient, io.Closer, error)

	mu      sync.Mutex
	sockets map[string]*socket // guarded by mu
}

// socket is one path. Its goroutine lives while the socket is there or registered.
//
//	absent --create--> wanted --register ok--> registered --remove or create--> deregister
//	                     ^---- pause <-- error
type socket struct {
	path       string
	generation int  // guarded by Manager.mu; 0 once the socket is gone
	registered bool // guarded by Manager.mu
	wake       chan struct{}
}

// New returns a Manager.
func New(c Config) *Manager {
	m := &Manager{c: c, sockets: map[string]*socket{}}
	m.connect = m.dial
	return m
}

// Run watches until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	defer m.wg.Wait()
	if err := os.MkdirAll(m.c.Dir, 0o755); err != nil {
		return fmt.Errorf("watch for plugins: %w", err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for plugins: %w", err)
	}
	defer w.Close()
	generation := 0
	created := func(path string) {
		generation++
		m.set(ctx, path, generation)
	}
	if err := m.walk(w, m.c.Dir, created); err != nil {
		return fmt.Errorf("watch for plugins: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			m.c.Log.Error().Err(err).Msg("watch for plugins")
		case e := <-w.Events:
			switch {
			case e.Has(fsnotify.Create):
				if err := m.walk(w, e.Name, created); err != nil && !errors.Is(err, fs.ErrNotExist) {
					m.c.Log.Error().Err(err).Str("path", e.Name).Msg("look at a new plugin")
				}
			case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
				m.set(ctx, e.Name, 0)
			}
		}
	}
}

// walk watches a directory and all below it, and tells of the sockets. Names that begin with a dot are passed over.
func (m *Manager) walk(w *fsnotify.Watcher, path string, created func(string)) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if strings.HasPrefix(fi.Name(), ".") && path != m.c.Dir {
		return nil
	}
	if fi.Mode()&fs.ModeSocket != 0 {
		created(path)
		return nil
	}
	if !fi.IsDir() {
		return nil
	}
	if err := w.Add(path); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.walk(w, filepath.Join(path, e.Name()), created); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// set records that a socket is there in a new generation, or gone.
func (m *Manager) set(ctx context.Context, path string, generation int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sockets[path]
	if s == nil {
		if generation == 0 {
			return
		}
		s = &socket{path: path, wake: make(chan struct{}, 1)}
		m.sockets[path] = s
		m.wg.Go(func() { m.serve(ctx, s) })
	}
	s.generation = generation
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// current returns the socket's generation, whose wake has done its work then, and forgets
// the socket if it is gone and not registered.
func (m *Manager) current(s *socket, registered bool) (generation int, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-s.wake: // or it would cut the next pause short
	default:
	}
	if s.generation == 0 && !registered {
		delete(m.sockets, s.path)
		return 0, true
	}
	return s.generation, false
}

// The pauses after failed registrations.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 2*time.Minute + 2*time.Second
)

// serve keeps one socket's registration as it should be.
func (m *Manager) serve(ctx context.Context, s *socket) {
	var have *plugin
	var pause time.Duration
	for ctx.Err() == nil {
		generation, over := m.current(s, have != nil)
		if over {
			return
		}
		if have != nil && have.generation != generation {
			m.mark(s, false)
			have.handler.Deregister(ctx, have.name, have.endpoint)
			m.c.Log.Info().Str("plugin", have.name).Msg("plugin deregistered")
			have = nil
			continue
		}
		if have != nil || generation == 0 {
			pause = 0
			m.sleep(ctx, s, 0)
			continue
		}
		p, err := m.register(ctx, s)
		if err == nil {
			p.generation, have = generation, p
			m.c.Log.Info().Str("plugin", p.name).Str("endpoint", p.endpoint).Msg("plugin registered")
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause = min(max(pause*2, firstPause), maxPause)
		m.c.Log.Warn().Err(err).Str("socket", s.path).Dur("retryAfter", pause).Msg("register plugin")
		m.sleep(ctx, s, pause)
	}
}

func (m *Manager) sleep(ctx context.Context, s *socket, d time.Duration) {
	var after <-chan time.Time
	if d > 0 {
		t := m.c.Lab.Clock.NewTimer(d)
		defer t.Stop()
		after = t.C()
	}
	select {
	case <-ctx.Done():
	case <-s.wake:
	case <-after:
	}
}

// plugin is a registration that succeeded.
type plugin struct {
	name, endpoint string
	handler        Handler
	generation     int
}

// mark records whether a socket's plugin is registered.
func (m *Manager) mark(s *socket, registered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.registered = registered
}

// Socket is a path in which a plugin announced itself.
type Socket struct {
	Path       string
	There      bool // so it is to be registered
	Registered bool // it is, or its handler is just asked
}

// Sockets lists those that are there or registered.
func (m *Manager) Sockets() []Socket {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Socket
	for _, s := range m.sockets {
		out = append(out, Socket{s.path, s.generation != 0, s.registered})
	}
	return out
}

// register runs the protocol with one socket, as its client.
func (m *Manager) register(ctx context.Context, s *socket) (*plugin, error) {
	path := s.path
	client, conn, err := m.connect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("RegisterPlugin error -- dial failed at socket %s, err: %w", path, err)
	}
	defer conn.Close()
	info, err := m.info(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s, err: %w", path, err)
	}
	p := &plugin{name: info.Name, endpoint: info.Endpoint, handler: m.c.Handlers[info.Type]}
	if p.endpoint == "" {
		p.endpoint = path
	}
	if p.handler == nil {
		return nil, m.refuse(ctx, client, fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path))
	}
	if err := p.handler.Validate(p.name, p.endpoint, info.SupportedVersions); err != nil {
		return nil, m.refuse(ctx, client, fmt.Errorf("plugin validation failed with err: %w", err))
	}
	m.mark(s, true) // as upstream counts it
	if err := p.handler.Register(ctx, p.name, p.endpoint, info.SupportedVersions); err != nil {
		m.mark(s, false)
		return nil, m.refuse(ctx, client, fmt.Errorf("plugin registration failed with err: %w", err))
	}
	if err := m.notify(ctx, client, nil); err != nil {
		m.mark(s, false)
		p.handler.Deregister(ctx, p.name, p.endpoint)
		return nil, fmt.Errorf("RegisterPlugin error -- failed to send registration status at socket %s, err: %w", path, err)
	}
	return p, nil
}
