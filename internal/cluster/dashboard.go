package cluster

import (
	"context"
	"net/http"
	"sync/atomic"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/web"
)

// dashboard runs the web box. Each of its lives is a server of its own: pages of the one before take a new snapshot.
type dashboard struct {
	cfg web.Config
	now atomic.Pointer[web.Server] // nil before the first life; it stays after the last
}

func (d *dashboard) run(ctx context.Context, _ *lab.Component) error {
	s, err := web.New(d.cfg)
	if err != nil {
		return err
	}
	d.now.Store(s)
	return s.Run(ctx)
}

// ServeHTTP is http.Handler's.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := d.now.Load()
	if s == nil {
		http.Error(w, "the dashboard has not started yet", http.StatusServiceUnavailable)
		return
	}
	s.Handler().ServeHTTP(w, r)
}
