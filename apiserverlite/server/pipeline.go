package server

import (
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var gvrEmpty schema.GroupResource

// recovered sets the headers of every answer and turns a panic into a Status.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			switch v {
			case nil:
			case http.ErrAbortHandler:
				panic(v)
			default:
				s.log.Error().Interface("panic", v).Str("method", r.Method).Str("path", r.URL.Path).Bytes("stack", debug.Stack()).Msg("request panicked")
				s.fail(w, r, output{}, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
					"This request caused apiserver to panic. Look in the logs for details."))
			}
		}()
		h := w.Header()
		h.Set("Audit-Id", auditID(r))
		h.Set("Cache-Control", "no-cache, private")
		next.ServeHTTP(w, r)
	})
}

func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 && !strings.ContainsAny(id, "\r\n") {
		return id
	}
	return uuid.NewString()
}

func (s *Server) authenticate(r *http.Request) (User, bool) {
	if s.cfg.Authenticate == nil {
		return User{Name: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"}}, true
	}
	return s.cfg.Authenticate(r)
}

func unauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

// open serves without asking who it is.
func (s *Server) open(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, outputFor(r), err)
		}
	}
}

// plain serves authenticated requests that are not about a resource.
func (s *Server) plain(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return s.open(func(w http.ResponseWriter, r *http.Request) error {
		u, err := s.identify(r)
		if err != nil {
			return err
		}
		if err := s.permitPath(u, strings.ToLower(r.Method), r.URL.Path); err != nil {
			return err
		}
		return h(w, r)
	})
}

// guard is plain for a foreign handler.
func (s *Server) guard(h http.Handler) http.Handler {
	return s.plain(func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	})
}

func (s *Server) notFound(http.ResponseWriter, *http.Request) error { return errNoPage }
