package server

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
)

// question is a resource that is only ever created: it is answered, not stored.
type question struct {
	gvr        schema.GroupVersionResource
	kind       string
	singular   string
	namespaced bool
	answer     func(*exchange, context.Context) (reply, error)
}

func questions() []question {
	authn, authz := authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	return []question{
		{corev1.SchemeGroupVersion.WithResource("bindings"), "Binding", "binding", true, func(x *exchange, ctx context.Context) (reply, error) { return x.bind(ctx, "") }},
		{authn.WithResource("selfsubjectreviews"), "SelfSubjectReview", "selfsubjectreview", false, (*exchange).selfSubject},
		{authn.WithResource("tokenreviews"), "TokenReview", "tokenreview", false, (*exchange).reviewToken},
		{authz.WithResource("selfsubjectaccessreviews"), "SelfSubjectAccessReview", "selfsubjectaccessreview", false, (*exchange).selfAccess},
		{authz.WithResource("subjectaccessreviews"), "SubjectAccessReview", "subjectaccessreview", false, (*exchange).subjectAccess},
		{authz.WithResource("localsubjectaccessreviews"), "LocalSubjectAccessReview", "localsubjectaccessreview", true, (*exchange).localAccess},
		{authz.WithResource("selfsubjectrulesreviews"), "SelfSubjectRulesReview", "selfsubjectrulesreview", false, (*exchange).selfRules},
	}
}

// asResource describes a question to discovery and to the request path.
func (q question) asResource() *resource {
	return &resource{Resource: &registry.Resource{GVR: q.gvr, GVK: q.gvr.GroupVersion().WithKind(q.kind), Singular: q.singular,
		Namespaced: q.namespaced, Verbs: []string{"create"}, Protobuf: true}, answer: q.answer}
}

// read decodes the body of a question.
func read[T runtime.Object](x *exchange, into T) (T, error) {
	o, err := x.createOptions()
	if err != nil {
		return into, err
	}
	out, err := decodeInto(x, o.validation, into, x.res.GVK)
	if err != nil {
		return out, err
	}
	return out, x.record(out, x.res.GVK, o.fieldManager)
}

// record puts managedFields into a question, as upstream does with everything that is created, kept or not.
func (x *exchange) record(o runtime.Object, kind schema.GroupVersionKind, fieldManager string) error {
	if x.untracked() {
		return nil
	}
	m, err := x.s.tracker.questions(kind, x.in.subresource)
	if err != nil {
		return err
	}
	empty, err := x.s.cfg.Scheme.New(kind)
	if err != nil {
		return err
	}
	empty.GetObjectKind().SetGroupVersionKind(kind)
	tracked, err := metaOf(m.UpdateNoErrors(empty, o.DeepCopyObject(), x.manager(fieldManager)))
	if err != nil {
		return err
	}
	own, err := metaOf(o)
	if err != nil {
		return err
	}
	own.SetManagedFields(tracked.GetManagedFields())
	return nil
}

func answered(o runtime.Object) (reply, error) {
	return reply{code: http.StatusCreated, object: o}, nil
}

func (u User) info() authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

func (x *exchange) selfSubject(context.Context) (reply, error) {
	r, err := read(x, &authenticationv1.SelfSubjectReview{})
	if err != nil {
		return reply{}, err
	}
	r.CreationTimestamp = metav1.NewTime(x.s.wall.Now()).Rfc3339Copy()
	r.Status.UserInfo = x.user.info()
	return answered(r)
}

func (x *exchange) reviewToken(context.Context) (reply, error) {
	r, err := read(x, &authenticationv1.TokenReview{})
	if err != nil {
		return reply{}, err
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	u, err := x.s.VerifyToken(r.Spec.Token, r.Spec.Audiences...)
	if err != nil {
		r.Status.Error = err.Error()
		return answered(r)
	}
	r.Status.Authenticated, r.Status.User = true, u.info()
	if r.Status.Audiences = r.Spec.Audiences; len(r.Status.Audiences) == 0 {
		r.Status.Audiences = []string{Issuer}
	}
	return answered(r)
}
