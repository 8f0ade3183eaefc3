package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

type ctx = context.Context

// errorBody is the API's form of an error.
type errorBody struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Request string `json:"request_id,omitempty"`
}

// usual holds the slug and the text that go with a status.
var usual = map[int]struct{ slug, text string }{
	400: {"bad_request", "The request could not be understood."},
	401: {"unauthorized", "Unable to authenticate you"},
	403: {"forbidden", "You do not have access for the attempted action."},
	404: {"not_found", fakecloud.TextNotFound},
	409: {"conflict", "The request conflicts with the state of the resource."},
	413: {"request_too_large", "The request body is too large."},
	422: {"unprocessable_entity", "The request was well formed and cannot be processed."},
	429: {"too_many_requests", "API Rate limit exceeded."},
	500: {"server_error", "Unexpected server-side error"},
	502: {"bad_gateway", "Bad gateway"},
	503: {"service_unavailable", "Service unavailable"},
	504: {"gateway_timeout", "The request took too long; it may have been carried out all the same."},
	507: {"insufficient_storage", "This machine's disk is full."},
}

// statusOf is the one place where the domain's kinds become statuses.
var statusOf = map[fakecloud.Kind]int{
	fakecloud.Internal:    http.StatusInternalServerError,
	fakecloud.NotFound:    http.StatusNotFound,
	fakecloud.Conflict:    http.StatusConflict,
	fakecloud.Invalid:     http.StatusUnprocessableEntity,
	fakecloud.Forbidden:   http.StatusForbidden,
	fakecloud.Throttled:   http.StatusTooManyRequests,
	fakecloud.Full:        http.StatusInsufficientStorage,
	fakecloud.Unavailable: http.StatusServiceUnavailable,
}

// failure turns an error into an answer.
func (s *server) failure(err error, request string, h http.Header) (status int, body any) {
	if e := asStatus(err); e != nil {
		if e.retry > 0 {
			h.Set("retry-after", strconv.Itoa(e.retry))
		}
		if e.body != nil {
			return e.status, e.body
		}
		return e.status, errorBody{slug(e.status), e.Error(), request}
	}
	status = statusOf[fakecloud.KindOf(err)]
	if status >= http.StatusInternalServerError {
		s.cfg.Log.Warn().Err(err).Str("request", request).Int("status", status).Msg("request failed")
	}
	return status, errorBody{slug(status), err.Error(), request}
}

func slug(status int) string {
	if u, ok := usual[status]; ok {
		return u.slug
	}
	return strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_")
}

func statusText(status int) string {
	if status == dropConnection {
		return "dropped"
	}
	return strconv.Itoa(status)
}

// faulted answers as a rule of the lab says. Late-ok and lost come after the work.
func (s *server) faulted(c *call, f *lab.Error, h handler) (status int, body any, err error) {
	switch f.Action {
	case lab.Lost, lab.Hang:
		return dropConnection, nil, nil
	case lab.LateOK:
		return 0, nil, &statusError{status: http.StatusGatewayTimeout}
	}
	text := s.ownText(f)
	switch f.Code {
	case "errored":
		if c.failure = text; text == "" {
			c.failure = f.Text
		}
		return h(c)
	case "422-pending":
		return 0, nil, &fakecloud.Error{Kind: fakecloud.Invalid, Text: fakecloud.TextPending}
	case "403-capacity":
		if strings.HasSuffix(c.r.URL.Path, "/actions") {
			return 0, nil, &fakecloud.Error{Kind: fakecloud.Forbidden, Text: fakecloud.TextResizeQuota}
		}
		return 0, nil, &fakecloud.Error{Kind: fakecloud.Forbidden, Text: fakecloud.TextCreateQuota}
	}
	code, e := strconv.Atoi(f.Code)
	if e != nil || code < 400 || code > 599 {
		code = http.StatusInternalServerError
	}
	out := &statusError{status: code, text: text}
	if code == http.StatusTooManyRequests {
		out.retry = 1
	}
	return 0, nil, out
}

// ownText is the rule's message if it has one: without, a status has its usual text,
// as the real cloud would answer.
func (s *server) ownText(f *lab.Error) string {
	for _, h := range s.cloud.Lab().Faults.List() {
		if h.ID == f.Rule {
			return h.Rule.Message
		}
	}
	return ""
}
