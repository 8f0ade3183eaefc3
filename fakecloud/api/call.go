package api

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

// call is one request on its way through.
type call struct {
	s       *server
	r       *http.Request
	header  http.Header // of the answer
	body    []byte
	failure string // the action that it starts shall end errored with this text
}

// maxBody is above every body that the API knows; user_data may have 64 KiB.
const maxBody = 1 << 20

// serve wraps a handler with everything that is the same for all: identity, limits,
// faults, log and the form of the answer.
func (s *server) serve(pattern string, who access, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		clock := s.cloud.Lab().Clock
		component, node := caller(r.UserAgent())
		c := &call{s: s, r: r, header: w.Header()}
		entry := Request{ID: uuid.NewString(), Time: clock.Now(), Method: r.Method, Path: r.URL.RequestURI(), Route: pattern, Caller: component}
		if node != "" {
			entry.Caller += "/" + node
		}
		w.Header().Set("x-request-id", entry.ID)
		defer func() {
			entry.Duration = clock.Since(entry.Time)
			if !strings.HasPrefix(pattern, ours+"/requests") { // reading the log must not fill it
				s.cfg.Requests.add(entry)
			}
			if s.cfg.OnRequest != nil {
				s.cfg.OnRequest(entry)
			}
		}()
		status, body, err := s.admit(w.Header(), c, who)
		if err == nil {
			entry.Volume = c.volumeName()
			status, body, err = s.work(c, &entry, component, node, h)
		}
		if err != nil {
			status, body = s.failure(err, entry.ID, w.Header())
		}
		if status == dropConnection {
			panic(http.ErrAbortHandler)
		}
		entry.Status = status
		s.answer(w, status, body)
	}
}

// dropConnection as a status drops the answer.
const dropConnection = -1

// admit checks the token and the rate limits and reads the body.
func (s *server) admit(h http.Header, c *call, who access) (int, any, error) {
	if who != openAccess {
		token, ok := strings.CutPrefix(c.r.Header.Get("Authorization"), "Bearer ")
		if !ok || s.cfg.Token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.cfg.Token)) == 0 {
			return 0, nil, &statusError{status: http.StatusUnauthorized}
		}
		if who == ownAccess {
			return s.readBody(c)
		}
		if err := s.rates.count(token, s.cloud.Lab().Clock.Now(), s.cloud.Settings().Limits.Rate, h); err != nil {
			return 0, nil, err
		}
	}
	return s.readBody(c)
}

func (s *server) readBody(c *call) (int, any, error) {
	body, err := io.ReadAll(io.LimitReader(c.r.Body, maxBody+1))
	switch {
	case err != nil:
		return 0, nil, badBody()
	case len(body) > maxBody:
		return 0, nil, &statusError{status: http.StatusRequestEntityTooLarge, text: "the request body is larger than 1 MiB"}
	}
	c.body = body
	return 0, nil, nil
}

// work runs the handler under the lab's rules, and under a span if it changes something.
func (s *server) work(c *call, entry *Request, component, node string, h handler) (status int, body any, err error) {
	op := c.r.Method + " " + entry.Route
	if entry.Route == "" {
		op = c.r.Method + " " + c.r.URL.Path
	}
	if c.r.Method != http.MethodGet {
		ctx, span := s.cloud.Lab().Timeline.Start(c.r.Context(), lab.SpanOptions{
			Op: op, Volume: entry.Volume, Component: "cloud", Node: node, Attrs: map[string]string{"caller": entry.Caller}})
		c.r = c.r.WithContext(ctx)
		defer func() {
			code, e := status, err
			if e != nil {
				code, _ = s.failure(e, "", http.Header{})
			}
			span.End(statusText(code), e)
		}()
	}
	if exempt(entry.Route) {
		if status, body, err = h(c); err == nil && status == 0 {
			status = http.StatusOK
		}
		return status, body, err
	}
	var own error // the handler's, which may have met a fault of another kind
	err = s.cloud.Lab().Faults.Do(c.r.Context(), lab.Call{Component: component, Node: node, Kind: lab.KindCloud, Op: op, Volume: entry.Volume},
		func(ctx ctx) error {
			c.r = c.r.WithContext(ctx)
			status, body, own = h(c)
			return own
		})
	if fault := lab.AsError(err); fault != nil && own == nil {
		entry.Fault = fault.Rule
		c.header.Set("x-drydock-fault", fault.Rule)
		status, body, err = s.faulted(c, fault, h)
	}
	if err == nil && status == 0 {
		status = http.StatusOK
	}
	// A killed cloud answers nothing, and neither does one whose caller has gone.
	if s.cloud.Component().Killed() || err != nil && c.r.Context().Err() != nil {
		return dropConnection, nil, nil
	}
	return status, body, err
}

// caller reads who asks from the user agent: drydock-kubelet/n1 is component kubelet on node n1.
func caller(agent string) (component, node string) {
	first, _, _ := strings.Cut(agent, " ")
	name, rest, _ := strings.Cut(first, "/")
	if own, ok := strings.CutPrefix(name, "drydock-"); ok {
		return own, rest
	}
	return name, ""
}

// volumeName finds out which volume a request is about, for faults and spans.
func (c *call) volumeName() string {
	path := c.r.URL.Path
	if own, ok := strings.CutPrefix(path, ours); ok {
		path = "/v2" + own
	}
	if !strings.HasPrefix(path, "/v2/volumes") {
		return ""
	}
	if id := c.param("id"); id != "" && !strings.HasPrefix(path, "/v2/volumes/snapshots/") {
		if v, err := c.s.cloud.Volume(fakecloud.VolumeID(id)); err == nil {
			return v.Name
		}
		return id
	}
	var named struct {
		Name   string `json:"name"`
		Volume string `json:"volume_name"`
	}
	if c.r.Method == http.MethodGet || json.Unmarshal(c.body, &named) != nil {
		return c.nameParam()
	}
	return named.Name + named.Volume
}

func (c *call) param(name string) string { return chi.URLParam(c.r, name) }

// decode reads the body into v. Fields that v does not know are ignored.
func (c *call) decode(v any) error {
	if err := json.Unmarshal(c.body, v); err != nil {
		return badBody()
	}
	return nil
}

func badBody() error {
	return &statusError{status: http.StatusBadRequest, text: "error parsing request body"}
}

func (s *server) answer(w http.ResponseWriter, status int, body any) {
	if text, ok := body.(plain); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, string(text))
		return
	}
	if body == nil {
		w.WriteHeader(status)
		return
	}
	data, err := json.Marshal(body)
	if err != nil {
		s.cfg.Log.Error().Err(err).Msg("an answer cannot be encoded")
		status, data = http.StatusInternalServerError, []byte(`{"id":"server_error","message":"Unexpected server-side error"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// plain is a body of text.
type plain string

// statusError is an answer that has nothing to do with the domain.
type statusError struct {
	status int
	text   string // empty takes the usual text of the status
	body   any    // in place of the usual shape
	retry  int    // seconds, for the retry-after header
}

func (e *statusError) Error() string {
	if e.text == "" {
		return usual[e.status].text
	}
	return e.text
}

func asStatus(err error) *statusError {
	var e *statusError
	if errors.As(err, &e) {
		return e
	}
	return nil
}
