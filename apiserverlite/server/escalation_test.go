package server

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func rule(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{resource}}
}

func rolesRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}}
}

// allow gives jane a role of her own in the namespace default.
func (f *fixture) allow(t *testing.T, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	admin := f.user(t, "admin").RbacV1()
	if _, err := admin.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}}}
	if _, err := admin.RoleBindings("default").Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyGrantsWhatTheyDoNotHold(t *testing.T) {
	f := startRBAC(t)
	jane := f.user(t, "jane").RbacV1()
	f.allow(t, "hers", rolesRule("get", "create", "update", "patch"), rule("configmaps", "get", "list"))
	role := func(name string, rules ...rbacv1.PolicyRule) error {
		_, err := jane.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		return err
	}
	bind := func(name, kind, to string) error {
		_, err := jane.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: to},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "joe"}}}, metav1.CreateOptions{})
		return err
	}
	refused := func(err error, words string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q: %v", words, err)
		}
	}
	if err := role("less", rule("configmaps", "get")); err != nil {
		t.Errorf("a role of what she holds: %v", err)
	}
	const missing = `is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`
	refused(role("more", rule("secrets", "get", "list")), `roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["team" "system:authenticated"]) `+missing)
	r, err := jane.Roles("default").Get(ctx, "less", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Rules = append(r.Rules, rule("secrets", "get", "list"))
	_, err = jane.Roles("default").Update(ctx, r, metav1.UpdateOptions{})
	refused(err, missing)
	if err := bind("her-own", "Role", "hers"); err != nil {
		t.Errorf("a binding to what she holds: %v", err)
	}
	refused(bind("too-much", "ClusterRole", "cluster-admin"), "not currently held")
	if err := bind("nothing", "Role", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("a binding to no role: %v", err)
	}
	f.allow(t, "may-bind", rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"}})
	if err := bind("view", "ClusterRole", "view"); err != nil {
		t.Errorf("what she may bind: %v", err)
	}
	refused(bind("edit", "ClusterRole", "edit"), "not currently held")
	f.allow(t, "may-escalate", rolesRule("escalate"))
	if err := role("more", rule("secrets", "get", "list")); err != nil {
		t.Errorf("who may escalate: %v", err)
	}
	if _, err := f.user(t, "admin").RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: everything}, metav1.CreateOptions{}); err != nil {
		t.Errorf("the administrator: %v", err)
	}
}

// TestApplyThatCreatesNeedsCreate: who may only change objects makes none by an apply.
func TestApplyThatCreatesNeedsCreate(t *testing.T) {
	f := startRBAC(t)
	f.allow(t, "changes", rule("configmaps", "get", "update", "patch"))
	jane, admin := f.user(t, "jane").CoreV1().ConfigMaps("default"), f.user(t, "admin").CoreV1().ConfigMaps("default")
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	apply := func() error {
		_, err := jane.Patch(ctx, "a", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "m"})
		return err
	}
	if err := apply(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane" cannot create resource "configmaps" in API group "" in the namespace "default"`) {
		t.Errorf("apply of a new object: %v", err)
	}
	if _, err := admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := apply(); err != nil {
		t.Errorf("apply of one that is there: %v", err)
	}
}

// TestRolesArePartsOfRoles: a role with the label is part of admin, through edit and view, whether a controller has written it there or not.
func TestRolesArePartsOfRoles(t *testing.T) {
	f := startRBAC(t)
	admin := f.user(t, "admin").RbacV1()
	_, err := admin.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "boats", Labels: map[string]string{aggregateTo + "view": "true"}},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"boats"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "jane"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		group, resource, verb string
		may                   bool
	}{{"example.com", "boats", "get", true}, {"example.com", "boats", "delete", false}, {"", "secrets", "create", true}, {"", "resourcequotas", "list", true}, {"", "resourcequotas", "delete", false},
		{rbacv1.GroupName, "roles", "create", true}, {"", "nodes", "get", false}} {
		if d := f.authorize(User{Name: "jane"}, access{verb: x.verb, group: x.group, resource: x.resource, namespace: "default"}); d.allowed != x.may {
			t.Errorf("%s %s.%s: %v", x.verb, x.resource, x.group, d)
		}
	}
}

// TestEscalationByName: who may escalate one role may write that one and no other; a POST names none.
func TestEscalationByName(t *testing.T) {
	f := startRBAC(t)
	f.allow(t, "writes", rolesRule("get", "create", "update", "patch"))
	f.allow(t, "one", rbacv1.PolicyRule{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, ResourceNames: []string{"x"}})
	jane := f.user(t, "jane").RbacV1().Roles("default")
	x := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Rules: []rbacv1.PolicyRule{rule("secrets", "get")}}
	if _, err := jane.Create(ctx, x, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("POST: %v", err)
	}
	body := []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"x"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`)
	if _, err := jane.Patch(ctx, "x", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "m"}); err != nil {
		t.Errorf("an apply that makes it: %v", err)
	}
	body = []byte(strings.Replace(string(body), `"x"`, `"y"`, 1))
	if _, err := jane.Patch(ctx, "y", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "m"}); !apierrors.IsForbidden(err) {
		t.Errorf("an apply that makes another: %v", err)
	}
}
