// Package api speaks the HTTP of the cloud in package fakecloud: the DigitalOcean
// API v2 for block storage under /v2, and the droplet metadata service under
// /metadata/v1.
//
// Promises. Paths, statuses, bodies, pages and error texts are the real API's as
// far as they are known, so that its own clients cannot tell the difference. What
// is unknown answers 404 in the API's own shape. Every answer carries a request id
// and the rate-limit headers.
//
// Who is asking. A /v2 request needs the bearer token. A metadata request needs
// none; its droplet is the user of a proxy request to 169.254.169.254, or the
// X-Drydock-Droplet header, or the configured default.
//
// Faults. Each request is a call of kind cloud to the lab's rules: Op is the method
// and the route's pattern, Component and Node come from the user agent, Volume is the
// volume's name. A fail rule's code is an HTTP status or one of the words errored (the
// action ends errored), 422-pending and 403-capacity. Late-ok answers 504, lost
// drops the connection, both after the work.
//
// Ours. Under /v2/drydock lies what the real API does not have: settings, the whole
// state, the request log, and the extensions that package fakecloud lists. A GET of an action with the header "Prefer: wait=10" answers when the action
// is no longer in progress, after ten seconds at the latest; the real cloud ignores it.
package api

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"drydock.dev/drydock/fakecloud"
)

// Config of New.
type Config struct {
	// Token is the bearer token that /v2 takes. Empty takes none.
	Token string
	// Droplet answers metadata requests that do not say whose they are: name or id.
	Droplet string
	// OnRequest, if set, is told of every request after its answer.
	OnRequest func(Request)
	// Requests keeps the request log; without one, the handler makes its own.
	Requests *Log
	Log      zerolog.Logger
}

// Request is an entry of the request log.
type Request struct {
	Seq      int64 // of the log, from 0
	ID       string
	Time     time.Time
	Method   string
	Path     string // with the query
	Route    string // the pattern: /v2/volumes/{id}
	Status   int    // 0 if the connection was dropped
	Caller   string // component, with its node: kubelet/n1
	Volume   string // its name, where the request is about one
	Fault    string // id of the rule that was applied
	Duration time.Duration
}

type server struct {
	cloud *fakecloud.Cloud
	cfg   Config
	rates *rates
}

// handler answers one request. A nil body is an answer without one.
type handler func(*call) (status int, body any, err error)

// New returns the handler of /v2/ and /metadata/v1. It keeps nothing that would need closing.
func New(cloud *fakecloud.Cloud, cfg Config) http.Handler {
	if cfg.Requests == nil {
		cfg.Requests = &Log{}
	}
	s := &server{cloud: cloud, cfg: cfg, rates: newRates()}
	r := chi.NewRouter()
	for _, e := range append(s.routes(), s.extensions()...) {
		r.Method(e.method, e.pattern, s.serve(e.pattern, e.access, e.h))
	}
	unknown := s.serve("", tokenAccess, func(*call) (int, any, error) {
		return 0, nil, &fakecloud.Error{Kind: fakecloud.NotFound, Text: fakecloud.TextNotFound}
	})
	r.NotFound(unknown)
	r.MethodNotAllowed(unknown)
	return r
}

type access int

const (
	tokenAccess access = iota // the bearer token
	openAccess                // whoever reaches the port: the metadata service
	ownAccess                 // the token, without a count: to look on costs no requests
)

type route struct {
	method, pattern string
	access          access
	h               handler
}

func (s *server) routes() []route {
	all := []route{
		{"GET", "/v2/account", 0, s.getAccount},
		{"GET", "/v2/regions", 0, s.listRegions},
		{"GET", "/v2/sizes", 0, s.listSizes},

		{"GET", "/v2/droplets", 0, s.listDroplets},
		{"POST", "/v2/droplets", 0, s.createDroplet},
		{"DELETE", "/v2/droplets", 0, s.deleteTaggedDroplets},
		{"GET", "/v2/droplets/{id}", 0, s.getDroplet},
		{"DELETE", "/v2/droplets/{id}", 0, s.deleteDroplet},
		{"GET", "/v2/droplets/{id}/actions", 0, s.listDropletActions},
		{"POST", "/v2/droplets/{id}/actions", 0, s.startDropletAction},
		{"GET", "/v2/droplets/{id}/actions/{action}", 0, s.getDropletAction},

		{"GET", "/v2/volumes", 0, s.listVolumes},
		{"POST", "/v2/volumes", 0, s.createVolume},
		{"DELETE", "/v2/volumes", 0, s.deleteVolumeByName},
		{"GET", "/v2/volumes/{id}", 0, s.getVolume},
		{"DELETE", "/v2/volumes/{id}", 0, s.deleteVolume},
		{"POST", "/v2/volumes/actions", 0, s.startActionByName},
		{"GET", "/v2/volumes/{id}/actions", 0, s.listVolumeActions},
		{"POST", "/v2/volumes/{id}/actions", 0, s.startAction},
		{"GET", "/v2/volumes/{id}/actions/{action}", 0, s.getVolumeAction},
		{"GET", "/v2/actions", 0, s.listActions},
		{"GET", "/v2/actions/{action}", 0, s.getAction},

		{"GET", "/v2/volumes/{id}/snapshots", 0, s.listVolumeSnapshots},
		{"POST", "/v2/volumes/{id}/snapshots", 0, s.createSnapshot},
		{"GET", "/v2/volumes/snapshots/{id}", 0, s.getSnapshot},
		{"DELETE", "/v2/volumes/snapshots/{id}", 0, s.deleteSnapshot},
		{"GET", "/v2/snapshots", 0, s.listSnapshots},
		{"GET", "/v2/snapshots/{id}", 0, s.getSnapshot},
		{"DELETE", "/v2/snapshots/{id}", 0, s.deleteSnapshot},

		{"GET", "/v2/tags", 0, s.listTags},
		{"POST", "/v2/tags", 0, s.createTag},
		{"GET", "/v2/tags/{tag}", 0, s.getTag},
		{"DELETE", "/v2/tags/{tag}", 0, s.deleteTag},
		{"POST", "/v2/tags/{tag}/resources", 0, s.tagResources},
		{"DELETE", "/v2/tags/{tag}/resources", 0, s.untagResources},
	}
	for _, pattern := range []string{"/metadata/v1", "/metadata/v1.json", "/metadata/v1/*"} {
		all = append(all, route{"GET", pattern, openAccess, s.metadata})
	}
	return all
}
