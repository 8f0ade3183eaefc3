package server

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (x *exchange) selfAccess(context.Context) (reply, error) {
	r, err := read(x, &authorizationv1.SelfSubjectAccessReview{})
	if err != nil {
		return reply{}, err
	}
	if err := x.invalidReview(oneSubject(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)); err != nil {
		return reply{}, err
	}
	r.Status = x.s.authorize(x.user, accessOf(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)).status()
	return answered(r)
}

func (x *exchange) subjectAccess(context.Context) (reply, error) {
	r, err := read(x, &authorizationv1.SubjectAccessReview{})
	if err != nil {
		return reply{}, err
	}
	if err := x.invalidReview(reviewedSubject(&r.Spec)); err != nil {
		return reply{}, err
	}
	r.Status = x.s.authorize(userOf(&r.Spec), accessOf(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)).status()
	return answered(r)
}

func (x *exchange) localAccess(context.Context) (reply, error) {
	r, err := read(x, &authorizationv1.LocalSubjectAccessReview{})
	if err != nil {
		return reply{}, err
	}
	errs := reviewedSubject(&r.Spec)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	if err := x.invalidReview(errs); err != nil {
		return reply{}, err
	}
	if r.Namespace != x.in.namespace {
		return reply{}, badRequest("spec.resourceAttributes.namespace must match namespace: %v", x.in.namespace)
	}
	r.Status = x.s.authorize(userOf(&r.Spec), accessOf(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)).status()
	return answered(r)
}

func userOf(s *authorizationv1.SubjectAccessReviewSpec) User {
	u := User{Name: s.User, UID: s.UID, Groups: s.Groups}
	for k, v := range s.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u
}

func (x *exchange) invalidReview(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: x.res.GVR.Group}, "", errs) // upstream names no kind
}

func oneSubject(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	if (r == nil) == (n == nil) {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), n, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

func reviewedSubject(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := oneSubject(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return errs
}

// selfRules lists what the user may do in a namespace.
func (x *exchange) selfRules(context.Context) (reply, error) {
	r, err := read(x, &authorizationv1.SelfSubjectRulesReview{})
	if err != nil {
		return reply{}, err
	}
	if r.Spec.Namespace == "" {
		return reply{}, badRequest("no namespace on request")
	}
	namespace := r.Spec.Namespace
	*r = authorizationv1.SelfSubjectRulesReview{TypeMeta: r.TypeMeta} // the answer does not repeat the question
	st := &r.Status
	*st = authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	// Whoever may do everything without a rule is shown the rule that says so.
	if x.s.authorize(x.user, access{verb: "*", group: "*", resource: "*", namespace: namespace}).allowed {
		all := []string{"*"}
		st.ResourceRules = append(st.ResourceRules, authorizationv1.ResourceRule{Verbs: all, APIGroups: all, Resources: all})
		st.NonResourceRules = append(st.NonResourceRules, authorizationv1.NonResourceRule{Verbs: all, NonResourceURLs: all})
		return answered(r)
	}
	missing := x.s.eachGrant(x.user, namespace, func(g granted) bool {
		for _, p := range g.rules {
			addRule(st, p)
		}
		return true
	})
	for _, m := range missing {
		st.Incomplete, st.EvaluationError = true, m
	}
	return answered(r)
}

func addRule(st *authorizationv1.SubjectRulesReviewStatus, p rbacv1.PolicyRule) {
	if len(p.Resources) > 0 {
		st.ResourceRules = append(st.ResourceRules, authorizationv1.ResourceRule{Verbs: p.Verbs, APIGroups: p.APIGroups, Resources: p.Resources, ResourceNames: p.ResourceNames})
	}
	if len(p.NonResourceURLs) > 0 {
		st.NonResourceRules = append(st.NonResourceRules, authorizationv1.NonResourceRule{Verbs: p.Verbs, NonResourceURLs: p.NonResourceURLs})
	}
}
