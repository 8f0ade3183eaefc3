package server

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Authorization is how the server decides who may do what.
type Authorization string

// The ways.
const (
	AlwaysAllow Authorization = ""     // everybody who is known may do everything
	RBAC        Authorization = "rbac" // roles and bindings count
)

// access is what somebody wants to do, as rules speak of it.
type access struct {
	verb        string
	group       string
	version     string
	resource    string
	subresource string
	name        string
	namespace   string
	path        string // of what is not a resource
}

// decision says whether, and why.
type decision struct {
	allowed bool
	reason  string
	errs    string // what could not be looked up
}

const allowedReason = "drydock allows every request"

// privileged may do everything, roles or not, as upstream has it: otherwise nobody could repair them.
const privileged = "system:masters"

// authorize decides. Nodes, which upstream leaves to an authorizer of their own, are trusted here.
func (s *Server) authorize(u User, a access) decision {
	if s.cfg.Authorization != RBAC {
		return decision{allowed: true, reason: allowedReason}
	}
	for _, g := range u.Groups {
		switch g {
		case privileged:
			return decision{allowed: true}
		case "system:nodes":
			return decision{allowed: true, reason: "drydock trusts its nodes"}
		}
	}
	return s.rulesAllow(u, a)
}

// permit refuses a request to a resource that its user may not make.
func (x *exchange) permit() error {
	if x.s.cfg.Authorization != RBAC {
		return nil
	}
	a := access{verb: x.in.verb, group: x.in.group, version: x.in.version, resource: x.in.resource, subresource: x.in.subresource, name: x.in.name, namespace: x.in.namespace}
	if x.in.resource == "namespaces" {
		a.namespace = x.in.name // roles in a namespace may speak of the namespace itself
	}
	d := x.s.authorize(x.user, a)
	if d.allowed {
		return nil
	}
	return forbidden(x.user, a)
}

// permitPath does the same for a path that is about no resource.
func (s *Server) permitPath(u User, verb, path string) error {
	a := access{verb: verb, path: path}
	if s.authorize(u, a).allowed {
		return nil
	}
	return forbidden(u, a)
}

// forbidden has upstream's words.
func forbidden(u User, a access) error {
	if a.path != "" {
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("User %q cannot %s path %q", u.Name, a.verb, a.path)) //nolint:staticcheck // upstream's text
	}
	resource := a.resource
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	where := " at the cluster scope"
	if a.namespace != "" {
		where = fmt.Sprintf(" in the namespace %q", a.namespace)
	}
	//nolint:staticcheck // upstream's text
	return apierrors.NewForbidden(schema.GroupResource{Group: a.group, Resource: a.resource}, a.name,
		fmt.Errorf("User %q cannot %s resource %q in API group %q%s", u.Name, a.verb, resource, a.group, where))
}

// accessOf reads what an access review asks for.
func accessOf(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) access {
	if r == nil {
		return access{verb: n.Verb, path: n.Path}
	}
	return access{verb: r.Verb, group: r.Group, version: r.Version, resource: r.Resource, subresource: r.Subresource, name: r.Name, namespace: r.Namespace}
}

func (d decision) status() authorizationv1.SubjectAccessReviewStatus {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: d.allowed, Reason: d.reason, EvaluationError: d.errs}
}
