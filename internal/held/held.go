// Package held carries a client's requests to a handler in the same process, and
// holds watches back: what the client's caches show is then as old as a test wants it.
//
// Promises. There is no network and no lock that outlives a step, so that client and
// server live in one bubble of testing/synctest: Wait returns when all that a change
// sets going is over. A watch that is held passes nothing on, not even its end, until it
// is let go, or is let make a step: then it passes on what the server writes at once, which
// is one event if the test waited after each change. Requests that are no watch are never held.
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
	gates  map[string]*gate // guarded by mu: of the resources whose watches are held
	writes []string         // guarded by mu
}

// gate is in the way of the watches of one resource. Guarded by Transport.mu.
type gate struct {
	steps int           // that each watch may make
	news  chan struct{} // closed when steps grows or the gate is taken away
}

// New returns a transport to a handler.
func New(h http.Handler) *Transport {
	return &Transport{handler: h, gates: map[string]*gate{}}
}

// Hold holds back the watches of these resources, those that run and those to come.
func (t *Transport) Hold(resources ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range resources {
		if t.gates[r] == nil {
			t.gates[r] = &gate{news: make(chan struct{})}
		}
	}
}

// Step lets each held watch of a resource pass on one more write.
func (t *Transport) Step(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gates[resource]; g != nil {
		close(g.news)
		g.steps, g.news = g.steps+1, make(chan struct{})
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
			close(g.news)
			delete(t.gates, r)
		}
	}
}

// passage is one watch's way through the gates.
type passage struct {
	t        *Transport
	resource string
	gone     <-chan struct{} // the client
	at       *gate           // where it stood last
	made     int             // steps there
}

// wait returns when the watch may write, or its client is gone.
func (p *passage) wait() {
	for {
		p.t.mu.Lock()
		g := p.t.gates[p.resource]
		if g == nil {
			p.t.mu.Unlock()
			return
		}
		if p.at != g {
			p.at, p.made = g, 0
		}
		if p.made < g.steps {
			p.made++
			p.t.mu.Unlock()
			return
		}
		news := g.news
		p.t.mu.Unlock()
		select {
		case <-news:
		case <-p.gone:
			return
		}
	}
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
	resource := resourceOf(req.URL.Path)
	r, w := io.Pipe()
	a := &answer{header: http.Header{}, body: w, begun: make(chan struct{}), wait: func() {}}
	if req.URL.Query().Get("watch") != "" {
		a.wait = (&passage{t: t, resource: resource, gone: ctx.Done()}).wait
	}
	go func() {
		defer in.Body.Close()
		t.handler.ServeHTTP(a, in)
		a.WriteHeader(http.StatusOK)
		a.wait()
		w.Close()
	}()
	select {
	case <-a.begun:
	case <-ctx.Done():
		cancel()
		r.CloseWithError(ctx.Err())
		return nil, req.Context().Err()
	}
	over := context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	if req.Method != http.MethodGet && a.code < 300 && resource != "events" {
		t.mu.Lock()
		t.writes = append(t.writes, fmt.Sprintf("%s %s: %d", req.Method, req.URL.Path, a.code))
		t.mu.Unlock()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: &body{r, func() { over(); cancel(); r.CloseWithError(io.ErrClosedPipe) }}, ContentLength: -1, Request: req,
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
	wait   func()        // until something may be written
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
	a.wait()
	return a.body.Write(p)
}

// Flush has nothing to do: every byte that is written waits for its reader.
func (a *answer) Flush() {}

// body is the client's side.
type body struct {
	io.Reader
	end func()
}

func (b *body) Close() error { b.end(); return nil }
