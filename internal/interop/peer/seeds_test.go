package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/server/corpus"
)

// seed is an object that both servers take, from testdata/seeds.
type seed struct {
	object   map[string]any
	resource *registry.Resource
	name     string
	schema   string
}

func (s seed) String() string {
	return s.resource.GVK.GroupVersion().String() + " " + s.resource.GVK.Kind + " " + s.name
}

// collection is where the seed's kind is.
func (s seed) collection() string {
	gv := s.resource.GVR.GroupVersion()
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/v1"
	}
	if s.resource.Namespaced {
		ns, _ := s.object["metadata"].(map[string]any)["namespace"].(string)
		if ns == "" {
			ns = "default"
		}
		path += "/namespaces/" + ns
	}
	return path + "/" + s.resource.GVR.Resource
}

// renamed is the seed under a name that is not taken.
func (s seed) renamed() map[string]any {
	o := maps.Clone(s.object)
	m := maps.Clone(o["metadata"].(map[string]any))
	m["name"] = "fresh" + s.name
	o["metadata"] = m
	return o
}

// readSchemas collects the models of all groups that a server publishes.
func readSchemas(t *testing.T, s corpus.Server) map[string]map[string]any {
	t.Helper()
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	read(t, s, "/openapi/v3", &index)
	out := map[string]map[string]any{}
	for _, p := range index.Paths {
		var doc struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		read(t, s, p.ServerRelativeURL, &doc)
		maps.Copy(out, doc.Components.Schemas)
	}
	return out
}

func read(t *testing.T, s corpus.Server, path string, into any) {
	t.Helper()
	a, err := send(t.Context(), s, http.MethodGet, path, nil, nil)
	if err != nil || a.Code != http.StatusOK {
		t.Fatalf("%s: %v", path, err)
	}
	if err := json.Unmarshal([]byte(a.Raw), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readSeeds finds each seed's resource and schema, and fails for a served kind without a seed.
func readSeeds(t *testing.T, schemas map[string]map[string]any) (out []seed) {
	t.Helper()
	reg, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	served, seen, names := map[string]*registry.Resource{}, map[string]bool{}, map[string]string{}
	for _, r := range reg.Resources() {
		served[r.GVK.GroupVersion().String()+" "+r.GVK.Kind] = r
	}
	for name, s := range schemas {
		gvks, _ := s["x-kubernetes-group-version-kind"].([]any)
		for _, g := range gvks {
			m := g.(map[string]any)
			names[strings.TrimPrefix(fmt.Sprintf("%v/%v %v", m["group"], m["version"], m["kind"]), "/")] = name
		}
	}
	for _, o := range readDocuments(t, "testdata/seeds/*.yaml") {
		k := fmt.Sprintf("%v %v", o["apiVersion"], o["kind"])
		if served[k] == nil || names[k] == "" {
			t.Fatalf("a seed of %s, which is not served", k)
		}
		seen[k] = true
		out = append(out, seed{object: o, resource: served[k], name: o["metadata"].(map[string]any)["name"].(string), schema: names[k]})
	}
	for k := range served {
		if !seen[k] {
			t.Errorf("no seed of %s", k)
		}
	}
	return out
}

func readDocuments(t *testing.T, pattern string) (out []map[string]any) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		docs, buf := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(b))), make([]byte, len(b)+1)
		for {
			n, err := docs.Read(buf)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			var o map[string]any
			if err := yaml.Unmarshal(buf[:n], &o); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			out = append(out, o)
		}
	}
	return out
}

// pair is what upstream's server and ours call one thing.
type pair [2]string

// pairsOf are such things by the names that stand for them in a body.
type pairsOf map[string]pair

func (p pairsOf) of(server int) func([]byte) []byte {
	return func(b []byte) []byte {
		for name, v := range p {
			b = bytes.ReplaceAll(b, []byte("${"+name+"}"), []byte(v[server]))
		}
		return b
	}
}

// live is a seed as both servers have stored it, with names for what each has given itself.
func (w *sweep) live(t *testing.T, s seed) (map[string]any, pairsOf) {
	t.Helper()
	var answers [2]*corpus.Answer
	var metas [2]map[string]any
	for i, to := range []corpus.Server{w.theirs, w.ours} {
		a, err := send(t.Context(), to, http.MethodGet, s.collection()+"/"+s.name, nil, nil)
		if err != nil || a.Code != http.StatusOK {
			t.Fatalf("get: %v", err)
		}
		answers[i], metas[i] = a, a.Object.(map[string]any)["metadata"].(map[string]any)
	}
	play := playing{}
	if wrong := newPairs().differences(play.plain(answers[0]), play.plain(answers[1])); len(wrong) > 0 {
		t.Errorf("as it was stored:\n%s", strings.Join(wrong, "\n"))
	}
	ids := pairsOf{}
	for _, k := range []string{"resourceVersion", "uid"} {
		ids[k] = pair{metas[0][k].(string), metas[1][k].(string)}
	}
	delete(metas[0], "managedFields")
	delete(metas[0], "creationTimestamp")
	metas[0]["resourceVersion"] = "${resourceVersion}"
	text, err := json.Marshal(answers[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(ids["uid"][0]), []byte("${uid}")), &out); err != nil {
		t.Fatal(err)
	}
	return out, ids
}

// must has both servers take an object.
func (w *sweep) must(t *testing.T, method, path string, object any) {
	t.Helper()
	for _, to := range []corpus.Server{w.theirs, w.ours} {
		a, err := send(t.Context(), to, method, path, object, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, a.Code, a.Raw)
		}
	}
}

// send sends a body in JSON, after fill has had its way with it.
func send(ctx context.Context, to corpus.Server, method, path string, body any, fill func([]byte) []byte) (*corpus.Answer, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		if fill != nil {
			b = fill(b)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.URL+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "corpus/1")
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if to.Token != "" {
		req.Header.Set("Authorization", "Bearer "+to.Token)
	}
	resp, err := to.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	a := &corpus.Answer{Code: resp.StatusCode, Header: resp.Header, Raw: string(b)}
	if json.Unmarshal(b, &a.Object) != nil {
		a.Object = nil
	}
	return a, nil
}
