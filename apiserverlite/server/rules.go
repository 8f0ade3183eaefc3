package server

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"

	"drydock.dev/drydock/apiserverlite/storage"
)

var (
	clusterRoles        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}
	clusterRoleBindings = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}
	roles               = schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}
	roleBindings        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}
)

// granted is a set of rules that a binding gives to a user.
type granted struct {
	rules  []rbacv1.PolicyRule
	reason string
}

// eachGrant calls each with what the user is granted in the cluster and in a namespace, until it returns
// false. It returns which roles are bound but missing.
func (s *Server) eachGrant(u User, namespace string, each func(granted) bool) []string {
	var missing []string
	more := true
	give := func(kind, binding string, ref rbacv1.RoleRef, rules []rbacv1.PolicyRule, ok bool, subject string) {
		if !ok {
			missing = append(missing, fmt.Sprintf("%s %q not found", strings.ToLower(ref.Kind[:1])+ref.Kind[1:], ref.Name))
			return
		}
		more = each(granted{rules, fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, binding, ref.Kind, ref.Name, subject)})
	}
	s.store.Snapshot(clusterRoleBindings).Ascend("", "", func(e *storage.Entry) bool {
		b, ok := e.Object.(*rbacv1.ClusterRoleBinding)
		if !ok {
			return true
		}
		if subject, ok := subjectFor(b.Subjects, u, ""); ok {
			rules, found := s.rulesOf(b.RoleRef, "")
			give("ClusterRoleBinding", b.Name, b.RoleRef, rules, found, subject)
		}
		return more
	})
	if !more || namespace == "" {
		return missing
	}
	s.store.Snapshot(roleBindings).Ascend(namespace, "", func(e *storage.Entry) bool {
		b, ok := e.Object.(*rbacv1.RoleBinding)
		if !ok {
			return true
		}
		if subject, ok := subjectFor(b.Subjects, u, namespace); ok {
			rules, found := s.rulesOf(b.RoleRef, namespace)
			give("RoleBinding", b.Name+"/"+b.Namespace, b.RoleRef, rules, found, subject)
		}
		return more
	})
	return missing
}

// rulesOf returns the rules of a role.
func (s *Server) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool) {
	switch ref.Kind {
	case "Role":
		if e, ok := s.store.Get(storage.Key{Resource: roles, Namespace: namespace, Name: ref.Name}); ok {
			r, ok := e.Object.(*rbacv1.Role)
			if ok {
				return r.Rules, true
			}
		}
	case "ClusterRole":
		if e, ok := s.store.Get(storage.Key{Resource: clusterRoles, Name: ref.Name}); ok {
			r, ok := e.Object.(*rbacv1.ClusterRole)
			if ok {
				return s.aggregated(r), true
			}
		}
	}
	return nil, false
}

// aggregated adds the rules that a role takes from others by their labels. A controller writes them into the role, as upstream;
// without it, and before it, the role has them all the same.
func (s *Server) aggregated(r *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if r.AggregationRule == nil {
		return r.Rules
	}
	rules := slices.Clone(r.Rules)
	seen := map[string]bool{r.Name: true}
	for take := []*rbacv1.ClusterRole{r}; len(take) > 0; take = take[1:] {
		if take[0].AggregationRule == nil {
			continue
		}
		s.store.Snapshot(clusterRoles).Ascend("", "", func(e *storage.Entry) bool {
			if o, ok := e.Object.(*rbacv1.ClusterRole); ok && !seen[o.Name] && selected(take[0].AggregationRule.ClusterRoleSelectors, o.Labels) {
				seen[o.Name] = true
				rules = append(rules, o.Rules...)
				take = append(take, o)
			}
			return true
		})
	}
	return rules
}

func selected(selectors []metav1.LabelSelector, set map[string]string) bool {
	for i := range selectors {
		if s, err := metav1.LabelSelectorAsSelector(&selectors[i]); err == nil && s.Matches(labels.Set(set)) {
			return true
		}
	}
	return false
}

// subjectFor tells whether a binding means the user.
func subjectFor(subjects []rbacv1.Subject, u User, namespace string) (string, bool) {
	for _, s := range subjects {
		ns := s.Namespace
		if ns == "" {
			ns = namespace
		}
		switch {
		case s.Kind == rbacv1.UserKind && s.Name == u.Name:
			return fmt.Sprintf("User %q", s.Name), true
		case s.Kind == rbacv1.GroupKind && slices.Contains(u.Groups, s.Name):
			return fmt.Sprintf("Group %q", s.Name), true
		case s.Kind == rbacv1.ServiceAccountKind && ns != "" && u.Name == "system:serviceaccount:"+ns+":"+s.Name:
			return fmt.Sprintf("ServiceAccount %q", s.Name+"/"+ns), true
		}
	}
	return "", false
}

// rulesAllow looks for a rule that allows the access. Matching is upstream's own: a rule allows what it covers.
func (s *Server) rulesAllow(u User, a access) decision {
	want := []rbacv1.PolicyRule{a.rule()}
	var d decision
	missing := s.eachGrant(u, a.namespace, func(g granted) bool {
		for _, r := range g.rules {
			if ok, _ := validation.Covers([]rbacv1.PolicyRule{r}, want); ok {
				d = decision{allowed: true, reason: g.reason}
				return false
			}
		}
		return true
	})
	if !d.allowed && len(missing) > 0 {
		d.errs = strings.Join(missing, ", ")
		d.reason = "RBAC: " + d.errs
	}
	return d
}

// rule is the narrowest rule that allows the access.
func (a access) rule() rbacv1.PolicyRule {
	if a.path != "" {
		return rbacv1.PolicyRule{Verbs: []string{a.verb}, NonResourceURLs: []string{a.path}}
	}
	resource := a.resource
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	r := rbacv1.PolicyRule{Verbs: []string{a.verb}, APIGroups: []string{a.group}, Resources: []string{resource}}
	if a.name != "" {
		r.ResourceNames = []string{a.name}
	}
	return r
}
