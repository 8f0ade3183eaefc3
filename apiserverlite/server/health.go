package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// Kubernetes is the release whose API this server speaks.
const Kubernetes = "v1.37.2"

// version answers with build metadata, not a pre-release suffix: Helm's and others' version constraints hold.
func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	v := s.cfg.Version
	if v == "" {
		v = "0"
	}
	info := version.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36",
		GitVersion: Kubernetes + "+drydock." + strings.TrimPrefix(v, "v"), GitTreeState: "clean", GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	s.send(w, r, http.StatusOK, typeJSON, b)
	return nil
}

type healthCheck struct {
	name  string
	check func() error
}

func (s *Server) healthChecks() []healthCheck {
	return []healthCheck{
		{"ping", func() error { return nil }},
		{"storage", s.store.Healthy},
		{"shutdown", func() error {
			if s.life.Err() != nil {
				return errors.New("the server is shutting down")
			}
			return nil
		}},
	}
}

// health serves /healthz, /livez and /readyz, each check by name below it, ?verbose and ?exclude=name.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	kind, one, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	_, verbose := q["verbose"]
	var text strings.Builder
	failed, found := false, one == ""
	for _, c := range s.healthChecks() {
		switch {
		case one != "" && c.name != one, kind == "livez" && c.name == "shutdown":
			continue
		case slices.Contains(q["exclude"], c.name):
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
			continue
		}
		found = true
		if err := c.check(); err != nil {
			failed = true
			s.log.Warn().Err(err).Str("check", c.name).Msg("health check failed")
			fmt.Fprintf(&text, "[-]%s failed: reason withheld\n", c.name)
			continue
		}
		fmt.Fprintf(&text, "[+]%s ok\n", c.name)
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	switch {
	case !found:
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, "404 page not found")
	case failed:
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", text.String(), kind)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", text.String(), kind)
	case one == "":
		h.Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, "ok")
	default:
		fmt.Fprint(w, "ok")
	}
}

// paths lists what is served, as "kubectl get --raw /" shows it.
func (s *Server) paths(w http.ResponseWriter, r *http.Request) error {
	list := []string{"/api", "/api/v1", "/apis", "/healthz", "/healthz/ping", "/healthz/storage", "/livez", "/livez/ping", "/livez/storage",
		"/metrics", "/readyz", "/readyz/ping", "/readyz/shutdown", "/readyz/storage", "/version"}
	for _, g := range s.defined().discovery.groups {
		if g.Name == "" {
			continue
		}
		list = append(list, "/apis/"+g.Name)
		for _, v := range g.Versions {
			list = append(list, "/apis/"+v.GroupVersion)
		}
	}
	if s.openAPI() != nil {
		list = append(list, "/openapi/v2", "/openapi/v3")
	}
	slices.Sort(list)
	b, err := json.MarshalIndent(map[string][]string{"paths": list}, "", "  ")
	if err != nil {
		return err
	}
	s.send(w, r, http.StatusOK, typeJSON, b)
	return nil
}

// openAPI is the registry's handler of /openapi/*, or nil.
func (s *Server) openAPI() http.Handler {
	if r, ok := s.cfg.Registry.(interface{ OpenAPI() http.Handler }); ok {
		return r.OpenAPI()
	}
	return nil
}
