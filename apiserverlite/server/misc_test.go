package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/internal/lab"
)

func TestDiscovery(t *testing.T) {
	f := start(t, "", newTestRegistry())
	d, err := clientdiscovery.NewDiscoveryClientForConfig(f.config())
	if err != nil {
		t.Fatal(err)
	}
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil || len(groups) < 4 {
		t.Fatalf("%v: %v", groups, err)
	}
	found := map[string]metav1.APIResource{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			found[l.GroupVersion+" "+r.Name] = r
		}
	}
	if r := found["v1 pods"]; r.Kind != "Pod" || !r.Namespaced || r.SingularName != "pod" {
		t.Fatalf("%+v", r)
	}
	if r := found["v1 pods/eviction"]; r.Kind != "Eviction" || r.Group != "policy" || r.Version != "v1" {
		t.Fatalf("%+v", r)
	}
	if _, ok := found["authorization.k8s.io/v1 selfsubjectaccessreviews"]; !ok {
		t.Fatal("no selfsubjectaccessreviews")
	}
	// The legacy forms, JSON and protobuf.
	for _, p := range []string{"/api", "/apis", "/api/v1", "/apis/storage.k8s.io", "/apis/storage.k8s.io/v1"} {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf,application/json"} {
			code, h, body := f.call(t, call{method: "GET", path: p, accept: accept})
			if code != 200 || !strings.HasPrefix(accept, h.Get("Content-Type")) {
				t.Errorf("%s: %d %s %s", p, code, h.Get("Content-Type"), body)
			}
		}
	}
	l, err := d.ServerResourcesForGroupVersion("storage.k8s.io/v1")
	if err != nil || len(l.APIResources) != 1 {
		t.Fatalf("%v: %v", l, err)
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	code, h, body := f.call(t, call{method: "GET", path: "/apis", accept: aggregated})
	if code != 200 || h.Get("Content-Type") != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" || h.Get("ETag") == "" || !strings.Contains(h.Get("Vary"), "Accept") {
		t.Fatalf("%d %v %s", code, h, body)
	}
	req, _ := http.NewRequest("GET", f.http.URL+"/apis", nil)
	req.Header.Set("Accept", aggregated)
	req.Header.Set("If-None-Match", h.Get("ETag"))
	if resp := f.do(t, req); resp.StatusCode != http.StatusNotModified {
		t.Fatal(resp.Status)
	}
}

func TestVersionAndHealth(t *testing.T) {
	f := start(t, "", newTestRegistry())
	v, err := f.typed(t).Discovery().ServerVersion()
	if err != nil || v.GitVersion != "v1.37.2+drydock.0.1" {
		t.Fatalf("%+v: %v", v, err)
	}
	for path, want := range map[string]string{
		"/healthz": "ok", "/livez": "ok", "/readyz": "ok", "/readyz/ping": "ok",
		"/readyz?verbose":                 "[+]ping ok\n[+]storage ok\n[+]shutdown ok\nreadyz check passed\n",
		"/readyz?verbose&exclude=storage": "[+]ping ok\n[+]storage excluded: ok\n[+]shutdown ok\nreadyz check passed\n",
		"/readyz/nothing":                 "404 page not found\n",
	} {
		if _, _, body := f.call(t, call{method: "GET", path: path}); body != want {
			t.Errorf("%s: %q", path, body)
		}
	}
	if code, _, body := f.call(t, call{method: "GET", path: "/"}); code != 200 || !strings.Contains(body, `"/apis/storage.k8s.io/v1"`) {
		t.Errorf("%d %s", code, body)
	}
	f.Server.Close()
	if code, _, body := f.call(t, call{method: "GET", path: "/readyz"}); code != 500 || !strings.Contains(body, "[-]shutdown failed: reason withheld") {
		t.Errorf("%d %s", code, body)
	}
}

func TestAuthentication(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.cfg.Authenticate = func(r *http.Request) (User, bool) {
		return User{Name: "me"}, r.Header.Get("Authorization") == "Bearer good"
	}
	for path, want := range map[string]int{"/api/v1/pods": 401, "/api": 401, "/version": 200, "/healthz": 200, "/": 401} {
		if code, _, body := f.call(t, call{method: "GET", path: path}); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	cfg := f.config()
	cfg.BearerToken = "good"
	f.http.Config.Handler = f.handler
	c := f.typed(t)
	if _, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Fatal(err)
	}
}

func TestServiceAccountToken(t *testing.T) {
	path := tempDB(t)
	f := start(t, path, newTestRegistry())
	c := f.typed(t)
	sa, err := c.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "s"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r authenticationv1.TokenRequestSpec) (string, error) {
		t.Helper()
		out, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "s", &authenticationv1.TokenRequest{Spec: r}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return out.Status.Token, nil
	}
	if _, err := ask(authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](60)}); !apierrors.IsInvalid(err) {
		t.Fatalf("a token of one minute: %v", err)
	}
	plain, err := ask(authenticationv1.TokenRequestSpec{})
	if err != nil {
		t.Fatal(err)
	}
	bound, err := ask(authenticationv1.TokenRequestSpec{Audiences: []string{"csi"}, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: pod.UID}})
	if err != nil {
		t.Fatal(err)
	}
	// The key outlives a restart.
	f.stop()
	f = start(t, path, newTestRegistry())
	c = f.typed(t)
	u, err := f.VerifyToken(plain)
	if err != nil || u.Name != "system:serviceaccount:default:s" || u.UID != string(sa.UID) {
		t.Fatalf("%+v: %v", u, err)
	}
	if _, err := f.VerifyToken(bound); err == nil {
		t.Fatal("a token for another audience was taken")
	}
	review, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bound, Audiences: []string{"csi"}}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Extra["authentication.kubernetes.io/pod-name"][0] != "p" {
		t.Fatalf("%+v: %v", review.Status, err)
	}
	head, rest, _ := strings.Cut(plain, ".")
	body, sig, _ := strings.Cut(rest, ".")
	for _, bad := range []string{"", "x", head + "." + body, head + "." + body + "." + strings.Repeat("A", len(sig)), head + "." + body[:len(body)-2] + "xx." + sig} {
		if _, err := f.VerifyToken(bad); err == nil {
			t.Errorf("token %q was taken", bad)
		}
	}
	if err := c.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.VerifyToken(bound, "csi"); err == nil {
		t.Fatal("the token outlived its pod")
	}
}

func TestReviews(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t)
	r, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}, metav1.CreateOptions{})
	if err != nil || !r.Status.Allowed {
		t.Fatalf("%+v: %v", r, err)
	}
	who, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "kubernetes-admin" {
		t.Fatalf("%+v: %v", who, err)
	}
}

func TestBindingAndEviction(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t)
	if _, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyRegion: "nyc3"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"a": "b"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := pods.Bind(ctx, bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := pods.Get(ctx, "p", metav1.GetOptions{})
	if err != nil || p.Spec.NodeName != "n1" || p.Annotations["a"] != "b" || p.Labels[corev1.LabelTopologyRegion] != "nyc3" || p.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Fatalf("%+v: %v", p, err)
	}
	if err := pods.Bind(ctx, bind, metav1.CreateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `pod p is already assigned to node "n1"`) {
		t.Fatal(err)
	}
	if err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.as(t, "drydock-attacher").CoreV1().ConfigMaps("default")
	cm := func(n string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: n}} }
	rule := func(r lab.Rule) *lab.Handle {
		t.Helper()
		r.Kind, r.Component, r.Times = lab.KindAPI, "attacher", 1
		h, err := f.lab.Faults.Add(r)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	exists := func(n string) bool {
		_, ok := f.store.Get(newKey("configmaps", "default", n))
		return ok
	}
	h := rule(lab.Rule{Op: "create configmaps", Namespace: "default", Action: lab.Fail, Code: "503", Message: "no"})
	if _, err := c.Create(ctx, cm("a"), metav1.CreateOptions{}); !apierrors.IsServiceUnavailable(err) || exists("a") || h.Fired() != 1 {
		t.Fatalf("fail: %v", err)
	}
	rule(lab.Rule{Op: "create *", Action: lab.LateOK})
	if _, err := c.Create(ctx, cm("b"), metav1.CreateOptions{}); !apierrors.IsTimeout(err) || !exists("b") {
		t.Fatalf("late-ok: %v", err)
	}
	rule(lab.Rule{Op: "create *", Action: lab.Lost})
	if _, err := c.Create(ctx, cm("c"), metav1.CreateOptions{}); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || !exists("c") {
		t.Fatalf("lost: %v", err)
	}
	pause := rule(lab.Rule{Op: "update configmaps", Name: "b", Action: lab.Pause})
	done := make(chan error, 1)
	go func() {
		_, err := c.Update(ctx, cm("b"), metav1.UpdateOptions{})
		done <- err
	}()
	if err := pause.WaitFired(ctx, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("a paused call returned: %v", err)
	default:
	}
	pause.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	rule(lab.Rule{Op: "watch configmaps", Action: lab.Fail, Code: "500"})
	if _, err := c.Watch(ctx, metav1.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Fatalf("watch: %v", err)
	}
	// A watch whose answer is lost leaves nothing behind: Close waits for every stream. The client tries again by itself.
	h = rule(lab.Rule{Op: "watch configmaps", Action: lab.Lost})
	w, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil || h.Fired() != 1 {
		t.Fatalf("lost watch: %v", err)
	}
	w.Stop()
	// What hangs ends with the server, see below.
	rule(lab.Rule{Op: "list configmaps", Action: lab.Hang})
	go func() {
		_, err := c.List(ctx, metav1.ListOptions{})
		done <- err
	}()
	// Others are not touched.
	rule(lab.Rule{Op: "*", Action: lab.Fail, Code: "500"})
	if _, err := f.typed(t).CoreV1().ConfigMaps("default").Get(ctx, "b", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Server.Close()
	if err := <-done; err == nil {
		t.Fatal("the hanging call was answered")
	}
}

func TestPanicIsAnswered(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.byGVR[corev1.SchemeGroupVersion.WithResource("configmaps")].Table = nil
	f.byGVR[corev1.SchemeGroupVersion.WithResource("configmaps")].FromStorage = nil
	f.byGVR[corev1.SchemeGroupVersion.WithResource("configmaps")].New = nil
	code, _, body := f.call(t, call{method: "POST", path: nsPath + "/configmaps", body: "{}"})
	if code != 500 || !strings.Contains(body, "This request caused apiserver to panic. Look in the logs for details.") {
		t.Fatalf("%d %s", code, body)
	}
}

func TestPathParsing(t *testing.T) {
	for in, want := range map[string]string{
		"GET /api/v1":                                       "/v1 resource=false",
		"GET /apis/apps":                                    "apps/ resource=false",
		"GET /apis/apps/v1":                                 "apps/v1 resource=false",
		"GET /api/v1/pods":                                  "list pods",
		"GET /api/v1/namespaces":                            "list namespaces",
		"GET /api/v1/namespaces/x":                          "get namespaces x",
		"GET /api/v1/namespaces/x/status":                   "get namespaces/status x",
		"PUT /api/v1/namespaces/x/finalize":                 "update namespaces/finalize x",
		"GET /api/v1/namespaces/x/pods":                     "list pods in x",
		"GET /api/v1/namespaces/x/pods/y":                   "get pods y in x",
		"POST /api/v1/namespaces/x/pods/y/binding":          "create pods/binding y in x",
		"GET /api/v1/namespaces/x/pods/a%2Fb":               "get pods a/b in x",
		"GET /api/v1/watch/pods":                            "watch pods",
		"GET /api/v1/watch/namespaces/x/pods/y":             "watch pods y in x",
		"GET /api/v1/pods?watch=true":                       "watch pods",
		"GET /api/v1/pods?watch=false":                      "list pods",
		"GET /api/v1/pods?watch=0":                          "list pods",
		"DELETE /api/v1/namespaces/x/pods":                  "deletecollection pods in x",
		"DELETE /apis/storage.k8s.io/v1/csidrivers/d":       "delete csidrivers d",
		"PATCH /apis/storage.k8s.io/v1/csinodes/n":          "patch csinodes n",
		"GET /api/v1/namespaces/x/pods/y/proxy/a/b":         "get pods/proxy y in x rest=[a b]",
		"GET /apis/storage.k8s.io/v1/csidrivers/":           "list csidrivers",
		"POST /api/v1/namespaces/x/serviceaccounts/s/token": "create serviceaccounts/token s in x",
	} {
		method, path, _ := strings.Cut(in, " ")
		req, err := http.NewRequest(method, "http://h"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		i, ok := parse(req)
		got := fmt.Sprintf("%s/%s resource=%v", i.group, i.version, i.resourceReq)
		if i.resourceReq {
			got = i.op()
			if i.name != "" {
				got += " " + i.name
			}
			if i.namespace != "" {
				got += " in " + i.namespace
			}
			if len(i.rest) > 0 {
				got += fmt.Sprintf(" rest=%v", i.rest)
			}
		}
		if !ok || got != want {
			t.Errorf("%s: %q, want %q (%v)", in, got, want, ok)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("/api/v1/namespaces/x/pods/y", "watch=true")
	f.Add("/apis/a/b/watch/%zz", "")
	f.Fuzz(func(t *testing.T, path, query string) {
		req, err := http.NewRequest("GET", "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Path, req.URL.RawQuery = path, query
		if in, ok := parse(req); ok && in.resourceReq && in.resource == "" {
			t.Fatalf("%q has no resource", path)
		}
	})
}
