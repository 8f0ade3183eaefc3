// Package held carries a client's requests to a handler in the same process, and
// holds watches back: what the client's caches show is then as old as a test wants it.
//
// Promises. There is no network and no lock that outlives a step, so that client and
// server live in one bubble of testing/synctest: Wait returns when all that a change
// sets going is over. A watch that is held passes nothing on, not even its end, until it
// is let go; then it passes on all of it. Requests that are no watch are never held.
package held

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Transport is an http.RoundTripper. Make it with New.
type Transport struct {
	handler http.Handler

	mu     sync.Mutex
	gates  map[string]chan struct{} // guarded by mu: by resource, closed by LetGo
	writes []string                 // guarded by mu
}

// New returns a transport to a handler.
func New(h http.Handler) *Transport {
	return &Transport{handler: h, gates: map[string]chan struct{}{}}
}

// Hold holds back the watches of these resources, those that run and those to come.
func (t *Transport) Hold(resources ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range resources {
		if t.gates[r] == nil {
			t.gates[r] = make(chan struct{})
		}
	}
}

// LetGo lets the watches of these resources go on; of all, if none is named.
func (t *Transport) LetGo(resources ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(resources) == 0 {
		for r := range t.gates {
			resources = append(resources, r)
		}
	}
	for _, r := range resources {
		if g := t.gates[r]; g != nil {
			close(g)
			delete(t.gates, r)
		}
	}
}

func (t *Transport) gate(resource string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gates[resource]
}

// Writes returns the requests that changed something since it was last asked, as "PUT /path: 200".
// Events are left out.
func (t *Transport) Writes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.writes
	t.writes = nil
	return w
}

// RoundTrip has the handler answer.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	in := req.Clone(ctx)
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:1"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	r, w := io.Pipe()
	a := &answer{header: http.Header{}, body: w, begun: make(chan struct{})}
	go func() {
		defer in.Body.Close()
		t.handler.ServeHTTP(a, in)
		a.WriteHeader(http.StatusOK)
		w.Close()
	}()
	select {
	case <-a.begun:
	case <-ctx.Done():
		cancel()
		r.CloseWithError(ctx.Err())
		return nil, req.Context().Err()
	}
	resource := resourceOf(req.URL.Path)
	over := context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	body := &body{Reader: r, gone: ctx.Done(), end: func() { over(); cancel(); r.CloseWithError(io.ErrClosedPipe) }}
	if req.URL.Query().Get("watch") != "" {
		body.gate = func() <-chan struct{} { return t.gate(resource) }
	}
	if req.Method != http.MethodGet && a.code < 300 && resource != "events" {
		t.mu.Lock()
		t.writes = append(t.writes, fmt.Sprintf("%s %s: %d", req.Method, req.URL.Path, a.code))
		t.mu.Unlock()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body, ContentLength: -1, Request: req,
	}, nil
}

// resourceOf finds the resource in a path of the Kubernetes API.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 1 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 2 && parts[0] == "apis":
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return ""
	}
	return parts[0]
}

// answer is the server's side of one request. One goroutine writes it.
type answer struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan struct{} // closed with the header
	code   int           // set before begun is closed
	sent   http.Header   // likewise
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code, a.sent = code, a.header.Clone()
		close(a.begun)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush has nothing to do: every byte that is written waits for its reader.
func (a *answer) Flush() {}

// body is the client's side.
type body struct {
	io.Reader
	gate func() <-chan struct{} // nil for what is no watch
	gone <-chan struct{}
	end  func()
}

// Read passes on what came only while the gate is open.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.gate != nil {
		for g := b.gate(); g != nil; g = b.gate() {
			select {
			case <-g:
			case <-b.gone:
				return 0, context.Canceled
			}
		}
	}
	return n, err
}

func (b *body) Close() error { b.end(); return nil }
