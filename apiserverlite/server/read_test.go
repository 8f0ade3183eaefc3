package server

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"drydock.dev/drydock/apiserverlite/storage"
)

func (f *fixture) configMaps(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%02d", i), Labels: map[string]string{"mod": fmt.Sprint(i % 3)}}}
		if _, err := f.typed(t).CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPagedList(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.configMaps(t, 10)
	c := f.typed(t).CoreV1().ConfigMaps("default")
	var names []string
	opts := metav1.ListOptions{Limit: 3}
	rv := ""
	for {
		l, err := c.List(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		if rv == "" {
			rv = l.ResourceVersion
			if l.RemainingItemCount == nil || *l.RemainingItemCount != 7 {
				t.Fatalf("remaining %v", l.RemainingItemCount)
			}
			// What happens now must not be seen by later pages.
			if err := c.Delete(ctx, "c05", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c055"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if l.ResourceVersion != rv {
			t.Fatalf("page at %s, the first was at %s", l.ResourceVersion, rv)
		}
		for _, i := range l.Items {
			names = append(names, i.Name)
		}
		if l.Continue == "" {
			break
		}
		opts.Continue = l.Continue
	}
	if len(names) != 10 || names[5] != "c05" {
		t.Fatalf("pages: %v", names)
	}
	// With a selector, pages count what matches, and the rest is not counted.
	l, err := c.List(ctx, metav1.ListOptions{Limit: 2, LabelSelector: "mod=0"})
	if err != nil || len(l.Items) != 2 || l.Continue == "" || l.RemainingItemCount != nil {
		t.Fatalf("%d %q %v: %v", len(l.Items), l.Continue, l.RemainingItemCount, err)
	}
	// resourceVersion 0 is served whole.
	if l, err := c.List(ctx, metav1.ListOptions{Limit: 2, ResourceVersion: "0"}); err != nil || len(l.Items) != 10 || l.Continue != "" {
		t.Fatalf("%d: %v", len(l.Items), err)
	}
	exact, err := c.List(ctx, metav1.ListOptions{ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil || len(exact.Items) != 10 || exact.ResourceVersion != rv {
		t.Fatalf("exact: %d at %s: %v", len(exact.Items), exact.ResourceVersion, err)
	}
}

func TestRevisionsOutOfReach(t *testing.T) {
	t.Parallel()
	path := tempDB(t)
	f := start(t, path, newTestRegistry())
	f.configMaps(t, 4)
	c := f.typed(t).CoreV1().ConfigMaps("default")
	first, err := c.List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	f.configMapsTouch(t, "c00")
	f.stop()
	f = start(t, path, newTestRegistry())
	c = f.typed(t).CoreV1().ConfigMaps("default")
	_, err = c.List(ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
	var st apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errorsAs(err, &st) || st.Status().ListMeta.Continue == "" {
		t.Fatalf("an old token: %v", err)
	}
	rest, err := c.List(ctx, metav1.ListOptions{Limit: 2, Continue: st.Status().ListMeta.Continue})
	if err != nil || len(rest.Items) != 2 || rest.Items[0].Name != "c02" {
		t.Fatalf("the inconsistent rest: %v %v", rest, err)
	}
	if _, err := c.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Fatalf("an old exact list: %v", err)
	}
	code, h, body := f.call(t, call{method: "GET", path: nsPath + "/configmaps?resourceVersion=999999999"})
	if code != 504 || h.Get("Retry-After") != "1" || !strings.Contains(body, "ResourceVersionTooLarge") {
		t.Fatalf("%d %s", code, body)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	ev := <-w.ResultChan()
	if ev.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) || !strings.Contains(ev.Object.(*metav1.Status).Message, "too old resource version: ") {
		t.Fatalf("%v %+v", ev.Type, ev.Object)
	}
}

func (f *fixture) configMapsTouch(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	c := f.typed(t).CoreV1().ConfigMaps("default")
	cm, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cm.Data = map[string]string{"at": cm.ResourceVersion}
	if cm, err = c.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return cm
}

func name(o map[string]any) string {
	n, _ := o["metadata"].(map[string]any)["name"].(string)
	return n
}

func versionOf(o map[string]any) string {
	v, _ := o["metadata"].(map[string]any)["resourceVersion"].(string)
	return v
}

func TestFieldSelectors(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1()
	for _, n := range []string{"n1", "n2"} {
		if _, err := c.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-" + n}, Spec: corev1.PodSpec{NodeName: n}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := c.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n2"})
	if err != nil || len(l.Items) != 1 || l.Items[0].Name != "p-n2" {
		t.Fatalf("%v: %v", l.Items, err)
	}
	e := f.watch(t, strings.Replace(podPath, "/api/v1/", "/api/v1/watch/", 1)+"/p-n1", "")
	if typ, o := e.next(); typ != "ADDED" || name(o) != "p-n1" {
		t.Fatalf("%s %v", typ, o)
	}
	one, err := c.Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=p-n2"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Stop()
	if ev := <-one.ResultChan(); ev.Object.(*corev1.Pod).Name != "p-n2" {
		t.Fatalf("%+v", ev.Object)
	}
}

func TestTables(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.configMaps(t, 2)
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	_, _, body := f.call(t, call{method: "GET", path: nsPath + "/configmaps?includeObject=Object", accept: accept})
	m := decode(t, body)
	rows := m["rows"].([]any)
	obj := rows[1].(map[string]any)["object"].(map[string]any)
	if m["kind"] != "Table" || m["apiVersion"] != "meta.k8s.io/v1" || versionOf(m) != f.store.Revision().String() || obj["kind"] != "ConfigMap" || name(obj) != "c01" {
		t.Fatal(body)
	}
	_, _, body = f.call(t, call{method: "GET", path: nsPath + "/configmaps/c00", accept: accept})
	rows = decode(t, body)["rows"].([]any)
	if obj := rows[0].(map[string]any)["object"].(map[string]any); len(rows) != 1 || obj["kind"] != "PartialObjectMetadata" {
		t.Fatal(body)
	}
	_, _, body = f.call(t, call{method: "GET", path: nsPath + "/configmaps/none", accept: accept})
	if decode(t, body)["kind"] != "Status" {
		t.Fatal(body)
	}
	e := f.watch(t, nsPath+"/configmaps?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", accept)
	_, first := e.next()
	_, second := e.next()
	if len(first["columnDefinitions"].([]any)) != 1 || second["columnDefinitions"] != nil && len(second["columnDefinitions"].([]any)) != 0 {
		t.Fatalf("%v %v", first, second)
	}
	typ, mark := e.next()
	markObj := mark["rows"].([]any)[0].(map[string]any)["object"].(map[string]any)
	if typ != "BOOKMARK" || mark["kind"] != "Table" || !strings.Contains(fmt.Sprint(markObj), "initial-events-end") {
		t.Fatalf("%s %v", typ, mark)
	}
}

func TestPartialMetadata(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.configMaps(t, 2)
	c := f.metadata(t).Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
	l, err := c.List(ctx, metav1.ListOptions{})
	if err != nil || len(l.Items) != 2 || l.Items[0].Name != "c00" {
		t.Fatalf("%+v: %v", l, err)
	}
	_, _, body := f.call(t, call{method: "GET", path: nsPath + "/configmaps", accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"})
	m := decode(t, body)
	item := m["items"].([]any)[0].(map[string]any)
	if m["kind"] != "PartialObjectMetadataList" || item["kind"] != "PartialObjectMetadata" || item["apiVersion"] != "meta.k8s.io/v1" {
		t.Fatal(body)
	}
	if p, err := c.Get(ctx, "c01", metav1.GetOptions{}); err != nil || p.UID == "" {
		t.Fatalf("%+v: %v", p, err)
	}
}

// TestSplicedListsAreUpstreams compares lists put together from cached bytes with those of the serializers.
func TestSplicedListsAreUpstreams(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.configMaps(t, 3)
	one := int64(1)
	want := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: f.store.Revision().String(), RemainingItemCount: &one}}
	var entries []*storage.Entry
	f.store.Snapshot(storageOf("configmaps")).Ascend("default", "", func(e *storage.Entry) bool {
		entries = append(entries, e)
		if len(want.Items) < 2 {
			cm := e.Object.DeepCopyObject().(*corev1.ConfigMap)
			cm.TypeMeta = metav1.TypeMeta{}
			want.Items = append(want.Items, *cm)
		}
		return true
	})
	for _, m := range []media{mediaJSON, mediaYAML, mediaProtobuf} {
		_, _, body := f.call(t, call{method: "GET", path: nsPath + "/configmaps?limit=2", accept: m.contentType()})
		var got corev1.ConfigMapList
		if _, _, err := f.codecs.decoder(m, m != mediaProtobuf).Decode([]byte(body), nil, &got); err != nil {
			t.Fatal(err)
		}
		want.Continue = got.Continue
		b, err := f.codecs.encode(m, false, want)
		if err != nil {
			t.Fatal(err)
		}
		if m == mediaYAML { // its keys are sorted
			continue
		}
		if body != string(b) {
			t.Errorf("media %d:\n got %q\nwant %q", m, body, b)
		}
	}
	// And the envelope of a single object.
	e := entries[0]
	raw, err := encodeRaw(e.Object)
	if err != nil {
		t.Fatal(err)
	}
	ours := appendEnvelope(nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), raw)
	theirs, err := f.codecs.encode(mediaProtobuf, false, e.Object)
	if err != nil || !bytes.Equal(ours, theirs) {
		t.Errorf("envelope %q, want %q: %v", ours, theirs, err)
	}
}

func TestGzipOfLargeAnswers(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Data: map[string]string{"k": strings.Repeat("x", 200<<10)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, accept, want string }{
		{"big", "gzip", "gzip"}, {"small", "gzip", ""}, {"big", "", ""}, {"big", "deflate,gzip", "gzip"}, {"big", "gzip;q=1", ""},
	} {
		req := httptest.NewRequest("GET", nsPath+"/configmaps/"+c.name, nil)
		req.RemoteAddr = "127.0.0.1:1"
		req.Header.Set("Accept-Encoding", c.accept)
		rec := httptest.NewRecorder()
		f.Handler().ServeHTTP(rec, req)
		if got := rec.Header().Get("Content-Encoding"); rec.Code != 200 || got != c.want {
			t.Errorf("%v: %d, %q", c, rec.Code, got)
		}
	}
	for size, want := range map[int]string{mostPlain: "", mostPlain + 1: "gzip"} {
		req, rec := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		req.Header.Set("Accept-Encoding", "gzip")
		f.Server.send(rec, req, 200, typeJSON, make([]byte, size))
		if got := rec.Header().Get("Content-Encoding"); got != want {
			t.Errorf("%d bytes: %q", size, got)
		}
	}
	if cm, err := c.Get(ctx, "big", metav1.GetOptions{}); err != nil || len(cm.Data["k"]) != 200<<10 {
		t.Fatal(err)
	}
	code, _, _ := f.call(t, call{method: "POST", path: nsPath + "/configmaps", body: `{"metadata":{"name":"huge"},"data":{"k":"` + strings.Repeat("x", maxBody) + `"}}`})
	if code != 413 {
		t.Fatal(code)
	}
}
