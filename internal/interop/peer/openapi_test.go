package peer

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

// TestOpenAPIOfDefinitions compares what both servers tell of defined kinds, in both versions of OpenAPI: each model
// to the last word, and of each operation all that a program reads in it. What a person reads of operations and
// parameters is in words of our own.
func TestOpenAPIOfDefinitions(t *testing.T) {
	p := Start(t, Options{})
	theirs, ours := corpus.Server{URL: p.URL, Token: p.Token, Client: p.client()}, startOurs(t)
	files, err := filepath.Glob("testdata/definitions/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, f := range files {
		y, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		body, err := yaml.YAMLToJSON(y)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []corpus.Server{theirs, ours} {
			define(t, s, string(body))
		}
	}
	for _, gv := range []string{"example.com/v1", "ports.example.com/v1", "ports.example.com/v1beta1"} {
		t.Run(gv, func(t *testing.T) {
			a, b := openAPI(t, theirs, "/openapi/v3/apis/"+gv, gv), openAPI(t, ours, "/openapi/v3/apis/"+gv, gv)
			compareDocuments(t, gv, a, b)
		})
		t.Run("v2 "+gv, func(t *testing.T) {
			a, b := openAPI(t, theirs, "/openapi/v2", gv), openAPI(t, ours, "/openapi/v2", gv)
			compareDocuments(t, gv, a, b)
		})
	}
}

func define(t *testing.T, s corpus.Server, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if out, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", resp.StatusCode, out)
	}
}

// openAPI reads a document once it tells of the version, which upstream's does a moment after the definition is accepted.
func openAPI(t *testing.T, s corpus.Server, path, gv string) map[string]any {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		doc, err := document(t, s, path)
		if err == nil {
			for p := range at(doc, "paths") {
				if strings.HasPrefix(p, "/apis/"+gv+"/") {
					return doc
				}
			}
			err = fmt.Errorf("it tells nothing of %s", gv)
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

func document(t *testing.T, s corpus.Server, path string) (map[string]any, error) {
	t.Helper()
	a, err := send(t.Context(), s, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	doc, ok := a.Object.(map[string]any)
	if a.Code != http.StatusOK || !ok {
		return nil, fmt.Errorf("%d %s", a.Code, a.Raw)
	}
	return doc, nil
}

// at goes down into maps. What is not there is empty.
func at(v any, path ...string) map[string]any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	m, _ := v.(map[string]any)
	return m
}

// TestOpenAPIOfKinds compares the documents of the built-in kinds in the same way, as far as ours tell of them.
func TestOpenAPIOfKinds(t *testing.T) {
	w := newWorld(t, Start(t, Options{Kinds: true}))
	theirs, ours := w.fresh(t)
	index, err := document(t, ours, "/openapi/v3")
	if err != nil {
		t.Fatal(err)
	}
	old := [2]map[string]any{}
	for i, s := range []corpus.Server{theirs, ours} {
		if old[i], err = document(t, s, "/openapi/v2"); err != nil {
			t.Fatal(err)
		}
	}
	compared := 0
	for gv := range at(index, "paths") {
		if gv == "apis/autoscaling/v2" || strings.Contains(gv, "snapshot") || strings.HasPrefix(gv, "apis/apiextensions") {
			continue // upstream's server here has the first not, and the others in one below it
		}
		a, err := document(t, theirs, "/openapi/v3/"+gv)
		if err != nil {
			t.Fatal(err)
		}
		b, err := document(t, ours, "/openapi/v3/"+gv)
		if err != nil {
			t.Fatal(err)
		}
		compared += compareKinds(t, gv, a, b, "")
		compareKinds(t, "v2 "+gv, old[0], old[1], "/"+gv+"/")
	}
	t.Logf("%d models and operations compared", compared)
}

// told is a model with what ours can tell of it. What upstream says of each value that a text may have is in no
// Go type's documentation, only in the code that it generates from comments on constants.
func told(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = told(e)
		}
		if text, ok := v["description"].(string); ok {
			out["description"] = strings.Join(strings.Fields(quirks.Replace(eachValue.ReplaceAllString(text, "$1"))), " ")
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = told(e)
		}
		return out
	}
	return v
}

var eachValue = regexp.MustCompile("(?m)^( - `[^`]*`) .*$")

// quirks are what two of upstream's generators make of the same comments, beside white space.
var quirks = strings.NewReplacer(`\\`, `\`)

// cutShort are properties whose documentation in the Go types ends at a line of dashes, by model.
var cutShort = map[string][]string{
	"io.k8s.api.core.v1.PodSecurityContext":       {"fsGroup"},
	"io.k8s.api.core.v1.TopologySpreadConstraint": {"maxSkew", "minDomains", "whenUnsatisfiable"},
}

// undocumented types have no documentation that a program could read.
var undocumented = map[string]bool{
	"io.k8s.apimachinery.pkg.api.resource.Quantity": true, "io.k8s.apimachinery.pkg.apis.meta.v1.Time": true,
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": true, "io.k8s.apimachinery.pkg.util.intstr.IntOrString": true,
	"io.k8s.apimachinery.pkg.runtime.RawExtension": true,
}

// compareKinds compares all that ours says below a path.
func compareKinds(t *testing.T, title string, theirs, ours map[string]any, below string) int {
	t.Helper()
	a, b := map[string]any{}, map[string]any{}
	for name, m := range models(ours) {
		other, there := models(theirs)[name]
		switch {
		case !there && below != "": // the document of everything lacks what the server above lacks
		case strings.HasSuffix(name, ".DeleteOptions"): // is of each group that there is
		case undocumented[name]:
			a["model "+name], b["model "+name] = without(other, "description"), without(m, "description")
		default:
			a["model "+name], b["model "+name] = told(other), told(m)
			for _, p := range cutShort[name] {
				delete(at(a["model "+name], "properties", p), "description")
				delete(at(b["model "+name], "properties", p), "description")
			}
		}
	}
	for path, item := range at(ours, "paths") {
		if strings.HasPrefix(path, below) {
			maps.Copy(b, operations(ours, path, at(item)))
			maps.Copy(a, operations(theirs, path, at(theirs, "paths", path)))
		}
	}
	compare(t, title, a, b)
	return len(b)
}

func without(v any, key string) any {
	out := maps.Clone(at(v))
	delete(out, key)
	return out
}

// compareDocuments compares what two documents say of one version.
func compareDocuments(t *testing.T, gv string, theirs, ours map[string]any) {
	t.Helper()
	compare(t, gv, said(theirs, gv), said(ours, gv))
}

func compare(t *testing.T, title string, a, b map[string]any) {
	t.Helper()
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var wrong []string
		newPairs().walk("", (&playing{}).value("", a[name]), (&playing{}).value("", b[name]), &wrong)
		if len(wrong) > 0 {
			t.Errorf("%s: %s:\n%s", title, name, strings.Join(wrong, "\n"))
		}
	}
}

// said is what a document says of a version: models by name, and operations by path and method.
func said(doc map[string]any, gv string) map[string]any {
	group, version, _ := strings.Cut(gv, "/")
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	prefix := strings.Join(append(parts, version), ".") + "."
	out := map[string]any{}
	for name, m := range models(doc) {
		if strings.HasPrefix(name, prefix) {
			out["model "+name] = model(m)
		}
	}
	for path, item := range at(doc, "paths") {
		if strings.HasPrefix(path, "/apis/"+gv+"/") {
			maps.Copy(out, operations(doc, path, at(item)))
		}
	}
	return out
}

func models(doc map[string]any) map[string]any {
	if m := at(doc, "definitions"); m != nil {
		return m
	}
	return at(doc, "components", "schemas")
}

// operations of a path, each whole: a parameter that all have is told of once, or with each.
func operations(doc map[string]any, path string, item map[string]any) map[string]any {
	out := map[string]any{}
	common, _ := item["parameters"].([]any)
	for method, op := range item {
		if method == "parameters" {
			continue
		}
		o := maps.Clone(at(op))
		own, _ := o["parameters"].([]any)
		delete(o, "description")
		o["responses"] = maps.Clone(at(o, "responses"))
		delete(at(o, "responses"), "401") // that there is authentication is told of by the one that is asked for it
		o["parameters"] = parameters(doc, slices.Concat(common, own))
		out[path+" "+method] = o
	}
	return out
}

// parameters by their names, without their texts. Upstream's documents name a selector whose gate is off.
func parameters(doc map[string]any, list []any) any {
	out := map[string]any{}
	for _, p := range list {
		if ref, ok := at(p)["$ref"].(string); ok {
			p = at(doc, "parameters")[strings.TrimPrefix(ref, "#/parameters/")]
		}
		o := maps.Clone(at(p))
		delete(o, "description")
		if name, _ := o["name"].(string); name != "shardSelector" {
			out[name] = o
		}
	}
	return out
}

// model is a schema without two kinds of texts: of a list's items, and of what an embedded object is.
func model(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = model(e)
		}
		embedded := v["x-kubernetes-embedded-resource"] == true
		for _, name := range []string{"items", "apiVersion", "kind"} {
			if p := at(out, "properties", name); p != nil && (name == "items" || embedded) {
				delete(p, "description")
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = model(e)
		}
		return out
	}
	return v
}
