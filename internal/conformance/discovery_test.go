package conformance

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func TestServerVersion(t *testing.T) {
	w := newWorld(t)
	v, err := w.client.Discovery().ServerVersion()
	w.must(err)
	number := regexp.MustCompile(`^\d+$`)
	if !number.MatchString(v.Major) || !number.MatchString(v.Minor) || !strings.HasPrefix(v.GitVersion, "v"+v.Major+"."+v.Minor) {
		t.Errorf("version: %+v", v)
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t)
	for _, p := range []string{"/healthz", "/livez", "/readyz"} {
		if body := w.get(p, ""); body != "ok" {
			t.Errorf("%s: %s", p, body)
		}
		if body := w.get(p+"?verbose", ""); !strings.Contains(body, "[+]ping ok") || !strings.Contains(body, "check passed") {
			t.Errorf("%s?verbose: %s", p, body)
		}
	}
}

// TestDiscoveryIsWhole walks the documents of each group and version, and the aggregated ones, which say the same.
func TestDiscoveryIsWhole(t *testing.T) {
	w := newWorld(t)
	plain := discovery.NewDiscoveryClientForConfigOrDie(config)
	var old, now []string
	groups, err := plain.ServerGroups()
	w.must(err)
	for _, g := range groups.Groups {
		if strings.HasPrefix(g.Name, "conformance-") {
			continue // another test's
		}
		if !slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v == g.PreferredVersion }) {
			t.Errorf("%s prefers %v of %v", g.Name, g.PreferredVersion, g.Versions)
		}
		if g.Name != "" {
			var one metav1.APIGroup
			w.must(json.Unmarshal([]byte(w.get("/apis/"+g.Name, "")), &one))
			if one.Name != g.Name || one.PreferredVersion != g.PreferredVersion {
				t.Errorf("group %s describes itself as %+v", g.Name, one)
			}
		}
		for _, v := range g.Versions {
			list, err := plain.ServerResourcesForGroupVersion(v.GroupVersion)
			w.must(err)
			if list.GroupVersion != v.GroupVersion || len(list.APIResources) == 0 {
				t.Errorf("%s: %+v", v.GroupVersion, list)
			}
			for _, r := range list.APIResources {
				if !strings.Contains(r.Name, "/") {
					old = append(old, v.GroupVersion+" "+r.Name+" "+r.Kind)
					if slices.Contains(r.Verbs, "list") && r.StorageVersionHash == "" && r.Name != "customresourcedefinitions" { // of which upstream tells none
						t.Errorf("%s %s has no storage version hash", v.GroupVersion, r.Name)
					}
				}
			}
		}
	}
	_, byVersion, failed, err := plain.GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 || byVersion == nil {
		t.Fatalf("aggregated discovery: %v %v", failed, err)
	}
	for gv, list := range byVersion {
		if strings.HasPrefix(gv.Group, "conformance-") {
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				now = append(now, gv.String()+" "+r.Name+" "+r.Kind)
			}
		}
	}
	slices.Sort(old)
	slices.Sort(now)
	if !slices.Equal(old, now) {
		t.Errorf("plain: %v\naggregated: %v", old, now)
	}
	for _, want := range []string{"v1 pods Pod", "apps/v1 deployments Deployment", "storage.k8s.io/v1 volumeattachments VolumeAttachment", "apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition"} {
		if !slices.Contains(now, want) {
			t.Errorf("discovery lacks %s", want)
		}
	}
	for gvr, want := range map[schema.GroupVersionResource]bool{in("apps", "v1", "deployments"): true, in("apps", "v1", "nothings"): false, in("no.test", "v1", "nothings"): false} {
		is, err := discovery.IsResourceEnabled(plain, gvr)
		if err != nil || is != want {
			t.Errorf("%v is enabled: %v, %v", gvr, is, err)
		}
	}
}

// TestAggregatedDiscoveryIsAskedFor by the Accept header; without it, and for a version that is unknown, the old form comes.
func TestAggregatedDiscoveryIsAskedFor(t *testing.T) {
	w := newWorld(t)
	for path, group := range map[string]string{"/api": "", "/apis": "apps"} {
		body := w.get(path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
		var list struct {
			Kind, APIVersion string
			Items            []struct {
				Metadata metav1.ObjectMeta
				Versions []struct{ Version, Freshness string }
			}
		}
		w.must(json.Unmarshal([]byte(body), &list))
		if list.Kind != "APIGroupDiscoveryList" || list.APIVersion != "apidiscovery.k8s.io/v2" {
			t.Errorf("%s is %s %s", path, list.APIVersion, list.Kind)
		}
		found := false
		for _, g := range list.Items {
			found = found || g.Metadata.Name == group && g.Versions[0].Version == "v1" && g.Versions[0].Freshness == "Current"
		}
		if !found {
			t.Errorf("%s lacks %q: %.300s", path, group, body)
		}
		for _, accept := range []string{"application/json", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"} {
			if body := w.get(path, accept); strings.Contains(body, "APIGroupDiscoveryList") {
				t.Errorf("%s as %s: %.100s", path, accept, body)
			}
		}
	}
}

func TestOpenAPIOfEachGroupVersion(t *testing.T) {
	w := newWorld(t)
	paths, err := w.client.Discovery().OpenAPIV3().Paths()
	w.must(err)
	for _, p := range []string{"api/v1", "apis/apps/v1", "apis/storage.k8s.io/v1", "apis/coordination.k8s.io/v1", "apis/snapshot.storage.k8s.io/v1"} {
		if paths[p] == nil {
			t.Errorf("OpenAPI v3 lacks %s", p)
			continue
		}
		b, err := paths[p].Schema("application/json")
		w.must(err)
		var doc struct {
			OpenAPI string
			Paths   map[string]any
		}
		w.must(json.Unmarshal(b, &doc))
		if !strings.HasPrefix(doc.OpenAPI, "3.") || len(doc.Paths) == 0 {
			t.Errorf("%s: %.200s", p, b)
		}
		pb, err := paths[p].Schema("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
		if err != nil || len(pb) == 0 || len(pb) >= len(b) {
			t.Errorf("%s in protobuf: %d bytes, %v", p, len(pb), err)
		}
	}
	doc, err := w.client.Discovery().OpenAPISchema() // version 2, in protobuf
	w.must(err)
	if len(doc.GetDefinitions().GetAdditionalProperties()) < 100 {
		t.Errorf("OpenAPI v2 has %d definitions", len(doc.GetDefinitions().GetAdditionalProperties()))
	}
}

func TestTables(t *testing.T) {
	w := newWorld(t)
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, n := range []string{"a", "b", "c"} {
		maps{w}.make(n, "a")
	}
	w.createPod(pod("p"))
	table := func(path string) (out metav1.Table) {
		t.Helper()
		w.must(json.Unmarshal([]byte(w.get(path, accept)), &out))
		if out.Kind != "Table" || out.APIVersion != "meta.k8s.io/v1" || len(out.ColumnDefinitions) < 2 || out.ColumnDefinitions[0].Name != "Name" || out.ColumnDefinitions[0].Format != "name" {
			t.Errorf("%s: %+v", path, out)
		}
		return out
	}
	one := table("/api/v1/namespaces/" + w.ns + "/pods/p")
	if len(one.Rows) != 1 || len(one.Rows[0].Cells) != len(one.ColumnDefinitions) || one.Rows[0].Cells[0] != "p" || len(one.Rows[0].Object.Raw) == 0 {
		t.Errorf("the pod's table: %+v", one)
	}
	first := table("/api/v1/namespaces/" + w.ns + "/configmaps?labelSelector=watch%3Da&limit=2")
	rest := table("/api/v1/namespaces/" + w.ns + "/configmaps?labelSelector=watch%3Da&limit=2&continue=" + first.Continue)
	if len(first.Rows) != 2 || len(rest.Rows) != 1 || rest.Continue != "" || rest.ResourceVersion != first.ResourceVersion {
		t.Errorf("chunks of %d and %d rows: %+v", len(first.Rows), len(rest.Rows), rest.ListMeta)
	}
	if nodes := table("/api/v1/nodes"); len(nodes.Rows) < 3 || len(nodes.ColumnDefinitions) < 5 {
		t.Errorf("nodes: %+v", nodes)
	}
}

// TestTableOfAReview is refused: a review is not kept, so it has no metadata to show.
func TestTableOfAReview(t *testing.T) {
	w := newWorld(t)
	res := w.client.AuthorizationV1().RESTClient().Post().Resource("selfsubjectaccessreviews").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Body([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`)).SetHeader("Content-Type", "application/json").Do(w.ctx)
	var code int
	res.StatusCode(&code)
	if code != http.StatusNotAcceptable || !apierrors.IsNotAcceptable(res.Error()) {
		t.Errorf("the table of a review: %d, %v", code, res.Error())
	}
}

func TestListsInChunks(t *testing.T) {
	w := newWorld(t)
	const total, limit = 40, 17
	for i := range total {
		maps{w}.make(strings.Repeat("x", 1+i/20)+string(rune('a'+i%20)), "a")
	}
	client := w.client.CoreV1().ConfigMaps(w.ns)
	opts := metav1.ListOptions{LabelSelector: "watch=a", Limit: limit}
	var names []string
	var version string
	for {
		list, err := client.List(w.ctx, opts)
		w.must(err)
		if version == "" {
			version = list.ResourceVersion
			maps{w}.make("added-meanwhile", "a") // and so in no later chunk
		}
		if len(list.Items) > limit || list.ResourceVersion != version {
			t.Errorf("a chunk of %d at %s, the first was at %s", len(list.Items), list.ResourceVersion, version)
		}
		for _, c := range list.Items {
			names = append(names, c.Name)
		}
		if list.Continue == "" {
			if list.RemainingItemCount != nil {
				t.Errorf("after the last chunk remain %d", *list.RemainingItemCount)
			}
			break
		}
		opts.Continue = list.Continue
	}
	if len(names) != total || !slices.IsSorted(names) {
		t.Errorf("%d names: %v", len(names), names)
	}
	list, err := client.List(w.ctx, metav1.ListOptions{Limit: limit})
	w.must(err)
	if list.RemainingItemCount == nil || *list.RemainingItemCount != total+2-limit {
		t.Errorf("remaining: %v", list.RemainingItemCount)
	}
	whole, err := client.List(w.ctx, metav1.ListOptions{LabelSelector: "watch=a"})
	w.must(err)
	if len(whole.Items) != total+1 || whole.Continue != "" {
		t.Errorf("the whole list has %d", len(whole.Items))
	}
}

func TestRequestTimeouts(t *testing.T) {
	w := newWorld(t)
	for timeout, want := range map[string]int{"invalid": http.StatusBadRequest, "0s": http.StatusOK, "3h": http.StatusOK, "10s": http.StatusOK} {
		var code int
		w.rest.Get().RequestURI("/api/v1/namespaces/" + w.ns + "/configmaps?timeout=" + timeout).Do(w.ctx).StatusCode(&code)
		if code != want {
			t.Errorf("timeout=%s is answered %d", timeout, code)
		}
	}
}
