package server

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// subresource serves what is below an object. Those with a strategy write the object itself.
func (x *exchange) subresource(ctx context.Context) (reply, error) {
	proxy := x.in.subresource == nodeProxy
	if len(x.in.rest) > 0 && !proxy {
		return reply{}, pathNotFound()
	}
	if !slices.Contains(x.sub.Verbs, x.in.verb) {
		return reply{}, x.noMethod()
	}
	if proxy {
		return x.toNode()
	}
	if x.sub.Strategy != nil {
		switch x.in.verb {
		case "get":
			return x.get(ctx)
		case "update":
			return x.update(ctx)
		case "patch":
			return x.patch(ctx)
		}
		return reply{}, x.noMethod()
	}
	switch x.in.subresource {
	case "binding":
		return x.bind(ctx, x.in.name)
	case "eviction":
		return x.evict(ctx)
	case "token":
		return x.issueToken(ctx)
	case "scale":
		return x.scale(ctx)
	case "log", "exec", "attach", "portforward":
		return x.noContainers()
	}
	return reply{}, pathNotFound()
}

// noContainers answers what would need a process behind a container.
func (x *exchange) noContainers() (reply, error) {
	if _, ok := x.s.store.Get(x.res.key(x.in.namespace, x.in.name)); !ok {
		return reply{}, notFound(x.res.GR(), x.in.name)
	}
	return reply{}, failure(http.StatusBadRequest, metav1.StatusReasonBadRequest,
		"pods of drydock have volumes but no containers: "+x.in.subresource+" is not available for pod "+x.in.name+"; its volumes are on the node, see drydock node shell")
}
