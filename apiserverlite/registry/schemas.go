package registry

import (
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

// TypeConverter knows how the fields of every kind merge, for managedFields and server-side apply. It is
// made by the first call, which takes some ten milliseconds.
func (r *Registry) TypeConverter() (managedfields.TypeConverter, error) { return r.types() }

func loadTypes() (managedfields.TypeConverter, error) {
	models, err := openapi.Models()
	if err != nil {
		return nil, err
	}
	c, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, fmt.Errorf("read the kinds' merge rules: %w", err)
	}
	return c, nil
}

// OpenAPI serves /openapi/v2, /openapi/v3 and what is below. Documents are built when first asked for.
func (r *Registry) OpenAPI() http.Handler { return r.docs }

func newDocs(resources []*Resource) *openapi.Service {
	kinds := reviews()
	for _, res := range resources {
		k := openAPIKind(res)
		k.Examples = []any{res.New(), res.NewList()}
		kinds = append(kinds, k)
	}
	return openapi.New(openapi.Config{Kinds: kinds, Title: "Kubernetes", Version: "v1.37.2"})
}

func openAPIKind(res *Resource) openapi.Kind {
	k := openapi.Kind{GVR: res.GVR, GVK: res.GVK, Namespaced: res.Namespaced, Verbs: res.Verbs, BuiltIn: res.Protobuf, ReturnsDeleted: ReturnsDeleted(res.GR())}
	for name, sub := range res.Subresources {
		gvk := sub.GVK
		if gvk.Empty() {
			gvk = res.GVK
		}
		switch name {
		case "log", "exec", "attach", "portforward", "proxy":
			continue // streams, not objects
		}
		k.Subresources = append(k.Subresources, openapi.Subresource{Name: name, Verbs: sub.Verbs, GVK: gvk})
	}
	return k
}

// reviews are the kinds that the server answers by itself and keeps nowhere.
func reviews() []openapi.Kind {
	kind := func(gv schema.GroupVersion, resource, name string, namespaced bool, example runtime.Object) openapi.Kind {
		return openapi.Kind{GVR: gv.WithResource(resource), GVK: gv.WithKind(name), Namespaced: namespaced, Verbs: []string{"create"}, BuiltIn: true, Examples: []any{example}}
	}
	authn, authz := authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	return []openapi.Kind{
		kind(authn, "selfsubjectreviews", "SelfSubjectReview", false, &authenticationv1.SelfSubjectReview{}),
		kind(authn, "tokenreviews", "TokenReview", false, &authenticationv1.TokenReview{}),
		kind(authz, "localsubjectaccessreviews", "LocalSubjectAccessReview", true, &authorizationv1.LocalSubjectAccessReview{}),
		kind(authz, "selfsubjectaccessreviews", "SelfSubjectAccessReview", false, &authorizationv1.SelfSubjectAccessReview{}),
		kind(authz, "selfsubjectrulesreviews", "SelfSubjectRulesReview", false, &authorizationv1.SelfSubjectRulesReview{}),
		kind(authz, "subjectaccessreviews", "SubjectAccessReview", false, &authorizationv1.SubjectAccessReview{}),
	}
}
