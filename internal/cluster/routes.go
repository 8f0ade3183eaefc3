package cluster

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// routes puts every box on the one listener.
func (c *Cluster) routes() http.Handler {
	apiHandler := c.api.Handler()
	r := chi.NewRouter()
	for _, p := range []string{"/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/.well-known", "/openid"} {
		r.Handle(p, apiHandler)
		r.Handle(p+"/*", apiHandler)
	}
	r.Handle("/version", apiHandler)
	var cloud http.Handler = http.HandlerFunc(noCloud)
	if c.cloud != nil {
		cloud = c.cloud
	}
	for _, p := range []string{"/v2", "/metadata"} {
		r.Handle(p, cloud)
		r.Handle(p+"/*", cloud)
	}
	r.Mount("/drydock/v1", c.control())
	r.Mount("/lab/v1", c.labNodes())
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		// Browsers get the dashboard; API clients, which authenticate, the API's own answer for unknown paths.
		if r.Header.Get("Authorization") != "" && !strings.Contains(r.Header.Get("Accept"), "text/html") {
			apiHandler.ServeHTTP(w, r)
			return
		}
		c.web.ServeHTTP(w, r)
	})
	return guard(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.IsAbs() && req.URL.Host == "169.254.169.254" {
			cloud.ServeHTTP(w, req)
			return
		}
		r.ServeHTTP(w, req)
	}))
}

func noCloud(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this cluster serves the Kubernetes API only: it was started with --api-only", http.StatusNotFound)
}

// control is what the command line asks of a running cluster.
func (c *Cluster) control() http.Handler {
	r := chi.NewRouter()
	r.Use(c.ownerOnly)
	r.Get("/status", func(w http.ResponseWriter, req *http.Request) { answer(w, c.Status(req.Context())) })
	r.Get("/check", func(w http.ResponseWriter, req *http.Request) {
		problems, err := c.Check(req.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, problems)
	})
	r.Get("/account", c.serveAccount)
	return r
}

// ownerOnly refuses requests without the owner's token.
func (c *Cluster) ownerOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !c.auth.isOwner(req) {
			http.Error(w, "this needs the owner's token; it is in the file \"token\" of the state directory", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
