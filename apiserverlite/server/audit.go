package server

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditEvent is audit.k8s.io/v1 Event at the level Metadata: who did what to which object, and how it
// ended. Bodies are not in it, so neither are secrets.
type auditEvent struct {
	metav1.TypeMeta `json:",inline"`

	Level                    string                     `json:"level"`
	AuditID                  string                     `json:"auditID"`
	Stage                    string                     `json:"stage"`
	RequestURI               string                     `json:"requestURI"`
	Verb                     string                     `json:"verb"`
	User                     authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser         *authenticationv1.UserInfo `json:"impersonatedUser,omitempty"`
	SourceIPs                []string                   `json:"sourceIPs,omitempty"`
	UserAgent                string                     `json:"userAgent,omitempty"`
	ObjectRef                *auditRef                  `json:"objectRef,omitempty"`
	ResponseStatus           auditStatus                `json:"responseStatus"`
	RequestReceivedTimestamp metav1.MicroTime           `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime           `json:"stageTimestamp"`
}

type auditRef struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

type auditStatus struct {
	Code int `json:"code"`
}

// auditLog writes lines, each whole. An error of the writer is logged once and does not hold up requests.
type auditLog struct {
	mu     sync.Mutex
	w      io.Writer // guarded by mu
	failed bool      // guarded by mu
}

func (l *auditLog) write(s *Server, e *auditEvent) {
	b, err := json.Marshal(e)
	if err != nil {
		return // cannot be: strings and numbers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.w.Write(append(b, '\n')); err != nil && !l.failed {
		l.failed = true
		s.log.Error().Err(err).Msg("the audit log cannot be written; requests go on without it")
	}
}

// audited records each request once its answer has ended; a watch also when it begins.
func (s *Server) audited(next http.Handler) http.Handler {
	out := &auditLog{w: s.cfg.Audit}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := s.auditEvent(r)
		rec := &statusRecorder{ResponseWriter: w}
		if e.Verb == "watch" {
			rec.began = func() { out.write(s, e.at(s, "ResponseStarted", rec.code)) }
		}
		defer func() {
			if v := recover(); v != nil { // the answer was broken off: there is no code
				out.write(s, e.at(s, "Panic", rec.code))
				panic(v)
			}
			out.write(s, e.at(s, "ResponseComplete", rec.code))
		}()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) auditEvent(r *http.Request) *auditEvent {
	if r.Header.Get("Audit-Id") == "" {
		r.Header.Set("Audit-Id", auditID(r)) // the answer's and the record's
	}
	e := &auditEvent{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, Level: "Metadata", AuditID: auditID(r),
		RequestURI: r.RequestURI, Verb: strings.ToLower(r.Method), UserAgent: r.UserAgent(), RequestReceivedTimestamp: metav1.NewMicroTime(s.wall.Now())}
	if u, ok := s.authenticate(r); ok {
		e.User = u.info()
		if as, err := s.impersonated(u, r.Header); err == nil && as.Name != u.Name {
			info := as.info()
			e.ImpersonatedUser = &info
		}
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		e.SourceIPs = []string{host}
	}
	if in, ok := parse(r); ok && in.resourceReq {
		e.Verb = in.verb
		e.ObjectRef = &auditRef{Resource: in.resource, Namespace: in.namespace, Name: in.name, APIGroup: in.group, APIVersion: in.version, Subresource: in.subresource}
	}
	return e
}

// at is the event in a stage.
func (e *auditEvent) at(s *Server, stage string, code int) *auditEvent {
	o := *e
	o.Stage, o.ResponseStatus.Code, o.StageTimestamp = stage, code, metav1.NewMicroTime(s.wall.Now())
	return &o
}

// statusRecorder remembers the code of an answer.
type statusRecorder struct {
	http.ResponseWriter
	code  int
	began func() // called once, with the code known
}

func (r *statusRecorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
		if r.began != nil {
			r.began()
		}
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *statusRecorder) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets an http.ResponseController reach what is below.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
