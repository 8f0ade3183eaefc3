package server

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"drydock.dev/drydock/apiserverlite/registry"
)

// everything is what the administrator of a cluster holds.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// mayGrant refuses a role that holds more than its writer does, and a binding to such a role, unless the writer
// may escalate or bind. Old is nil for a create.
func (w *writing) mayGrant(obj, old runtime.Object) error {
	if w.user == nil || w.res.Storage.Group != rbacv1.GroupName || w.s.cfg.Authorization != RBAC || slices.Contains(w.user.Groups, privileged) {
		return nil
	}
	if old != nil && onlyLetsGo(obj, old) {
		return nil
	}
	var err error
	name := ""
	switch o := obj.(type) {
	case *rbacv1.Role:
		name, err = o.Name, w.mayHold(old, o.Rules, false)
	case *rbacv1.ClusterRole:
		aggregates := o.AggregationRule != nil && len(o.AggregationRule.ClusterRoleSelectors) > 0
		if was, ok := old.(*rbacv1.ClusterRole); ok && was.AggregationRule != nil && len(was.AggregationRule.ClusterRoleSelectors) > 0 {
			aggregates = true
		}
		name, err = o.Name, w.mayHold(old, o.Rules, aggregates)
	case *rbacv1.RoleBinding:
		return w.mayBind(o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return w.mayBind(o.Name, o.RoleRef)
	}
	if err != nil {
		return apierrors.NewForbidden(w.res.GR(), name, err)
	}
	return nil
}

func (w *writing) mayHold(old runtime.Object, rules []rbacv1.PolicyRule, aggregates bool) error {
	a := access{verb: "escalate", group: w.res.Storage.Group, resource: w.res.Storage.Resource, namespace: w.namespace}
	if old != nil || w.updating { // a POST names nobody
		a.name = w.name
	}
	if w.s.authorize(*w.user, a).allowed {
		return nil
	}
	if err := w.holds(rules); err != nil {
		return err
	}
	if aggregates && w.holds(everything) != nil {
		return fmt.Errorf("must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

func (w *writing) mayBind(name string, ref rbacv1.RoleRef) error {
	gr := clusterRoles
	if ref.Kind == "Role" {
		gr = roles
	}
	if w.s.authorize(*w.user, access{verb: "bind", group: gr.Group, resource: gr.Resource, name: ref.Name, namespace: w.namespace}).allowed {
		return nil
	}
	rules, found := w.s.rulesOf(ref, w.namespace)
	if !found {
		return notFound(gr, ref.Name)
	}
	if err := w.holds(rules); err != nil {
		return apierrors.NewForbidden(w.res.GR(), name, err)
	}
	return nil
}

// holds tells in upstream's words which of the rules the writer does not hold.
func (w *writing) holds(rules []rbacv1.PolicyRule) error {
	var own []rbacv1.PolicyRule
	unresolved := w.s.eachGrant(*w.user, w.namespace, func(g granted) bool {
		own = append(own, g.rules...)
		return true
	})
	covered, missing := validation.Covers(own, rules)
	if covered {
		return nil
	}
	var lines []string
	for _, r := range compact(missing) {
		lines = append(lines, registry.RuleText(r))
	}
	slices.Sort(lines)
	msg := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", w.user.Name, w.user.Groups, strings.Join(slices.Compact(lines), "\n"))
	if len(unresolved) > 0 {
		msg += fmt.Sprintf("; resolution errors: [%s]", strings.Join(unresolved, ", "))
	}
	return fmt.Errorf("%s", msg)
}

// compact puts the verbs of one resource into one rule.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		i := slices.IndexFunc(out, func(o rbacv1.PolicyRule) bool {
			return len(r.NonResourceURLs) == 0 && len(r.APIGroups) == 1 && len(r.Resources) == 1 &&
				slices.Equal(o.APIGroups, r.APIGroups) && slices.Equal(o.Resources, r.Resources) && slices.Equal(o.ResourceNames, r.ResourceNames)
		})
		if i < 0 {
			out = append(out, *r.DeepCopy())
			continue
		}
		out[i].Verbs = append(out[i].Verbs, r.Verbs...)
	}
	return out
}

// onlyLetsGo tells whether an update changes nothing but what stands in the way of garbage collection.
func onlyLetsGo(obj, old runtime.Object) bool {
	c := obj.DeepCopyObject()
	m, err := meta.Accessor(c)
	was, err2 := meta.Accessor(old)
	if err != nil || err2 != nil {
		return false
	}
	m.SetOwnerReferences(was.GetOwnerReferences())
	m.SetFinalizers(was.GetFinalizers())
	m.SetManagedFields(was.GetManagedFields())
	m.SetResourceVersion(was.GetResourceVersion())
	return equality.Semantic.DeepEqual(c, old)
}

// mayCreate refuses a PUT or an apply that makes an object to those who may not create one.
func (x *exchange) mayCreate() error {
	if x.s.cfg.Authorization != RBAC {
		return nil
	}
	a := access{verb: "create", group: x.in.group, version: x.in.version, resource: x.in.resource, name: x.in.name, namespace: x.in.namespace}
	if x.s.authorize(x.user, a).allowed {
		return nil
	}
	return forbidden(x.user, a)
}
