package registry_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"drydock.dev/drydock/apiserverlite/registry"
)

func get(t *testing.T, h http.Handler, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What kubectl looks for before it applies, creates and explains.
func TestOpenAPISatisfiesKubectl(t *testing.T) {
	r, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	h := r.OpenAPI()
	start := time.Now()
	w := get(t, h, "/openapi/v3", "application/json")
	t.Logf("index of v3 after %v", time.Since(start))
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	docs := map[string]document{}
	for _, res := range r.Resources() {
		gv := "apis/" + res.GVR.Group + "/" + res.GVR.Version
		if res.GVR.Group == "" {
			gv = "api/v1"
		}
		doc, ok := docs[gv]
		if !ok {
			start := time.Now()
			w := get(t, h, index.Paths[gv].ServerRelativeURL, "application/json")
			if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
				t.Fatalf("%s: %d %v", gv, w.Code, w.Header())
			}
			t.Logf("%s after %v, %d bytes", gv, time.Since(start), w.Body.Len())
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
				t.Fatal(err)
			}
			docs[gv] = doc
		}
		path := "/" + gv + "/"
		if res.Namespaced {
			path += "namespaces/{namespace}/"
		}
		path += res.GVR.Resource + "/{name}"
		patch := doc.Paths[path].Patch
		if patch.GVK.Kind != res.GVK.Kind || patch.GVK.Version != res.GVK.Version || patch.GVK.Group != res.GVK.Group {
			t.Errorf("%s: patch says %+v", path, patch.GVK)
		}
		validates := false
		for _, p := range patch.Parameters {
			validates = validates || p.Name == "fieldValidation" && p.In == "query"
		}
		_, strategic := patch.RequestBody.Content["application/strategic-merge-patch+json"]
		if !validates || strategic != res.Protobuf {
			t.Errorf("%s: fieldValidation %v, strategic merge %v", path, validates, strategic)
		}
		found := false
		for _, s := range doc.Components.Schemas {
			for _, k := range s.GVK {
				found = found || k.Kind == res.GVK.Kind && k.Group == res.GVK.Group && k.Version == res.GVK.Version
			}
		}
		if !found {
			t.Errorf("%s: no schema for %s", gv, res.GVK)
		}
	}
	claim := docs["api/v1"].Components.Schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]
	if claim.Description == "" || claim.Properties["accessModes"]["description"] == nil || claim.Properties["accessModes"]["x-kubernetes-list-type"] != "atomic" {
		t.Errorf("claim spec: %+v", claim)
	}
	if d := docs["api/v1"].Components.Schemas["io.k8s.api.core.v1.Pod"].Properties["kind"]["description"]; d == nil {
		t.Error("no description of kind")
	}
	if w := get(t, h, "/openapi/v3/apis/apps/v9", "application/json"); w.Code != 404 {
		t.Errorf("a group version that is not served gives %d", w.Code)
	}
	if w := get(t, h, "/openapi/v3/api/v1?hash=old", "application/json"); w.Code != 301 {
		t.Errorf("an old hash gives %d", w.Code)
	}
}

type document struct {
	Paths map[string]struct {
		Patch struct {
			GVK         kindName                    `json:"x-kubernetes-group-version-kind"`
			Parameters  []struct{ Name, In string } `json:"parameters"`
			RequestBody struct{ Content map[string]any }
		}
	}
	Components struct {
		Schemas map[string]struct {
			Description string
			GVK         []kindName `json:"x-kubernetes-group-version-kind"`
			Properties  map[string]map[string]any
		}
	}
}

type kindName struct{ Group, Version, Kind string }

func TestOpenAPIV2(t *testing.T) {
	h := reg(t).OpenAPI()
	for _, accept := range []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
		start := time.Now()
		w := get(t, h, "/openapi/v2", accept)
		t.Logf("v2 after %v", time.Since(start))
		doc := &openapi_v2.Document{}
		if err := proto.Unmarshal(w.Body.Bytes(), doc); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %v", accept, w.Code, err)
		}
		if len(doc.GetDefinitions().GetAdditionalProperties()) < 200 || len(doc.GetPaths().GetPath()) < 50 {
			t.Errorf("%d definitions, %d paths", len(doc.GetDefinitions().GetAdditionalProperties()), len(doc.GetPaths().GetPath()))
		}
	}
	w := get(t, h, "/openapi/v2", "application/json")
	if s := w.Body.String(); strings.Contains(s, "#/components/") || !strings.Contains(s, `"#/definitions/io.k8s.api.core.v1.PodSpec"`) {
		t.Error("references are not those of v2")
	}
}
