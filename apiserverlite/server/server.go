// Package server is the HTTP face of the API: it turns requests into reads of the
// store's memory and into writes that pass a kind's strategy and admission, and gives
// answers that a Kubernetes client cannot tell from upstream's.
//
//	request -> authentication -> faults of the lab -> verb -> strategy, admission -> storage
//	                                                    \-> answer in JSON, YAML, protobuf or CBOR
//
// Promises. A write is answered after it is committed. An answer's bytes come from a
// cache that every reader and watcher of the same object state shares. A watch gets every
// event of its selection once and in order, or it ends; a client that does not read holds up
// nobody.
//
// What it does not do: decide what a kind's fields mean (package registry), clean up
// after deleted owners and namespaces (package controllers), listen (package cluster).
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
	"drydock.dev/drydock/internal/lab"
)

// Registry is what the server needs of package registry. What else a registry offers is
// found by the small interfaces beside the code that uses it.
type Registry interface {
	Resources() []*registry.Resource
	Admission() registry.Admission
}

// User is who makes a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Config of New.
type Config struct {
	Store    *storage.Store
	Registry Registry
	// Authenticate tells who makes a request; false answers 401. Nil lets everybody in as an administrator.
	Authenticate func(*http.Request) (User, bool)
	// Authorization is how it decides what they may do.
	Authorization Authorization
	// TrackComponents has the writes of our own components recorded in managedFields, too.
	TrackComponents bool
	// Audit gets a line of JSON for each request that was answered; nil wants none.
	Audit io.Writer
	Lab   *lab.Lab
	Log   zerolog.Logger
	// Version of drydock, for /version.
	Version string
	// Scheme knows every kind; nil is client-go's.
	Scheme *runtime.Scheme
	// Address is what legacy discovery tells clients, host:port. It may be empty.
	Address string
	// Kubelet finds what a node's kubelet serves, for nodes/NAME/proxy; ErrNoKubelet if it does not answer. Nil: there are none.
	Kubelet func(node string) (http.Handler, error)
	// WatchQueue bounds the events that wait for one watching client; zero is the store's default.
	WatchQueue int
}

// Server answers API requests. One goroutine of its own removes old events; it ends with Close.
type Server struct {
	cfg    Config
	store  *storage.Store
	codecs *codecs
	clock  clock.PassiveClock                  // stamps objects
	wall   clock.WithTickerAndDelayedExecution // times connections and tokens, which are shared with clients
	log    zerolog.Logger

	resources   []*resource
	byGVR       map[schema.GroupVersionResource]*resource
	byStorage   map[schema.GroupResource]*resource // the version whose objects are stored
	reader      reader
	admission   registry.Admission
	tracker     *tracker
	base        *discovery // of the built-in kinds
	definitions definitions
	quotaTurns  turns
	zippers     zippers
	tokens      *tokens
	inFlight    *inFlight
	handler     http.Handler

	life    context.Context // ends with Close: so does every stream, and every request that waits
	end     context.CancelFunc
	streams sync.WaitGroup
	closing sync.RWMutex // held for reading while a stream registers
}

// New wires a server and creates the objects that every cluster has, as far as they are missing.
func New(cfg Config) (_ *Server, err error) {
	if cfg.Store == nil || cfg.Registry == nil || cfg.Lab == nil {
		return nil, errors.New("new API server: store, registry and lab are needed")
	}
	if cfg.Scheme == nil {
		cfg.Scheme = scheme.Scheme
	}
	boundCopies()
	s := &Server{cfg: cfg, store: cfg.Store, codecs: newCodecs(cfg.Scheme), inFlight: newInFlight(), clock: cfg.Lab.Clock, wall: clock.RealClock{}, log: cfg.Log,
		byGVR: map[schema.GroupVersionResource]*resource{}, byStorage: map[schema.GroupResource]*resource{}}
	s.life, s.end = context.WithCancel(context.Background())
	for _, r := range cfg.Registry.Resources() {
		if err := s.add(r); err != nil {
			return nil, fmt.Errorf("new API server: resource %s: %w", r.GVR, err)
		}
	}
	s.reader = reader{s}
	if s.admission = cfg.Registry.Admission(); s.admission == nil {
		s.admission = noAdmission{}
	}
	s.admission = settling{s.admission, s}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	s.tracker = newTracker(s, cfg.Registry)
	if s.tokens, err = newTokens(s.store, s.wall); err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	s.addQuestions()
	s.base = newDiscovery(s.resources)
	s.codecs.coerce = s.coerce
	if err := s.bootstrap(context.Background()); err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	if err := s.bootstrapRoles(context.Background()); err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	s.afterWrite(context.Background()) // what an earlier life has left to do
	s.handler = s.routes()
	if _, ok := s.byStorage[eventsResource]; ok {
		s.streams.Go(s.expire)
	}
	return s, nil
}

// Handler serves /api, /apis, /openapi, /version, /healthz, /livez, /readyz and, for GET /, the list of paths.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends every watch, waits until their handlers have returned, and ends what the server runs. The store stays open.
func (s *Server) Close() {
	s.closing.Lock()
	s.end()
	s.closing.Unlock()
	s.streams.Wait()
}

func (s *Server) routes() http.Handler {
	m := chi.NewRouter()
	m.NotFound(s.plain(s.notFound))
	m.MethodNotAllowed(s.plain(s.strange))
	m.Get("/", s.plain(s.paths))
	m.HandleFunc("/version", s.open(onlyGet(s.version)))
	m.HandleFunc("/version/", s.open(onlyGet(s.version)))
	for _, p := range []string{"/healthz", "/livez", "/readyz"} {
		m.HandleFunc(p, s.health)
		m.HandleFunc(p+"/", s.health)
		m.HandleFunc(p+"/*", s.health)
	}
	if s.openAPI() != nil {
		m.Handle("/openapi/*", s.guard(http.HandlerFunc(s.describe)))
	}
	m.HandleFunc("/api", s.plain(onlyGet(s.coreVersions)))
	m.HandleFunc("/api/", s.plain(onlyGet(s.coreVersions)))
	m.HandleFunc("/apis", s.plain(onlyGet(s.groupList)))
	m.HandleFunc("/apis/", s.plain(onlyGet(s.groupList)))
	m.HandleFunc("/api/*", s.serveAPI)
	m.HandleFunc("/apis/*", s.serveAPI)
	if s.cfg.Audit != nil {
		return s.audited(s.recovered(m))
	}
	return s.recovered(m)
}

// noAdmission is used when the registry has none.
type noAdmission struct{}

func (noAdmission) Mutate(context.Context, registry.Attributes) error   { return nil }
func (noAdmission) Validate(context.Context, registry.Attributes) error { return nil }

// stream registers a long answer, so that Close can wait for it. It is false once the server is closing.
func (s *Server) stream() bool {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.life.Err() != nil {
		return false
	}
	s.streams.Add(1)
	return true
}

// Time limits of requests that are not watches.
const (
	requestLimit = 60 * time.Second
	writeLimit   = 34 * time.Second
)
