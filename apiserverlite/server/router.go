package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Upstream routes requests of built-in kinds by method, Content-Type and Accept header before a handler
// sees them, and answers what it has no route for in words of its own. Custom resources
// have no such routes: their handler refuses, in others.

// routed tells whether the resource is a built-in one.
func (r *resource) routed() bool { return r.Protobuf }

func unrouted(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{}}}
}

// unroutable tells an answer of unrouted or pathNotFound from all others, which say something of what they are about.
func unroutable(st *metav1.Status) bool {
	return st.Details != nil && apiequality.Semantic.DeepEqual(*st.Details, metav1.StatusDetails{})
}

// noRoute answers a method that no path of this kind has.
func noRoute() error {
	return unrouted(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

// onlyGet serves what is only read.
func onlyGet(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodGet {
			return noRoute()
		}
		return h(w, r)
	}
}

// strange answers a method that HTTP does not have.
func (s *Server) strange(_ http.ResponseWriter, r *http.Request) error {
	if strings.HasPrefix(r.URL.Path, "/api") {
		return noRoute()
	}
	return errNoPage
}

// noMethod answers a verb that the resource does not have.
func (x *exchange) noMethod() error {
	if x.res.routed() {
		return noRoute()
	}
	return methodNotAllowed(x.res.GR(), x.in.verb)
}

// noType answers a patch of a type that the resource does not take.
func (x *exchange) noType(known []string) error {
	if x.res.routed() {
		return unrouted(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type")
	}
	return unsupportedMedia(known)
}

// noFormat answers an Accept header that cannot be met.
func (x *exchange) noFormat(protobuf bool) error {
	if !x.res.routed() {
		return notAcceptable(acceptable(true)) // its handler names protobuf for the sake of metadata and tables
	}
	types := acceptable(protobuf)
	if x.in.name == "" && (x.in.verb == "list" || x.in.verb == "watch") {
		types = append(types, streams...)
	}
	if routes(strings.Join(x.r.Header["Accept"], ","), types) {
		return notAcceptable(acceptable(protobuf))
	}
	return unavailable(types)
}

// unavailable answers an Accept header that asks for something else than the types.
func unavailable(types []string) error {
	return unrouted(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+strings.Join(types, ", "))
}

// errNoPage answers a path that is nobody's: not in a Status, but in plain text.
var errNoPage = errors.New("404 page not found")

// nowhere answers a path below a group, or a group, that is not served.
func (s *Server) nowhere(group string) error {
	if s.routedGroup(group) {
		return pathNotFound()
	}
	return errNoPage
}

// routedGroup tells whether a group has built-in kinds.
func (s *Server) routedGroup(group string) bool {
	return slices.ContainsFunc(s.resources, func(r *resource) bool { return r.GVR.Group == group && r.routed() })
}

// routes tells whether one of the types that a client accepts is given, whatever its parameters.
func routes(accept string, given []string) bool {
	for _, a := range strings.Split(accept, ",") {
		a, _, _ = strings.Cut(a, ";")
		if a = strings.TrimSpace(a); a == "*/*" || slices.Contains(given, a) {
			return true
		}
	}
	return false
}
