package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

// call is one line of a conversation with the server.
type call struct {
	name   string
	method string
	path   string
	ct     string
	accept string
	body   string
}

var volatile = regexp.MustCompile(`\\*"(uid|resourceVersion|creationTimestamp|deletionTimestamp|time)\\*":\\*"[^"\\]*\\*"|in precondition: [0-9a-f-]+|in object meta: [0-9a-f-]+|in record \([0-9a-f-]+\)`)

func (f *fixture) call(t *testing.T, c call) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(c.method, f.http.URL+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if c.ct != "" {
		req.Header.Set("Content-Type", c.ct)
	}
	if c.accept != "" {
		req.Header.Set("Accept", c.accept)
	}
	req.Header.Set("User-Agent", "golden/1")
	resp := f.do(t, req)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

const (
	nsPath  = "/api/v1/namespaces/default"
	pvcPath = nsPath + "/persistentvolumeclaims"
	jsonPVC = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"]}}`
	podPath = nsPath + "/pods"
	vaPath  = "/apis/storage.k8s.io/v1/volumeattachments"
	jsonVA  = `{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":"va"},"spec":{"attacher":"x","nodeName":"n","source":{}}}`
	mergeCT = "application/merge-patch+json"
	patchCT = "application/json-patch+json"
	smpCT   = "application/strategic-merge-patch+json"
	applyCT = "application/apply-patch+yaml"
)

// TestStatusBodies is a conversation full of mistakes; the answers are compared with golden text.
func TestStatusBodies(t *testing.T) {
	f := start(t, "", newTestRegistry())
	calls := []call{
		{name: "unknown path", method: "GET", path: "/nope"},
		{name: "unknown resource", method: "GET", path: "/api/v1/namespaces/default/widgets"},
		{name: "unknown group", method: "GET", path: "/apis/example.com/v1/widgets"},
		{name: "get missing", method: "GET", path: pvcPath + "/x"},
		{name: "malformed body", method: "POST", path: pvcPath, body: "{"},
		{name: "empty body", method: "POST", path: pvcPath, body: ""},
		{name: "wrong kind", method: "POST", path: pvcPath, body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`},
		{name: "wrong version", method: "POST", path: pvcPath, body: `{"apiVersion":"v2","kind":"PersistentVolumeClaim","metadata":{"name":"a"}}`},
		{name: "wrong namespace", method: "POST", path: pvcPath, body: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a","namespace":"other"}}`},
		{name: "no name", method: "POST", path: pvcPath, body: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{}}`},
		{name: "invalid", method: "POST", path: pvcPath, body: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{}}`},
		{name: "resource version on create", method: "POST", path: pvcPath, body: strings.Replace(jsonPVC, `"name":"a"`, `"name":"a","resourceVersion":"5"`, 1)},
		{name: "missing namespace", method: "POST", path: "/api/v1/namespaces/none/persistentvolumeclaims", body: jsonPVC},
		{name: "unknown field strict", method: "POST", path: pvcPath + "?fieldValidation=Strict", body: strings.Replace(jsonPVC, `"spec":{`, `"spec":{"foo":1,`, 1)},
		{name: "unknown media", method: "POST", path: pvcPath, ct: "text/plain", body: jsonPVC},
		{name: "cbor", method: "POST", path: pvcPath, ct: "application/cbor", body: "x"},
		{name: "not acceptable", method: "GET", path: pvcPath, accept: "text/html"},
		{name: "bad dry run", method: "POST", path: pvcPath + "?dryRun=some", body: jsonPVC},
		{name: "post to a name", method: "POST", path: pvcPath + "/a", body: jsonPVC},
		{name: "create", method: "POST", path: pvcPath, body: jsonPVC},
		{name: "exists", method: "POST", path: pvcPath, body: jsonPVC},
		{name: "name mismatch", method: "PUT", path: pvcPath + "/b", body: jsonPVC},
		{name: "put missing", method: "PUT", path: pvcPath + "/b", body: strings.Replace(jsonPVC, `"a"`, `"b"`, 1)},
		{name: "stale put", method: "PUT", path: pvcPath + "/a", body: strings.Replace(jsonPVC, `"name":"a"`, `"name":"a","resourceVersion":"1"`, 1)},
		{name: "bad version put", method: "PUT", path: pvcPath + "/a", body: strings.Replace(jsonPVC, `"name":"a"`, `"name":"a","resourceVersion":"x"`, 1)},
		{name: "uid mismatch put", method: "PUT", path: pvcPath + "/a", body: strings.Replace(jsonPVC, `"name":"a"`, `"name":"a","uid":"00000000-0000-0000-0000-000000000000"`, 1)},
		{name: "create va", method: "POST", path: vaPath, body: jsonVA},
		{name: "unconditional put refused", method: "PUT", path: vaPath + "/va", body: jsonVA},
		{name: "patch missing", method: "PATCH", path: pvcPath + "/x", ct: mergeCT, body: `{}`},
		{name: "patch unknown type", method: "PATCH", path: pvcPath + "/a", ct: "application/json", body: `{}`},
		{name: "patch malformed", method: "PATCH", path: pvcPath + "/a", ct: mergeCT, body: `{`},
		{name: "patch test fails", method: "PATCH", path: pvcPath + "/a", ct: patchCT, body: `[{"op":"test","path":"/metadata/name","value":"x"}]`},
		{name: "patch missing path", method: "PATCH", path: pvcPath + "/a", ct: patchCT, body: `[{"op":"remove","path":"/metadata/labels/x"}]`},
		{name: "patch unknown field strict", method: "PATCH", path: pvcPath + "/a?fieldValidation=Strict", ct: mergeCT, body: `{"spec":{"foo":1}}`},
		{name: "patch stale", method: "PATCH", path: pvcPath + "/a", ct: mergeCT, body: `{"metadata":{"resourceVersion":"1"}}`},
		{name: "patch force", method: "PATCH", path: pvcPath + "/a?force=true", ct: mergeCT, body: `{}`},
		{name: "apply without manager", method: "PATCH", path: pvcPath + "/a", ct: applyCT, body: jsonPVC},
		{name: "unknown label operator", method: "GET", path: pvcPath + "?labelSelector=a%3D%3D%3Db"},
		{name: "unknown field selector", method: "GET", path: pvcPath + "?fieldSelector=spec.foo%3Dx"},
		{name: "unknown pod field", method: "GET", path: podPath + "?fieldSelector=spec.foo%3Dx"},
		{name: "bad continue", method: "GET", path: pvcPath + "?limit=1&continue=abc"},
		{name: "continue with version", method: "GET", path: pvcPath + "?limit=1&resourceVersion=5&continue=abc"},
		{name: "match without version", method: "GET", path: pvcPath + "?resourceVersionMatch=Exact"},
		{name: "exact zero", method: "GET", path: pvcPath + "?resourceVersionMatch=Exact&resourceVersion=0"},
		{name: "bad version", method: "GET", path: pvcPath + "?resourceVersion=x"},
		{name: "initial events without match", method: "GET", path: pvcPath + "?watch=true&sendInitialEvents=true"},
		{name: "watch bad version", method: "GET", path: pvcPath + "?watch=true&resourceVersion=x"},
		{name: "delete missing", method: "DELETE", path: pvcPath + "/x"},
		{name: "delete bad policy", method: "DELETE", path: pvcPath + "/a?propagationPolicy=Sideways"},
		{name: "delete both", method: "DELETE", path: pvcPath + "/a?propagationPolicy=Orphan&orphanDependents=true"},
		{name: "delete wrong uid", method: "DELETE", path: pvcPath + "/a", body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`},
		{name: "delete wrong version", method: "DELETE", path: pvcPath + "/a", body: `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","preconditions":{"resourceVersion":"1"}}`},
		{name: "delete default namespace", method: "DELETE", path: "/api/v1/namespaces/default"},
		{name: "delete", method: "DELETE", path: nsPath + "/configmaps/none"},
		{name: "create cm", method: "POST", path: nsPath + "/configmaps", body: `{"metadata":{"name":"c"}}`},
		{name: "delete cm", method: "DELETE", path: nsPath + "/configmaps/c"},
		{name: "log", method: "GET", path: podPath + "/none/log"},
		{name: "exec unknown", method: "POST", path: podPath + "/none/exec"},
		{name: "binding missing", method: "POST", path: podPath + "/none/binding", body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"none"},"target":{"name":"n"}}`},
		{name: "bad timeout", method: "GET", path: pvcPath + "?timeout=x"},
	}
	var out strings.Builder
	for _, c := range calls {
		code, h, body := f.call(t, c)
		body = volatile.ReplaceAllStringFunc(strings.TrimSpace(body), func(s string) string {
			if k, _, ok := strings.Cut(s, ":"); ok {
				return k + ":*"
			}
			return "*"
		})
		fmt.Fprintf(&out, "%s: %s %s\n%d", c.name, c.method, c.path, code)
		for _, k := range []string{"Retry-After", "Warning"} {
			for _, v := range h.Values(k) {
				fmt.Fprintf(&out, " %s: %s", k, v)
			}
		}
		fmt.Fprintf(&out, "\n%s\n\n", body)
	}
	golden(t, "status.txt", out.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d:\n got %s\nwant %s\n(go test -update rewrites %s)", i+1, g[i], w[i], path)
		}
	}
	if len(g) != len(w) {
		t.Fatalf("%d lines, want %d", len(g), len(w))
	}
}

func decode(t *testing.T, body string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return m
}
