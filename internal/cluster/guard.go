package cluster

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// loopbackHost tells whether a Host or Origin names this machine's loopback. Anything
// else is a name that somebody else controls and pointed here (DNS rebinding).
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// clusterNames are Hosts that clients inside a cluster use, and the metadata address that drivers ask through a proxy.
var clusterNames = map[string]bool{
	"kubernetes": true, "kubernetes.default": true, "kubernetes.default.svc": true,
	"kubernetes.default.svc.cluster.local": true, "169.254.169.254": true,
}

// guard refuses requests that a web page of somebody else's could have made.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !loopbackHost(r.Host) && !clusterNames[host] {
			http.Error(w, fmt.Sprintf("host %q is not this machine's loopback; use 127.0.0.1 or localhost", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if o := r.Header.Get("Origin"); o != "" {
			u, err := url.Parse(o)
			if err != nil || u.Host != r.Host {
				http.Error(w, fmt.Sprintf("origin %q may not use this cluster", o), http.StatusForbidden)
				return
			}
		}
		if s := r.Header.Get("Sec-Fetch-Site"); s == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "requests from other sites' pages are refused", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
