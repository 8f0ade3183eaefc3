package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// events reads the frames of a JSON watch.
type events struct {
	t    *testing.T
	resp *http.Response
	scan *bufio.Scanner
}

func (f *fixture) watch(t *testing.T, path, accept string) *events {
	t.Helper()
	req, err := http.NewRequest("GET", f.http.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp := f.do(t, req)
	if resp.StatusCode != 200 {
		t.Fatalf("watch: %s", resp.Status)
	}
	return &events{t, resp, bufio.NewScanner(resp.Body)}
}

// next returns "TYPE name label@" of the next event.
func (e *events) next() (string, map[string]any) {
	e.t.Helper()
	if !e.scan.Scan() {
		e.t.Fatalf("the watch ended: %v", e.scan.Err())
	}
	var ev struct {
		Type   string
		Object map[string]any
	}
	if err := json.Unmarshal(e.scan.Bytes(), &ev); err != nil {
		e.t.Fatal(err)
	}
	return ev.Type, ev.Object
}

func TestWatchList(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.configMaps(t, 3)
	for _, query := range []string{"", "&labelSelector=none%3Dsuch"} {
		e := f.watch(t, nsPath+"/configmaps?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"+query, "")
		for i := 0; query == "" && i < 3; i++ {
			if typ, o := e.next(); typ != "ADDED" || name(o) != fmt.Sprintf("c%02d", i) {
				t.Fatalf("%s %v", typ, o)
			}
		}
		typ, o := e.next()
		m := o["metadata"].(map[string]any)
		if typ != "BOOKMARK" || o["kind"] != "ConfigMap" || versionOf(o) != f.store.Revision().String() || fmt.Sprint(m["annotations"]) != "map[k8s.io/initial-events-end:true]" {
			t.Fatalf("%s %v", typ, o)
		}
	}
	// Without a revision, the same events come without a bookmark.
	e := f.watch(t, nsPath+"/configmaps?watch=true", "")
	for range 3 {
		if typ, _ := e.next(); typ != "ADDED" {
			t.Fatal(typ)
		}
	}
	up := f.configMapsTouch(t, "c01")
	if typ, o := e.next(); typ != "MODIFIED" || versionOf(o) != up.ResourceVersion {
		t.Fatalf("%s %v", typ, o)
	}
}

func TestWatchSelectorTransitions(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	rv := f.store.Revision().String()
	e := f.watch(t, nsPath+"/configmaps?watch=1&labelSelector=on%3Dyes&resourceVersion="+rv, "")
	set := func(on string) string {
		t.Helper()
		cm, err := c.Get(ctx, "a", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			cm, err = c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"on": on}}}, metav1.CreateOptions{})
		} else if err == nil {
			cm.Labels["on"] = on
			cm.Data = map[string]string{"v": cm.ResourceVersion}
			cm, err = c.Update(ctx, cm, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return cm.ResourceVersion
	}
	set("no")
	want := []string{"ADDED " + set("yes"), "MODIFIED " + set("yes"), "DELETED " + set("no")}
	set("no")
	want = append(want, "ADDED "+set("yes"))
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want = append(want, "DELETED "+f.store.Revision().String())
	for i, w := range want {
		typ, o := e.next()
		if got := typ + " " + versionOf(o); got != w {
			t.Fatalf("event %d: %s, want %s", i, got, w)
		}
		if i == 2 && o["metadata"].(map[string]any)["labels"].(map[string]any)["on"] != "yes" {
			t.Fatalf("leaving shows %v", o)
		}
	}
}

func TestWatchEndsInTime(t *testing.T) {
	t.Parallel()
	f := start(t, "", newTestRegistry())
	begin := time.Now()
	e := f.watch(t, nsPath+"/configmaps?watch=true&timeoutSeconds=1&resourceVersion="+f.store.Revision().String(), "")
	if e.scan.Scan() {
		t.Fatalf("event: %s", e.scan.Text())
	}
	if d := time.Since(begin); d < 900*time.Millisecond || d > 40*time.Second {
		t.Fatalf("ended after %s", d)
	}
	// The last seconds of a longer one begin with a bookmark, if something has happened elsewhere.
	e = f.watch(t, nsPath+"/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion="+f.store.Revision().String(), "")
	f.configMaps(t, 1)
	if typ, o := e.next(); typ != "BOOKMARK" || versionOf(o) != f.store.Revision().String() {
		t.Fatalf("%s %v", typ, o)
	}
	// Closing the server ends a watch cleanly.
	e = f.watch(t, nsPath+"/pods?watch=true&resourceVersion="+f.store.Revision().String(), "")
	f.Server.Close()
	if e.scan.Scan() || e.scan.Err() != nil {
		t.Fatalf("%q %v", e.scan.Text(), e.scan.Err())
	}
}

// TestSlowWatcher has a client that does not read: it is cut off, others and writers go on, and it
// misses nothing when it comes back.
func TestSlowWatcher(t *testing.T) {
	f := start(t, "", newTestRegistry())
	c := f.typed(t).CoreV1().ConfigMaps("default")
	cm, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rv := cm.ResourceVersion
	slow := f.watch(t, nsPath+"/configmaps?watch=true&resourceVersion="+rv, "")
	quick, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: rv})
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Stop()
	big := strings.Repeat("x", 500<<10)
	for i := range 40 { // more than a socket's buffers hold
		cm.Data = map[string]string{"n": fmt.Sprint(i), "big": big}
		if cm, err = c.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if ev := <-quick.ResultChan(); ev.Object.(*corev1.ConfigMap).Data["n"] != fmt.Sprint(i) {
			t.Fatalf("quick watcher got %v", ev.Object.(*corev1.ConfigMap).Data["n"])
		}
	}
	slow.scan.Buffer(nil, 4<<20)
	for i := range 40 {
		_, o := slow.next()
		if got := o["data"].(map[string]any)["n"]; got != fmt.Sprint(i) {
			t.Fatalf("slow watcher got %v, want %d", got, i)
		}
	}
}

// TestLaggingWatcherIsCutOff ends the stream of a client that is more than the queue behind, with a 410 and not
// in silence. What it has got has no gap, and from there it can go on while the window reaches back so far.
func TestLaggingWatcherIsCutOff(t *testing.T) {
	f := startWith(t, "", Config{Registry: newTestRegistry(), WatchQueue: 4})
	c := f.typed(t).CoreV1().ConfigMaps("default")
	cm, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rv := cm.ResourceVersion
	slow := f.watch(t, nsPath+"/configmaps?watch=true&resourceVersion="+rv, "")
	slow.scan.Buffer(nil, 4<<20)
	const n = 60
	big := strings.Repeat("x", 500<<10)
	for i := range n {
		cm.Data = map[string]string{"n": fmt.Sprint(i), "big": big}
		if cm, err = c.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	got, told := 0, 0
	read := func(e *events) {
		for e.scan.Scan() {
			var ev struct {
				Type   string
				Object corev1.ConfigMap
			}
			if err := json.Unmarshal(e.scan.Bytes(), &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Type == "ERROR" {
				if o := decode(t, e.scan.Text())["object"].(map[string]any); o["code"] != float64(410) || o["reason"] != "Expired" {
					t.Fatalf("the stream ends with %v", o)
				}
				if e.scan.Scan() {
					t.Fatalf("after the end of the stream: %.200s", e.scan.Text())
				}
				told++
				return
			}
			if ev.Object.Data["n"] != fmt.Sprint(got) {
				t.Fatalf("event %s, want %d", ev.Object.Data["n"], got)
			}
			got, rv = got+1, ev.Object.ResourceVersion
			if got == n {
				return
			}
		}
	}
	read(slow)
	if got == n || told != 1 {
		t.Fatalf("the stream was not cut, or not with 410: %d events, told %d times", got, told)
	}
	for got < n {
		again := f.watch(t, nsPath+"/configmaps?watch=true&resourceVersion="+rv, "")
		again.scan.Buffer(nil, 4<<20)
		read(again)
	}
}
