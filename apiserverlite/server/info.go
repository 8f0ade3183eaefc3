package server

import (
	"net/http"
	"net/url"
	"strings"
)

// info is what the path, the method and the query say about a request.
type info struct {
	verb        string
	group       string
	version     string
	namespace   string
	resource    string
	name        string
	subresource string
	rest        []string // path below the subresource
	resourceReq bool     // false for /api/v1 itself
}

// parse reads a path below /api/ or /apis/. Names are decoded once, after the path was cut
// at its slashes.
//
//	/api/{version}/...            /apis/{group}/{version}/...
//	[watch/] [namespaces/{ns}/] {resource} [/{name} [/{subresource} [/...]]]
//
// The namespace object itself is /namespaces/{name}, its subresources are status and finalize;
// anything else after /namespaces/{x}/ is a resource in that namespace.
func parse(r *http.Request) (info, bool) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i, p := range parts {
		if u, err := url.PathUnescape(p); err == nil {
			parts[i] = u
		}
	}
	var in info
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		in.version, parts = parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		in.group, in.version, parts = parts[1], parts[2], parts[3:]
	case len(parts) == 2 && parts[0] == "apis":
		in.group = parts[1]
		return in, true
	default:
		return in, false
	}
	watch := false
	if len(parts) > 0 && parts[0] == "watch" {
		watch, parts = true, parts[1:]
	}
	if len(parts) == 0 {
		return in, !watch
	}
	in.resourceReq = true
	if parts[0] == "namespaces" && len(parts) > 1 {
		if len(parts) == 2 || parts[2] == "status" || parts[2] == "finalize" {
			in.resource, in.name = parts[0], parts[1]
			in.namespace = "" // the namespace object is cluster-scoped
			parts = parts[2:]
			if len(parts) > 0 {
				in.subresource, in.rest = parts[0], parts[1:]
			}
			in.setVerb(r, watch)
			return in, true
		}
		in.namespace, parts = parts[1], parts[2:]
	}
	for i, p := range parts {
		switch i {
		case 0:
			in.resource = p
		case 1:
			in.name = p
		case 2:
			in.subresource = p
		default:
			in.rest = append(in.rest, p)
		}
	}
	in.setVerb(r, watch)
	return in, in.resource != ""
}

func (in *info) setVerb(r *http.Request, watch bool) {
	switch r.Method {
	case http.MethodPost:
		in.verb = "create"
	case http.MethodPut:
		in.verb = "update"
	case http.MethodPatch:
		in.verb = "patch"
	case http.MethodDelete:
		in.verb = "delete"
		if in.name == "" {
			in.verb = "deletecollection"
		}
	case http.MethodGet, http.MethodHead:
		in.verb = "get"
		if in.subresource != "" {
			return
		}
		switch {
		case watch, in.name == "" && wantsWatch(r.URL.RawQuery): // by its parameter only a collection is watched
			in.verb = "watch"
		case in.name == "":
			in.verb = "list"
		}
	}
}

// wantsWatch reads the parameter as upstream converts booleans: all but false and 0 is true.
func wantsWatch(query string) bool {
	if !strings.Contains(query, "watch") {
		return false
	}
	q, _ := url.ParseQuery(query) // what can be read of a broken query decides
	v, ok := q["watch"]
	if !ok || len(v) == 0 {
		return false
	}
	return !strings.EqualFold(v[0], "false") && v[0] != "0"
}

// op is how fault rules name the request: "update pods/status".
func (in *info) op() string {
	if in.subresource != "" {
		return in.verb + " " + in.resource + "/" + in.subresource
	}
	return in.verb + " " + in.resource
}
