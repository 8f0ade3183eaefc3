package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	anonymous       = "system:anonymous"
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
	accountPrefix   = "system:serviceaccount:"
)

// identify tells as whom a request is made: its user, or whom that user impersonates, as "kubectl --as" does. Who may is asked for each
// part of the other's identity.
func (s *Server) identify(r *http.Request) (User, error) {
	u, ok := s.authenticate(r)
	if !ok {
		return User{}, unauthorized()
	}
	return s.impersonated(u, r.Header)
}

func (s *Server) impersonated(u User, h http.Header) (User, error) {
	asked, err := impersonations(h)
	if err != nil || len(asked) == 0 {
		return u, err
	}
	as := User{}
	groupsGiven := len(h[authenticationv1.ImpersonateGroupHeader]) > 0
	for _, ref := range asked {
		a := access{verb: "impersonate", name: ref.Name, namespace: ref.Namespace}
		switch ref.Kind {
		case "ServiceAccount":
			a.resource, as.Name = "serviceaccounts", accountPrefix+ref.Namespace+":"+ref.Name
			if !groupsGiven {
				as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + ref.Namespace}
			}
		case "User":
			a.resource, as.Name = "users", ref.Name
		case "Group":
			a.resource = "groups"
			as.Groups = append(as.Groups, ref.Name)
		case "UserExtra":
			a.group, a.version, a.resource, a.subresource = authenticationv1.GroupName, "v1", "userextras", ref.FieldPath
			if as.Extra == nil {
				as.Extra = map[string][]string{}
			}
			as.Extra[ref.FieldPath] = append(as.Extra[ref.FieldPath], ref.Name)
		case "UID":
			a.group, a.version, a.resource, as.UID = authenticationv1.GroupName, "v1", "uids", ref.Name
		}
		if !s.authorize(u, a).allowed {
			return User{}, forbidden(u, a)
		}
	}
	switch has := func(g string) bool { return slices.Contains(as.Groups, g) }; {
	case as.Name == anonymous:
		if !has(unauthenticated) {
			as.Groups = append(as.Groups, unauthenticated)
		}
	case !has(authenticated) && !has(unauthenticated):
		as.Groups = append(as.Groups, authenticated)
	}
	return as, nil
}

// impersonations reads the headers into references, which upstream prints when they make no sense.
func impersonations(h http.Header) ([]corev1.ObjectReference, error) {
	var out []corev1.ObjectReference
	user := h.Get(authenticationv1.ImpersonateUserHeader)
	if rest, is := strings.CutPrefix(user, accountPrefix); is && strings.Count(rest, ":") == 1 && !strings.HasPrefix(rest, ":") && !strings.HasSuffix(rest, ":") {
		ns, name, _ := strings.Cut(rest, ":")
		out = append(out, corev1.ObjectReference{Kind: "ServiceAccount", Namespace: ns, Name: name})
	} else if user != "" {
		out = append(out, corev1.ObjectReference{Kind: "User", Name: user})
	}
	for _, g := range h[authenticationv1.ImpersonateGroupHeader] {
		out = append(out, corev1.ObjectReference{Kind: "Group", Name: g})
	}
	const v1 = authenticationv1.GroupName + "/v1"
	for name, values := range h {
		key, is := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !is {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		for _, v := range values {
			out = append(out, corev1.ObjectReference{Kind: "UserExtra", APIVersion: v1, Name: v, FieldPath: key})
		}
	}
	if uid := h.Get(authenticationv1.ImpersonateUIDHeader); uid != "" {
		out = append(out, corev1.ObjectReference{Kind: "UID", APIVersion: v1, Name: uid})
	}
	if user == "" && len(out) > 0 {
		return nil, badRequest("%s", fmt.Sprintf("requested %v without impersonating a user", out))
	}
	return out, nil
}
