// Package web is the dashboard: one page, live over server-sent events.
//
// It reads what the other boxes publish, over their own interfaces: the Kubernetes
// API through client-go informers, and the lab's timeline. It writes nothing: no
// request changes the cluster.
//
// Delivery. A page takes a snapshot and then a stream that starts at the
// snapshot's revision. Every change has a revision; a client that was cut off goes
// on where it was, and one that can no longer do so is told to take a new snapshot.
// There is never a silent gap. Objects are whole, so replaying one twice is
// harmless; several changes of one object may be delivered as the latest of them.
// Log entries are not merged; those that are dropped are counted. A slow client
// never slows anybody else.
//
// Cost. Nothing runs while nothing changes, except a comment on each open stream
// every 15 s.
package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/lab"
)

// Config of New. Lab is required, and one of RESTConfig and Client.
type Config struct {
	// RESTConfig reaches the Kubernetes API.
	RESTConfig *rest.Config
	// Client replaces RESTConfig, for tests.
	Client kubernetes.Interface

	Lab *lab.Lab
	Log zerolog.Logger

	Version     string
	ClusterName string
	// Mode says what devices are: "loop: ..." or "sim: ...", with the reason after the colon.
	Mode string

	// Static replaces the embedded files, for working on the page. They are then not cached.
	Static fs.FS
}

// Server serves the dashboard of one cluster.
type Server struct {
	cfg    Config
	client kubernetes.Interface
	assets *assets
	hub    *hub
	synced chan struct{}      // closed by Run once the first snapshot is whole
	looks  chan chan struct{} // somebody begins to look; Run closes what came when all that it knows is published
	router http.Handler
}

// New makes a server. It opens nothing until Run.
func New(cfg Config) (*Server, error) {
	if cfg.Lab == nil {
		return nil, errors.New("make the dashboard: it needs a lab")
	}
	client := cfg.Client
	if client == nil {
		if cfg.RESTConfig == nil {
			return nil, errors.New("make the dashboard: it needs a way to the Kubernetes API")
		}
		c, err := kubernetes.NewForConfig(cfg.RESTConfig)
		if err != nil {
			return nil, fmt.Errorf("make the dashboard's client: %w", err)
		}
		client = c
	}
	a, err := loadAssets(cfg.Static)
	if err != nil {
		return nil, fmt.Errorf("load the dashboard's files: %w", err)
	}
	s := &Server{cfg: cfg, client: client, assets: a, hub: newHub(hubLimits{}), synced: make(chan struct{}), looks: make(chan chan struct{})}
	s.router = s.routes()
	return s, nil
}

// Handler serves the page, its files and its stream.
func (s *Server) Handler() http.Handler { return s.router }

// Run follows the cluster until ctx ends. It returns after its goroutines have ended
// and open streams have said goodbye, or a second after that for clients that take
// nothing. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.hub.drain(lastLimit)
	defer s.hub.close()
	m := newModel(s.cfg, s.hub)
	return s.follow(ctx, m)
}

func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(headers)
	r.Get("/ui/v1/snapshot", s.snapshot)
	r.Get("/ui/v1/events", s.events)
	r.Get("/a/{hash}/*", s.assets.file)
	r.Get("/favicon.ico", s.assets.icon)
	r.Get("/", s.assets.page)
	return r
}

// headers of every answer. The policy allows nothing from elsewhere and nothing inline.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}
