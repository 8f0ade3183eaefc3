package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Every fuzz target sends what it got to a real server and looks at the answer: its code is below 500, but for
// a revision of the future, and for the plain errors that upstream answers with 500 as well: of the libraries that
// merge strategic patches and applied configurations, and of a resourceVersion on a create. A panic never passes. Nor
// does a request that takes memory out of all proportion to its size.

// fuzzed is a server with one object of each of a few kinds.
func fuzzed(f testing.TB) *fixture {
	f.Helper()
	r, err := realRegistry()
	if err != nil {
		f.Fatal(err)
	}
	s := start(f, "", r)
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/configmaps":                               `{"metadata":{"name":"a","labels":{"x":"1"}},"data":{"k":"v"}}`,
		"/api/v1/namespaces/default/pods":                                     `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"/api/v1/namespaces/default/persistentvolumeclaims":                   `{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
		"/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots": `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"a"},"spec":{"source":{"persistentVolumeClaimName":"c"}}}`,
	} {
		if code, out := s.send("POST", path, "", "", body); code != http.StatusCreated {
			f.Fatalf("%s: %d %s", path, code, out)
		}
	}
	return s
}

// send is a request in this process.
func (f *fixture) send(method, path, query, ct, body string) (int, string) {
	req := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	req.URL.RawQuery = query
	req.Header.Set("User-Agent", "fuzz/1")
	if ct != "" {
		req.Header.Set("Content-Type", ct)
	}
	rec := httptest.NewRecorder()
	before := allocated()
	f.Handler().ServeHTTP(rec, req)
	if took, most := allocated()-before, uint64(mostAllocated+mostAllocatedPerByte*(len(path)+len(query)+len(body))); took > most {
		return http.StatusInsufficientStorage, fmt.Sprintf("the request took %d bytes of memory, more than %d", took, most)
	}
	return rec.Code, rec.Body.String()
}

// What a request may allocate in all, garbage included: nothing that is sent can make the server take more memory than
// in proportion to what it is.
const (
	mostAllocated        = 32 << 20
	mostAllocatedPerByte = 2 << 10
)

// allocated is what this process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// sane fails the test on an answer that no request should get.
func sane(t *testing.T, media string, code int, out string) {
	t.Helper()
	switch {
	case code < 500, code == http.StatusGatewayTimeout:
		return
	case code == http.StatusInternalServerError && !strings.Contains(out, `"reason"`): // a plain error
		if media == smpCT || strings.Contains(media, "apply") || strings.Contains(out, "resourceVersion should not be set on objects to be created") {
			return
		}
	}
	t.Fatalf("%d %s", code, out)
}

var fuzzKinds = []string{"/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/persistentvolumeclaims",
	"/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots"}

func FuzzRequestBody(f *testing.F) {
	s := fuzzed(f)
	f.Add(uint8(0), uint8(0), `{"metadata":{"name":"b"},"data":{"k":"v"}}`)
	f.Add(uint8(1), uint8(1), "metadata: {name: b}\nspec:\n  containers: [{name: c, image: i}]\n")
	f.Add(uint8(2), uint8(0), `{"metadata":{"name":"b"},"spec":{"resources":{"requests":{"storage":"1e999999"}}}}`)
	f.Add(uint8(3), uint8(0), `{"metadata":{"name":"b","managedFields":[{"fieldsV1":{"f:x":{}}}]},"spec":{"source":{}}}`)
	f.Add(uint8(0), uint8(2), "k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x05\n\x03\n\x01b\x1a\x00\"\x00")
	f.Add(uint8(1), uint8(2), "k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
	f.Add(uint8(0), uint8(3), "\xd9\xd9\xf7\xa2hmetadata\xa1dnameabddata\xa1akav")
	f.Add(uint8(2), uint8(3), "\xa2Hmetadata\xa1DnameAbDspec\xa1Iresources\xa1Hrequests\xa1GstorageK1e-99999999")
	f.Add(uint8(3), uint8(3), "\xd9\xd9\xf7\xa3DkindNVolumeSnapshotJapiVersionX\x1asnapshot.storage.k8s.io/v1Hmetadata\xf6")
	f.Add(uint8(1), uint8(3), "\xbf\x9f\x9b\xff\xff\xff\xff\xff\xff\xff\xff")
	types := []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"}
	f.Fuzz(func(t *testing.T, kind, ct uint8, body string) {
		path, media := fuzzKinds[int(kind)%len(fuzzKinds)], types[int(ct)%len(types)]
		for _, q := range []string{"dryRun=All", "dryRun=All&fieldValidation=Strict"} {
			code, out := s.send("POST", path, q, media, body)
			sane(t, "", code, out)
			code, out = s.send("PUT", path+"/a", q, media, body)
			sane(t, "", code, out)
		}
		code, out := s.send("DELETE", path+"/a", "", media, `{"dryRun":["All"]}`+body)
		sane(t, "", code, out)
	})
}

func FuzzPatch(f *testing.F) {
	s := fuzzed(f)
	f.Add(uint8(0), uint8(0), `[{"op":"add","path":"/data/x","value":"1"},{"op":"test","path":"/metadata/name","value":"a"}]`)
	f.Add(uint8(0), uint8(0), `[{"op":"copy","from":"","path":"/data/x"}]`)
	f.Add(uint8(1), uint8(1), `{"spec":{"containers":null},"metadata":{"labels":{"x":"y"}}}`)
	f.Add(uint8(1), uint8(2), `{"spec":{"containers":[{"$patch":"delete","name":"c"}],"$setElementOrder/containers":[{"name":"d"}]},"metadata":{"$retainKeys":["name"],"$deleteFromPrimitiveList/finalizers":["x"]}}`)
	f.Add(uint8(0), uint8(0), `[{"op":"test","path":""}]`)
	f.Add(uint8(1), uint8(2), `{"spec":{"containers":[0]}}`)
	f.Add(uint8(2), uint8(3), "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteOnce]}\n")
	f.Add(uint8(3), uint8(3), `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"a"},"spec":{"source":{"x":[[]]}}}`)
	f.Add(uint8(0), uint8(4), "\xd9\xd9\xf7\xa4DkindIConfigMapJapiVersionBv1Hmetadata\xa1DnameAaDdata\xa1AkAv")
	f.Add(uint8(3), uint8(4), "\xa1hmetadata\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00")
	types := []string{patchCT, mergeCT, smpCT, applyCT, string(types.ApplyCBORPatchType)}
	f.Fuzz(func(t *testing.T, kind, ct uint8, body string) {
		path, media := fuzzKinds[int(kind)%len(fuzzKinds)]+"/a", types[int(ct)%len(types)]
		q := "dryRun=All"
		if strings.Contains(media, "apply") {
			q += "&fieldManager=f&force=true"
		}
		code, out := s.send("PATCH", path, q, media, body)
		sane(t, media, code, out)
	})
}

func FuzzSelectors(f *testing.F) {
	s := fuzzed(f)
	f.Add("x=1,y in (a,b),!z", "metadata.name=a")
	f.Add("x>1", "spec.nodeName!=,status.phase=Pending")
	f.Add("(", `metadata.name=\`)
	f.Fuzz(func(t *testing.T, labels, fields string) {
		q := url.Values{"labelSelector": {labels}, "fieldSelector": {fields}}.Encode()
		for _, k := range fuzzKinds {
			code, out := s.send("GET", k, q, "", "")
			sane(t, "", code, out)
		}
		code, out := s.send("DELETE", fuzzKinds[0], q+"&dryRun=All", "", "")
		sane(t, "", code, out)
	})
}

func FuzzContinue(f *testing.F) {
	s := fuzzed(f)
	f.Add([]byte(`{"v":"meta.k8s.io/v1","rv":5,"start":"a\u0000"}`), "1")
	f.Add([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"default/a"}`), "")
	f.Add([]byte(`{"v":"meta.k8s.io/v1","rv":18446744073709551615,"start":"../x"}`), "9223372036854775807")
	f.Fuzz(func(t *testing.T, token []byte, limit string) {
		q := url.Values{"continue": {base64.RawURLEncoding.EncodeToString(token)}, "limit": {limit}}
		for _, k := range []string{fuzzKinds[0], "/api/v1/configmaps"} {
			code, out := s.send("GET", k, q.Encode(), "", "")
			sane(t, "", code, out)
		}
		q.Set("continue", string(token))
		code, out := s.send("GET", fuzzKinds[0], q.Encode(), "", "")
		sane(t, "", code, out)
	})
}

// FuzzQuery sends any query with any verb. A watch is not among them: it would not end.
func FuzzQuery(f *testing.F) {
	s := fuzzed(f)
	f.Add("GET", "resourceVersion=1&resourceVersionMatch=Exact&limit=2")
	f.Add("GET", "limit=-1&timeout=1ns&pretty=1")
	f.Add("DELETE", "gracePeriodSeconds=-9223372036854775808&propagationPolicy=Orphan")
	f.Add("GET", "sendInitialEvents=true&%zz")
	f.Fuzz(func(t *testing.T, method, query string) {
		if !slices.Contains([]string{"GET", "DELETE", "HEAD"}, method) || strings.Contains(query, "watch") || strings.Contains(query, "%") {
			return
		}
		if method == "DELETE" {
			query += "&dryRun=All"
		}
		for _, p := range []string{fuzzKinds[1], fuzzKinds[1] + "/a"} {
			code, out := s.send(method, p, query, "", "")
			sane(t, "", code, out)
		}
	})
}

// FuzzWatch begins watches with any query and leaves them at once.
func FuzzWatch(f *testing.F) {
	s := fuzzed(f)
	f.Add("resourceVersion=1&allowWatchBookmarks=true")
	f.Add("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&labelSelector=x")
	f.Add("resourceVersion=18446744073709551615&timeoutSeconds=9223372036854775807")
	f.Add("fieldSelector=metadata.name=a&timeoutSeconds=-1&includeObject=None")
	gone, leave := context.WithCancel(context.Background())
	leave()
	f.Fuzz(func(t *testing.T, query string) {
		if strings.Contains(query, "%") {
			return
		}
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf"} {
			req := httptest.NewRequest("GET", "http://127.0.0.1"+fuzzKinds[1], nil).WithContext(gone)
			req.URL.RawQuery = "watch=true&" + query
			req.Header.Set("Accept", accept)
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, req)
			sane(t, "", rec.Code, rec.Body.String())
		}
	})
}

// TestRequestsLeaveNothing sends thousands of requests that are all different and change nothing: what the server keeps of them does not grow.
func TestRequestsLeaveNothing(t *testing.T) {
	s := fuzzed(t)
	live := func() uint64 {
		for range 2 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	serial := 0
	send := func(n int) {
		for range n {
			serial++
			k, x := fuzzKinds[serial%len(fuzzKinds)], fmt.Sprintf("x%d", serial)
			for _, r := range []struct{ method, path, query, ct, body string }{
				{"GET", k, url.Values{"labelSelector": {x + "=1," + x + "!=2"}, "fieldSelector": {"metadata.name=" + x}}.Encode(), "", ""},
				{"GET", k, url.Values{"continue": {base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"%s"}`, serial, x))}, "limit": {"1"}}.Encode(), "", ""},
				{"GET", "/apis/" + x + "/v1/" + x, "", "", ""},
				{"GET", "/api/v1/namespaces/" + x + "/configmaps/" + x, "", "", ""},
				{"POST", "/api/v1/namespaces/" + x + "/configmaps", "dryRun=All", "", `{"metadata":{"name":"` + x + `"}}`},
				{"PATCH", fuzzKinds[0] + "/a", "dryRun=All&fieldManager=" + x + "&force=true", applyCT, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"` + x + `":"1"}}`},
				{"POST", fuzzKinds[3], "dryRun=All&fieldValidation=Warn", "", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"` + x + `"},"spec":{"` + x + `":1}}`},
			} {
				if code, out := s.send(r.method, r.path, r.query, r.ct, r.body); code >= 500 {
					t.Fatalf("%s %s: %d %s", r.method, r.path, code, out)
				}
			}
		}
	}
	send(300)
	before := live()
	send(1000)
	if after := live(); after > before+4<<20 {
		t.Errorf("7,000 requests left %d bytes", after-before)
	}
}
