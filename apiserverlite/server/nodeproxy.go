package server

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// nodeProxy is the subresource of nodes that is a way to their kubelets.
const nodeProxy = "proxy"

// ErrNoKubelet is what Config.Kubelet returns for a node whose kubelet does not answer.
var ErrNoKubelet = errors.New("the kubelet does not answer")

// toNode passes a request on to a node's kubelet: /api/v1/nodes/{name}/proxy/stats/summary becomes /stats/summary there. All that
// comes before an answer is as for any request: who asks, whether they may, the lab's faults, the audit log.
func (x *exchange) toNode() (reply, error) {
	if _, ok := x.s.store.Get(x.res.key("", x.in.name)); !ok {
		return reply{}, notFound(nodesResource, x.in.name)
	}
	err := ErrNoKubelet
	var kubelet http.Handler
	if x.s.cfg.Kubelet != nil {
		kubelet, err = x.s.cfg.Kubelet(x.in.name)
	}
	if err != nil {
		return reply{}, failure(http.StatusServiceUnavailable, "ServiceUnavailable", "error trying to reach service: node "+x.in.name+": "+err.Error())
	}
	to := x.r.Clone(x.r.Context())
	to.URL = &url.URL{Path: "/" + strings.Join(x.in.rest, "/"), RawQuery: x.r.URL.RawQuery}
	to.RequestURI = to.URL.RequestURI()
	to.Header.Del("Authorization") // is for this server
	return reply{stream: func(w http.ResponseWriter) {
		w.Header().Del("Cache-Control")
		kubelet.ServeHTTP(w, to)
	}}, nil
}
