package server

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
)

// TestNodeProxy: the way to a kubelet is a request as any other: in discovery, for those who may, and where faults strike.
func TestNodeProxy(t *testing.T) {
	r, err := realRegistry()
	if err != nil {
		t.Fatal(err)
	}
	f := startWith(t, "", Config{Registry: r, Authenticate: authenticateAs, Authorization: RBAC, Kubelet: func(node string) (http.Handler, error) {
		if node != "n1" {
			return nil, ErrNoKubelet
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %s %q", r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization"))
		}), nil
	}})
	admin, jane := f.user(t, "admin"), f.user(t, "jane")
	for _, n := range []string{"n1", "n2"} {
		if _, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := admin.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, x := range list.APIResources {
		found = found || x.Name == "nodes/proxy" && x.Kind == "NodeProxyOptions" && len(x.Verbs) == 5
	}
	if !found {
		t.Error("nodes/proxy is not in discovery")
	}
	at := func(path string) string { return "/api/v1/nodes/" + path }
	for path, want := range map[string]string{"n1/proxy/stats/summary?only=cpu": `GET /stats/summary only=cpu ""`, "n1/proxy": `GET /  ""`} {
		b, err := admin.CoreV1().RESTClient().Get().RequestURI(at(path)).SetHeader("Accept", "text/plain").DoRaw(ctx)
		if err != nil || string(b) != want {
			t.Errorf("%s: %s %v", path, b, err)
		}
	}
	if b, err := admin.CoreV1().RESTClient().Post().AbsPath(at("n1/proxy/run")).DoRaw(ctx); err != nil || string(b) != `POST /run  ""` {
		t.Errorf("a POST: %s %v", b, err)
	}
	if _, err := admin.CoreV1().RESTClient().Get().AbsPath(at("n2/proxy/metrics")).DoRaw(ctx); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a kubelet that does not answer: %v", err)
	}
	if _, err := admin.CoreV1().RESTClient().Get().AbsPath(at("n3/proxy/metrics")).DoRaw(ctx); !apierrors.IsNotFound(err) {
		t.Errorf("a node that is not there: %v", err)
	}
	err = jane.CoreV1().RESTClient().Get().AbsPath(at("n1/proxy/metrics")).Do(ctx).Error()
	if want := `nodes "n1" is forbidden: User "jane" cannot get resource "nodes/proxy" in API group "" at the cluster scope`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("without a role: %v", err)
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, Rules: []rbacv1.PolicyRule{rule("nodes/proxy", "get")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "looks"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := jane.CoreV1().RESTClient().Get().AbsPath(at("n1/proxy/metrics")).DoRaw(ctx); err != nil {
		t.Errorf("with a role: %v", err)
	}
	if _, err := f.lab.Faults.Add(lab.Rule{Kind: lab.KindAPI, Op: "get nodes/proxy", Name: "n1", Action: lab.Fail, Code: "500", Message: "struck"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().RESTClient().Get().AbsPath(at("n1/proxy/metrics")).Do(ctx).Error(); !apierrors.IsInternalError(err) || err.Error() != "struck" {
		t.Errorf("under a fault: %v", err)
	}
}
