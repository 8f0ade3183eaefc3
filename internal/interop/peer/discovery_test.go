package peer

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

// ask reads a document of a server.
func ask(t *testing.T, s corpus.Server, path, accept string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s, %v", path, resp.StatusCode, b, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDiscoveryIsTheSame compares what both servers tell of the resources that ours has: names, verbs, short names,
// categories, subresources, hashes of the stored versions, in the plain and in the aggregated documents. Upstream's server
// here has neither the autoscaler's second version nor an aggregator, so the list of groups is not compared.
func TestDiscoveryIsTheSame(t *testing.T) {
	w := newWorld(t, Start(t, Options{Kinds: true, CBOR: true}))
	theirs, ours := w.fresh(t)
	compared := 0
	var groups metav1.APIGroupList
	ask(t, ours, "/apis", "application/json", &groups)
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	for _, path := range paths {
		if path == "/apis/autoscaling/v2" {
			continue
		}
		var a, b metav1.APIResourceList
		ask(t, theirs, path, "application/json", &a)
		ask(t, ours, path, "application/json", &b)
		if a.TypeMeta != b.TypeMeta || a.GroupVersion != b.GroupVersion {
			t.Errorf("%s: upstream's %+v of %s, ours %+v of %s", path, a.TypeMeta, a.GroupVersion, b.TypeMeta, b.GroupVersion)
		}
		for _, r := range b.APIResources {
			i := slices.IndexFunc(a.APIResources, func(o metav1.APIResource) bool { return o.Name == r.Name })
			if i < 0 {
				t.Errorf("%s: upstream has no %s", path, r.Name)
				continue
			}
			compared++
			if strings.HasPrefix(path, "/apis/groupsnapshot.") { // the definitions have another version stored
				a.APIResources[i].StorageVersionHash, r.StorageVersionHash = "", ""
			}
			if x, y := asText(t, a.APIResources[i]), asText(t, r); x != y {
				t.Errorf("%s:\nupstream's %s\nours       %s", path, x, y)
			}
		}
	}
	for _, path := range []string{"/api", "/apis"} {
		var a, b apidiscoveryv2.APIGroupDiscoveryList
		const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		ask(t, theirs, path, accept, &a)
		ask(t, ours, path, accept, &b)
		for _, g := range b.Items {
			for _, v := range g.Versions {
				compared += compareVersion(t, a, g.Name, v)
			}
		}
	}
	t.Logf("%d descriptions of resources compared", compared)
}

// compareVersion compares one version's part of the aggregated document.
func compareVersion(t *testing.T, theirs apidiscoveryv2.APIGroupDiscoveryList, group string, ours apidiscoveryv2.APIVersionDiscovery) (compared int) {
	t.Helper()
	if group == "autoscaling" && ours.Version == "v2" {
		return 0
	}
	for _, g := range theirs.Items {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			if v.Version != ours.Version {
				continue
			}
			for _, r := range ours.Resources {
				i := slices.IndexFunc(v.Resources, func(o apidiscoveryv2.APIResourceDiscovery) bool { return o.Resource == r.Resource })
				if i < 0 {
					t.Errorf("aggregated %s/%s: upstream has no %s", group, v.Version, r.Resource)
					continue
				}
				compared++
				v.Resources[i].Subresources = slices.DeleteFunc(v.Resources[i].Subresources, func(s apidiscoveryv2.APISubresourceDiscovery) bool {
					return s.Subresource == "proxy" && (r.Resource == "pods" || r.Resource == "services") // there is nobody to pass anything on to
				})
				if x, y := asText(t, v.Resources[i]), asText(t, r); x != y {
					t.Errorf("aggregated %s/%s:\nupstream's %s\nours       %s", group, v.Version, x, y)
				}
			}
			return compared
		}
	}
	t.Errorf("aggregated: upstream has no %s/%s", group, ours.Version)
	return compared
}
