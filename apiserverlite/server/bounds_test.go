package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TestBodyThatDoesNotCome: a client that announces a body and does not send it is answered when its time is up, over
// either version of HTTP, and has no place among the requests at hand any more.
func TestBodyThatDoesNotCome(t *testing.T) {
	f := start(t, "", newTestRegistry())
	over2 := httptest.NewUnstartedServer(f.Handler())
	over2.EnableHTTP2 = true
	over2.StartTLS()
	defer over2.Close()
	const path = nsPath + "/configmaps?timeout=100ms"
	t.Run("HTTP/1", func(t *testing.T) {
		c, err := net.Dial("tcp", f.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout {
			t.Fatal(resp.Status)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		silent, hush := net.Pipe()
		defer silent.Close()
		defer hush.Close()
		req, err := http.NewRequest(http.MethodPost, over2.URL+path, silent)
		if err != nil {
			t.Fatal(err)
		}
		client := over2.Client()
		client.Timeout = time.Minute
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout || resp.ProtoMajor != 2 {
			t.Fatal(resp.Proto, resp.Status)
		}
	})
	q := f.inFlight.small
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free != smallPlaces {
		t.Fatalf("%d of %d places are free", q.free, smallPlaces)
	}
}

// TestPatchThatGrows doubles an object with each operation.
func TestPatchThatGrows(t *testing.T) {
	f := start(t, "", newTestRegistry())
	f.expect(t, 201, call{method: "POST", path: nsPath + "/configmaps", body: `{"metadata":{"name":"a"},"data":{"k":"v"}}`})
	var ops []string
	for i := range 20 {
		ops = append(ops, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/c%d"}`, i))
	}
	body := f.expect(t, 422, call{method: "PATCH", path: nsPath + "/configmaps/a", ct: string(types.JSONPatchType), body: "[" + strings.Join(ops, ",") + "]"})
	if len(body) > 1000 { // the refusal of what came of it shows it
		t.Fatalf("it was patched, and refused for its %d bytes", len(body))
	}
}

// TestObjectThatGrows: each request is small enough, what they would come to is not. What there is may go.
func TestObjectThatGrows(t *testing.T) {
	f := start(t, "", newTestRegistry())
	const path = nsPath + "/configmaps"
	f.expect(t, 201, call{method: "POST", path: path, body: `{"metadata":{"name":"a"}}`})
	grow := func(code int, key string) string {
		t.Helper()
		return f.expect(t, code, call{method: "PATCH", path: path + "/a", ct: string(types.MergePatchType), body: `{"data":{"` + key + `":"` + strings.Repeat("x", 1<<20) + `"}}`})
	}
	grow(200, "a")
	if said := grow(413, "b"); !strings.Contains(said, "the limit is 1572864") {
		t.Error(said)
	}
	f.expect(t, 200, call{method: "DELETE", path: path + "/a"})
}

// TestManyWarnings: there are as many as upstream sends, whatever a body gives cause for.
func TestManyWarnings(t *testing.T) {
	var ws warnings
	for i := range 1_000_000 {
		ws.add(fmt.Sprintf("unknown field \"spec.%0300d\"", i))
	}
	h := http.Header{}
	ws.write(h)
	if n := len(h["Warning"]); n != warningsRunes/warningRunes {
		t.Errorf("%d long warnings", n)
	}
	for _, w := range h["Warning"] {
		if got := utf8.RuneCountInString(w); got > warningRunes+len(`299 - ""`)+2 {
			t.Fatalf("a warning has %d letters: %s", got, w)
		}
	}
	ws, h = warnings{}, http.Header{}
	ws.add(strings.Repeat("x", 1000), strings.Repeat("y", 1000), strings.Repeat("x", 1000))
	ws.write(h)
	if len(h["Warning"]) != 2 || !strings.Contains(h["Warning"][1], strings.Repeat("y", 1000)) {
		t.Errorf("what fits is changed: %q", h["Warning"])
	}
}

// TestManagerOfAgent: managedFields hold whole letters, and no more of them than may stand there.
func TestManagerOfAgent(t *testing.T) {
	for agent, want := range map[string]string{
		"kubectl/v1.37":                      "kubectl",
		"":                                   "unknown",
		"/1":                                 "unknown",
		"\x07bell\u200b":                     "bell",
		strings.Repeat("a", 127) + "é, more": strings.Repeat("a", 127),
		strings.Repeat("é", 100):             strings.Repeat("é", 64),
	} {
		x := &exchange{r: httptest.NewRequest(http.MethodGet, "/", nil)}
		x.r.Header.Set("User-Agent", agent)
		if got := x.manager(""); got != want {
			t.Errorf("the manager of %q is %q, not %q", agent, got, want)
		}
	}
	if got := (&exchange{}).manager("mine"); got != "mine" {
		t.Error(got)
	}
}

// TestScaleOfWhatIsGone: the definition goes between the arrival of a request and its work.
func TestScaleOfWhatIsGone(t *testing.T) {
	f := startReal(t, "")
	f.define(t, vaultDefinition)
	res, ok := f.lookup(info{group: "dock.example.com", version: "v1", resource: "vaults"})
	if !ok {
		t.Fatal("the kind is not served")
	}
	x := &exchange{s: f.Server, res: res}
	if paths, err := x.replicasPaths(); err != nil || len(paths) != 2 {
		t.Fatal(paths, err)
	}
	f.expect(t, 200, call{method: "DELETE", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/vaults.dock.example.com"})
	if _, err := x.replicasPaths(); status(err).Code != http.StatusNotFound {
		t.Fatal(err)
	}
	if _, still := f.defined().byGVR[schema.GroupVersionResource{Group: "dock.example.com", Version: "v1", Resource: "vaults"}]; still {
		t.Fatal("it is still served")
	}
}

// slowToCut is a connection whose deadline takes time to set, as it may on a busy machine.
type slowToCut struct {
	*httptest.ResponseRecorder
	entered, release chan struct{}
}

func (c *slowToCut) SetReadDeadline(time.Time) error {
	close(c.entered)
	<-c.release
	return nil
}

// lastByte is a body whose client goes away as it ends.
type lastByte struct {
	leave   func()
	entered chan struct{}
}

func (b lastByte) Read([]byte) (int, error) {
	b.leave()
	<-b.entered
	return 0, io.EOF
}

// TestClientLeavesWithItsLastByte: nothing is done to a connection once its handler has returned. Over HTTP/2 that was the end of the process.
func TestClientLeavesWithItsLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowToCut{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(lastByte{leave, w.entered}))
		r.ContentLength = -1
		x := &exchange{r: r, time: ctx, conn: http.NewResponseController(w)}
		returned := false
		go func() {
			x.read()
			returned = true
		}()
		<-w.entered
		synctest.Wait()
		if returned {
			t.Error("the body is read, and its connection being cut still")
		}
		close(w.release)
		synctest.Wait()
		if !returned {
			t.Error("it waits for more than that")
		}
	})
}
