package controllers_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRolesGatherTheRulesOfOthers, also by way of a third, each rule once, and lose them with the label.
func TestRolesGatherTheRulesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.start()
	roles := w.client.RbacV1().ClusterRoles()
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}
	}
	add := func(name, label, gathers string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": label}}, Rules: rules}
		if gathers != "" {
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": gathers}}}}
		}
		_, err := roles.Create(w.ctx, r, metav1.CreateOptions{})
		w.check(err)
	}
	holds := func(name string, resources ...string) {
		t.Helper()
		until(w, "rules of "+name, lister(roles.List), roles.Watch, func(r *rbacv1.ClusterRole) bool {
			var have []string
			for _, x := range r.Rules {
				have = append(have, x.Resources...)
			}
			return r.Name == name && slices.Equal(have, resources)
		})
	}
	add("a", "small", "", rule("pods"))
	add("top", "", "big", rule("nobody keeps this"))
	add("mid", "big", "small")
	holds("mid", "pods")
	holds("top", "pods")
	add("c", "small", "", rule("secrets"), rule("pods"))
	add("b", "small", "", rule("events"))
	holds("mid", "pods", "events", "secrets")
	holds("top", "pods", "events", "secrets")
	w.check(roles.Delete(w.ctx, "c", metav1.DeleteOptions{}))
	holds("top", "pods", "events")
}
