package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"drydock.dev/drydock/internal/lab"
)

// running is a server under test, with the API it follows.
type running struct {
	*httptest.Server
	web *Server
	api *fake.Clientset
	lab *lab.Lab

	stop func()
	done chan error // Run's answer
}

func start(t *testing.T) *running {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	r := &running{api: fake.NewClientset(), lab: lab.New(lab.Options{})}
	var err error
	r.web, err = New(Config{Client: r.api, Lab: r.lab, Log: zerolog.Nop(), Version: "v0", ClusterName: "test", Mode: "sim: a test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.done = stop, make(chan error, 1)
	go func() { r.done <- r.web.Run(ctx) }()
	r.Server = httptest.NewServer(r.web.Handler())
	t.Cleanup(func() {
		stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		r.CloseClientConnections()
		r.Close()
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, leaks)
	})
	return r
}

func (r *running) snapshot(t *testing.T) snapshot {
	t.Helper()
	resp, err := http.Get(r.URL + "/ui/v1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("snapshot: %s %v", resp.Status, resp.Header)
	}
	var s snapshot
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// message is one server-sent event.
type message struct{ id, event, data string }

// listen opens a stream; last is a Last-Event-ID, or empty for the query's position.
func (r *running) listen(t *testing.T, query, last string) (next func() message, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, "GET", r.URL+"/ui/v1/events"+query, nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<24)
	return func() message {
		var m message
		for lines.Scan() {
			k, v, _ := strings.Cut(lines.Text(), ": ")
			switch k {
			case "id":
				m.id = v
			case "event":
				m.event = v
			case "data":
				m.data = v
			case "":
				if m.event != "" {
					return m
				}
			}
		}
		return message{event: "closed"}
	}, resp.Header
}

func (r *running) node(t *testing.T, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if _, err := r.api.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestStreamStartsWhereTheSnapshotEnds(t *testing.T) {
	r := start(t)
	s := r.snapshot(t)
	if s.Rev == 0 || len(s.Objects) != 1 || !bytes.Contains(s.Objects[0], []byte(`"key":"cluster"`)) {
		t.Fatalf("snapshot %+v", s)
	}
	r.node(t, "n1") // between the snapshot and the stream
	next, header := r.listen(t, fmt.Sprintf("?epoch=%s&rev=%d", s.Epoch, s.Rev), "")
	if header.Get("Content-Type") != "text/event-stream" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", header)
	}
	var m message
	for m = next(); !strings.Contains(m.data, "node/n1"); m = next() {
		if m.event != "batch" {
			t.Fatalf("%+v", m)
		}
	}
	r.node(t, "n2")
	for m2 := next(); !strings.Contains(m2.data, "node/n2"); m2 = next() {
		if m2.event != "batch" {
			t.Fatalf("%+v", m2)
		}
	}
	// A browser that comes back sends the id it saw last, whatever its address says.
	again, _ := r.listen(t, fmt.Sprintf("?epoch=%s&rev=0", s.Epoch), m.id)
	if m := again(); m.event != "batch" || !strings.Contains(m.data, "node/n2") || strings.Contains(m.data, "node/n1") {
		t.Errorf("after the reconnection came %+v", m)
	}
}

func TestStreamOfAnotherProcessIsReset(t *testing.T) {
	r := start(t)
	r.snapshot(t)
	for _, last := range []string{"ffffff.3", "rubbish"} {
		next, _ := r.listen(t, "", last)
		if m := next(); m.event != "reset" || m.data != `{"reason":"epoch"}` || m.id != "" {
			t.Errorf("%+v", m)
		}
		if m := next(); m.event != "closed" {
			t.Errorf("after the reset came %+v", m)
		}
	}
}

// TestWhoLooksSeesWhatIsKnown: what waits because nobody looks does not wait for who does.
func TestWhoLooksSeesWhatIsKnown(t *testing.T) {
	r := start(t)
	r.snapshot(t)
	r.node(t, "n1")
	begin := time.Now()
	for !bytes.Contains(bytes.Join(asBytes(r.snapshot(t).Objects), nil), []byte(`"key":"node/n1"`)) {
	}
	if took := time.Since(begin); took >= unwatched/2 {
		t.Errorf("a snapshot shows the node after %s", took)
	}
}

func asBytes(raw []json.RawMessage) [][]byte {
	var out [][]byte
	for _, m := range raw {
		out = append(out, m)
	}
	return out
}

func TestStreamBeyondTheRingIsReset(t *testing.T) {
	r := start(t)
	s := r.snapshot(t)
	for i := range r.web.hub.limits.ring + 1 {
		r.web.hub.publish(map[string]json.RawMessage{"node/x": raw(i)}, nil, nil)
	}
	next, _ := r.listen(t, "", fmt.Sprintf("%s.%d", s.Epoch, s.Rev))
	if m := next(); m.event != "reset" || m.data != `{"reason":"compacted"}` {
		t.Errorf("%+v", m)
	}
}

// blockedWriter is a client that takes nothing until it is let.
type blockedWriter struct {
	httptest.ResponseRecorder
	entered chan struct{}
	let     chan struct{}
}

func (b *blockedWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("event: batch")) {
		select {
		case b.entered <- struct{}{}:
			<-b.let
		default:
		}
	}
	return b.Body.Write(p)
}
func (b *blockedWriter) WriteString(s string) (int, error) { return b.Write([]byte(s)) }
func (b *blockedWriter) Flush()                            {}

func TestSlowClientIsToldAndStopsNobody(t *testing.T) {
	r := start(t)
	s := r.snapshot(t)
	w := &blockedWriter{ResponseRecorder: *httptest.NewRecorder(), entered: make(chan struct{}, 1), let: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		req := httptest.NewRequest("GET", "/ui/v1/events", nil)
		req.Header.Set("Last-Event-ID", fmt.Sprintf("%s.%d", s.Epoch, s.Rev))
		r.web.Handler().ServeHTTP(w, req)
	}()
	r.web.hub.publish(map[string]json.RawMessage{"node/x": raw(0)}, nil, nil)
	<-w.entered
	for i := range r.web.hub.limits.lag + 1 { // never waits for the blocked client
		r.web.hub.publish(map[string]json.RawMessage{"node/x": raw(i + 1)}, nil, nil)
	}
	close(w.let)
	<-ended
	if !strings.HasSuffix(w.Body.String(), "event: reset\ndata: {\"reason\":\"slow\"}\n\n") {
		t.Errorf("the stream ended with %q", w.Body.String())
	}
}

// timed is a connection that notes its deadlines.
type timed struct {
	*httptest.ResponseRecorder
	set []bool // whether a deadline is in force, at each write and at the end
	now bool
}

func (w *timed) SetWriteDeadline(t time.Time) error {
	w.now = !t.IsZero()
	return nil
}

func (w *timed) Write(b []byte) (int, error) {
	w.set = append(w.set, w.now)
	return w.ResponseRecorder.Write(b)
}

func TestSnapshotUnreadIsGivenUp(t *testing.T) {
	r := start(t)
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	r.web.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ui/v1/snapshot", nil))
	if w.Code != http.StatusOK || len(w.set) == 0 || slices.Contains(w.set, false) || w.now {
		t.Errorf("status %d; deadlines at writes %v, after them %v", w.Code, w.set, w.now)
	}
}

func TestByeAtTheEnd(t *testing.T) {
	r := start(t)
	s := r.snapshot(t)
	next, _ := r.listen(t, fmt.Sprintf("?epoch=%s&rev=%d", s.Epoch, s.Rev), "")
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil
	r.CloseClientConnections() // as the process would at its end: what was sent until now has to do
	for m := next(); ; m = next() {
		if m.event == "bye" {
			break
		}
		if m.event != "batch" {
			t.Fatalf("%+v", m)
		}
	}
	if m := next(); m.event != "closed" {
		t.Errorf("after bye came %+v", m)
	}
}

func TestKeepaliveEvery15Seconds(t *testing.T) {
	r := start(t)
	s := r.snapshot(t)
	req, _ := http.NewRequest("GET", fmt.Sprintf("%s/ui/v1/events?epoch=%s&rev=%d", r.URL, s.Epoch, s.Rev), nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if lines.Scan(); lines.Text() != "retry: 1000" {
		t.Errorf("the stream begins with %q", lines.Text())
	}
	go r.lab.Clock.(*lab.Clock).Advance(16 * time.Second)
	for lines.Scan() {
		if lines.Text() == ": keepalive" {
			return
		}
	}
	t.Error("no keepalive came")
}

func TestPageAndFiles(t *testing.T) {
	r := start(t)
	get := func(path string, gz bool) (*http.Response, string) {
		req, _ := http.NewRequest("GET", r.URL+path, nil)
		if gz {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body io.Reader = resp.Body
		if gz {
			if body, err = gzip.NewReader(resp.Body); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		data, _ := io.ReadAll(body)
		return resp, string(data)
	}
	resp, page := get("/", false)
	if !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'self';") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", resp.Header)
	}
	if strings.Contains(page, "style=") || strings.Contains(page, "{{") || strings.Contains(page, "onclick") {
		t.Error("the page holds what its own policy forbids, or a placeholder")
	}
	dir := "/a/" + r.web.assets.hash
	for _, f := range []string{"/app.js", "/views/volume.js", "/stream-worker.js", "/css/tokens.css", "/favicon.svg"} {
		resp, _ := get(dir+f, false)
		if resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %s %v", f, resp.Status, resp.Header)
		}
	}
	for _, f := range []string{"/a/0000000000000000/app.js", dir + "/index.html", dir + "/../web.go", dir + "/nope.js", dir + "/"} {
		if resp, _ := get(f, false); resp.StatusCode != 404 {
			t.Errorf("%s: %s", f, resp.Status)
		}
	}
	if resp, _ := get("/favicon.ico", false); resp.StatusCode != 200 {
		t.Errorf("favicon: %s", resp.Status)
	}
	if _, body := get("/ui/v1/snapshot", true); !strings.Contains(body, `"epoch"`) {
		t.Errorf("snapshot: %s", body)
	}
	resp, err := http.Post(r.URL+"/ui/v1/snapshot", "application/json", nil)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", resp.Status, err)
	}
	resp.Body.Close()
}
