package server

import (
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// known users of these tests, by token.
func authenticateAs(r *http.Request) (User, bool) {
	known := map[string]User{
		"Bearer admin": {Name: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"}},
		"Bearer jane":  {Name: "jane", Groups: []string{"team", "system:authenticated"}},
		"Bearer robot": {Name: "system:serviceaccount:default:robot", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
		"Bearer node":  {Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}},
	}
	u, ok := known[r.Header.Get("Authorization")]
	return u, ok
}

func (f *fixture) user(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	cfg := f.config()
	cfg.BearerToken = token
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startRBAC(t *testing.T) *fixture {
	t.Helper()
	r, err := realRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, "", Config{Registry: r, Authenticate: authenticateAs, Authorization: RBAC})
}

func TestRolesCount(t *testing.T) {
	f := startRBAC(t)
	admin, jane, robot := f.user(t, "admin"), f.user(t, "jane"), f.user(t, "robot")
	if _, err := admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := jane.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	if want := `configmaps "a" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "default"`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Fatalf("without a role: %v", err)
	}
	_, err = jane.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if want := `storageclasses.storage.k8s.io is forbidden: User "jane" cannot list resource "storageclasses" in API group "storage.k8s.io" at the cluster scope`; err == nil || err.Error() != want {
		t.Fatalf("without a role: %v", err)
	}
	if _, err := jane.Discovery().ServerPreferredResources(); err != nil {
		t.Fatalf("discovery is for everybody: %v", err)
	}
	if _, err := f.user(t, "node").CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatalf("nodes are trusted: %v", err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"a"}},
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"*/status"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "team"}, {Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"}}}
	if _, err := admin.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sar := func(c kubernetes.Interface, ns, verb, resource, sub, name string) authorizationv1.SubjectAccessReviewStatus {
		t.Helper()
		r, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource, Subresource: sub, Name: name}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	if st := sar(jane, "default", "get", "configmaps", "", "a"); st.Allowed || st.EvaluationError != `role "r" not found` {
		t.Fatalf("a role that is missing: %+v", st)
	}
	if _, err := admin.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who                      kubernetes.Interface
		ns, verb, res, sub, name string
		want                     bool
	}{
		{jane, "default", "get", "configmaps", "", "a", true}, {robot, "default", "get", "configmaps", "", "a", true},
		{jane, "default", "get", "configmaps", "", "b", false}, {jane, "default", "list", "configmaps", "", "", false},
		{jane, "default", "delete", "configmaps", "", "a", false}, {jane, "kube-system", "get", "configmaps", "", "a", false},
		{jane, "default", "update", "pods", "status", "p", true}, {jane, "default", "update", "pods", "", "p", false},
		{admin, "", "delete", "nodes", "", "n", true},
	} {
		if st := sar(c.who, c.ns, c.verb, c.res, c.sub, c.name); st.Allowed != c.want {
			t.Errorf("%+v: %+v", c, st)
		}
	}
	if st := sar(jane, "default", "get", "configmaps", "", "a"); st.Reason != `RBAC: allowed by RoleBinding "b/default" of Role "r" to Group "team"` {
		t.Errorf("reason %q", st.Reason)
	}
	if _, err := jane.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Fatalf("with the role: %v", err)
	}
	rules, err := jane.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	if err != nil || len(rules.Status.ResourceRules) != 4 || len(rules.Status.NonResourceRules) != 1 {
		t.Fatalf("rules: %+v %v", rules.Status, err)
	}
	view := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "v"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}}}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, view, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !sar(jane, "", "list", "pods", "", "").Allowed || sar(jane, "", "list", "secrets", "", "").Allowed {
		t.Error("view looks at pods everywhere, and at no secrets")
	}
}

// TestImpersonation: who may acts as another, for as much of the other's identity as they may; nobody else is let do it in silence.
func TestImpersonation(t *testing.T) {
	f := startRBAC(t)
	as := func(token string, i rest.ImpersonationConfig) kubernetes.Interface {
		t.Helper()
		cfg := f.config()
		cfg.BearerToken, cfg.Impersonate = token, i
		c, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	whoami := func(c kubernetes.Interface) (authenticationv1.UserInfo, error) {
		r, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return r.Status.UserInfo, nil
	}
	for _, x := range []struct {
		as   rest.ImpersonationConfig
		want authenticationv1.UserInfo
	}{
		{rest.ImpersonationConfig{UserName: "joe"}, authenticationv1.UserInfo{Username: "joe", Groups: []string{"system:authenticated"}}},
		{rest.ImpersonationConfig{UserName: "system:serviceaccount:default:robot"}, authenticationv1.UserInfo{Username: "system:serviceaccount:default:robot",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}}},
		{rest.ImpersonationConfig{UserName: "joe", UID: "u1", Groups: []string{"a", "b"}, Extra: map[string][]string{"Some/Scope": {"x"}}}, authenticationv1.UserInfo{Username: "joe", UID: "u1",
			Groups: []string{"a", "b", "system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"some/scope": {"x"}}}},
	} {
		got, err := whoami(as("admin", x.as))
		if err != nil || !equality.Semantic.DeepEqual(got, x.want) {
			t.Errorf("as %+v: %+v %v", x.as, got, err)
		}
	}
	_, err := as("admin", rest.ImpersonationConfig{UserName: "joe"}).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if want := `nodes is forbidden: User "joe" cannot list resource "nodes" in API group "" at the cluster scope`; err == nil || err.Error() != want {
		t.Errorf("the administrator as joe: %v", err)
	}
	_, err = as("jane", rest.ImpersonationConfig{UserName: "kubernetes-admin", Groups: []string{"system:masters"}}).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if want := `users "kubernetes-admin" is forbidden: User "jane" cannot impersonate resource "users" in API group "" at the cluster scope`; err == nil || err.Error() != want {
		t.Errorf("jane as the administrator: %v", err)
	}
	req, _ := http.NewRequest(http.MethodGet, f.http.URL+"/api/v1/nodes", nil)
	req.Header.Set("Authorization", "Bearer admin")
	req.Header.Set("Impersonate-Group", "system:masters")
	if resp := f.do(t, req); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a group of nobody: %d", resp.StatusCode)
	}
}
