package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// labNodes is the laboratory's view of the nodes, for the owner:
//
//	GET  /lab/v1/nodes                   all nodes: power, kubelet, network, guests
//	POST /lab/v1/nodes/{node}/{operation} see Operations; slow takes ?delay=2s, skew ?by=-10m
//	POST /lab/v1/nodes/{node}/guests     a program stays on the node while this request lasts
func (c *Cluster) labNodes() http.Handler {
	r := chi.NewRouter()
	r.Use(c.ownerOnly)
	r.Get("/nodes", func(w http.ResponseWriter, _ *http.Request) {
		out := []MachineStatus{}
		for _, n := range c.NodeNames() {
			out = append(out, c.machines[n].status())
		}
		answer(w, out)
	})
	r.Post("/nodes/{node}/guests", func(w http.ResponseWriter, req *http.Request) {
		m, err := c.machine(chi.URLParam(req, "node"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		m.receive(w, req)
	})
	r.Post("/nodes/{node}/{operation}", func(w http.ResponseWriter, req *http.Request) {
		var by time.Duration
		if s := req.URL.Query().Get("delay"); s != "" {
			var err error
			if by, err = time.ParseDuration(s); err != nil || by <= 0 {
				http.Error(w, fmt.Sprintf("delay %q: write it as 500ms or 2s", s), http.StatusBadRequest)
				return
			}
		}
		if s := req.URL.Query().Get("by"); s != "" {
			var err error
			if by, err = time.ParseDuration(s); err != nil || by == 0 {
				http.Error(w, fmt.Sprintf("by %q: write it as 5m or -10m", s), http.StatusBadRequest)
				return
			}
		}
		node := chi.URLParam(req, "node")
		err := c.Operate(req.Context(), node, Operation(chi.URLParam(req, "operation")), by)
		switch {
		case err == nil:
			answer(w, c.machines[node].status())
		case errors.Is(err, errNoNode), errors.Is(err, errNoOperation):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, errOff), errors.Is(err, errRefused):
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return r
}
