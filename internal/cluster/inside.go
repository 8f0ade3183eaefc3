package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// inside carries the requests of this process's own components to the handler that
// the listener serves, with no connection between: the same requests, headers and
// bodies, without the bytes of a wire. As over a wire, nothing of the caller's
// context but its end reaches the handler, a handler that aborts breaks the
// answer off, and one whose caller reads slowly waits.
type inside struct {
	handler http.Handler
	log     zerolog.Logger
	base    context.Context // of every request
	jobs    chan *reply     // to idle workers; unbuffered

	mu     sync.Mutex
	idle   int            // guarded by mu: workers that wait for jobs
	closed bool           // guarded by mu
	wg     sync.WaitGroup // of workers; added to under mu
}

func newInside(base context.Context, log zerolog.Logger) *inside {
	return &inside{base: base, log: log, jobs: make(chan *reply)}
}

const (
	insideAddr  = "inside"
	idleWorkers = 32       // kept with their stacks, which requests would have to grow anew
	headFrom    = 4 << 10  // bytes of an answer that go out without a flush
	ahead       = 64 << 10 // bytes that an answer may be ahead of its reader
)

// RoundTrip is http.RoundTripper's.
func (t *inside) RoundTrip(req *http.Request) (*http.Response, error) {
	a := &reply{asked: req, header: http.Header{}, head: make(chan struct{})}
	a.wake.L = &a.mu
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(t.base)
	a.request = arrived(ctx, req)
	if err := t.start(a); err != nil {
		a.cancel()
		a.request.Body.Close()
		return nil, err
	}
	gone := req.Context().Done()
	select {
	case <-a.head:
	case <-gone:
		a.abandon(context.Cause(req.Context()))
		return nil, req.Context().Err()
	}
	return a.response(context.AfterFunc(req.Context(), func() { a.abandon(req.Context().Err()) }))
}

// arrived is a request as the server's side sees it.
func arrived(ctx context.Context, req *http.Request) *http.Request {
	r := req.WithContext(ctx)
	u := *req.URL
	u.Scheme, u.Host, u.User, u.Fragment = "", "", nil, ""
	r.URL, r.RequestURI, r.RemoteAddr = &u, u.RequestURI(), insideAddr
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.Header = req.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	return r
}

// start gives the request to an idle worker, or to a new one.
func (t *inside) start(a *reply) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return &net.OpError{Op: "dial", Net: insideAddr, Err: net.ErrClosed}
	}
	if t.idle > 0 {
		t.idle--
		t.jobs <- a // somebody waits, or is about to
		return nil
	}
	t.wg.Go(func() { t.work(a) })
	return nil
}

// work serves requests until there are enough idle workers without this one.
func (t *inside) work(a *reply) {
	for a != nil {
		t.serve(a)
		t.mu.Lock()
		stay := !t.closed && t.idle < idleWorkers
		if stay {
			t.idle++
		}
		t.mu.Unlock()
		if !stay {
			return
		}
		a = <-t.jobs
	}
}

// serve runs the handler. A handler that panics, or whose goroutine ends in it, has not answered.
func (t *inside) serve(a *reply) {
	whole := false
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // recovered values are compared as net/http does
			t.log.Error().Interface("panic", v).Str("path", a.request.URL.Path).Msg("request panicked")
		}
		a.end(whole)
		a.request.Body.Close()
		a.cancel()
	}()
	t.handler.ServeHTTP(a, a.request)
	whole = true
}

// close refuses new requests and waits for those in flight as long as ctx lasts; base ends before.
func (t *inside) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	for ; t.idle > 0; t.idle-- {
		t.jobs <- nil
	}
	t.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// reply is the answer to one request: the handler writes it, the caller reads it.
type reply struct {
	asked, request *http.Request // as sent, as received
	cancel         context.CancelFunc
	header         http.Header   // the handler's
	head           chan struct{} // closed as soon as code and sent stand
	stop           func() bool   // of watching the caller's context; the reader's

	mu     sync.Mutex
	wake   sync.Cond   // of reader and writer
	code   int         // guarded by mu; zero before the handler has said
	sent   http.Header // guarded by mu; as it was then
	out    bool        // guarded by mu: head is closed
	buf    []byte      // guarded by mu; written and not read
	read   int         // guarded by mu; bytes of buf that are read
	ended  bool        // guarded by mu: nothing follows
	broken error       // guarded by mu: why reading ends early
	gone   bool        // guarded by mu: the caller does not read any more
}

// Header is http.ResponseWriter's.
func (a *reply) Header() http.Header { return a.header }

// WriteHeader is http.ResponseWriter's.
func (a *reply) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fix(code)
}

// fix settles code and header. The caller holds mu.
func (a *reply) fix(code int) {
	if a.code != 0 || code < 200 {
		return // a second time, or an interim answer
	}
	a.code, a.sent = code, a.header.Clone()
}

// release lets the caller go on. The caller of it holds mu.
func (a *reply) release() {
	if !a.out {
		a.out = true
		close(a.head)
	}
}

var errGone = errors.New("the caller has gone away")

// Write is http.ResponseWriter's.
func (a *reply) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.code == 0 {
		if a.header.Get("Content-Type") == "" {
			a.header.Set("Content-Type", http.DetectContentType(b))
		}
		a.fix(http.StatusOK)
	}
	if a.asked.Method == http.MethodHead {
		return len(b), nil
	}
	for len(a.buf)-a.read > ahead && !a.gone {
		a.release()
		a.wake.Wait()
	}
	if a.gone {
		return 0, errGone
	}
	if a.read > ahead { // who never reads all of it must not keep what was read
		a.buf, a.read = a.buf[:copy(a.buf, a.buf[a.read:])], 0
	}
	a.buf = append(a.buf, b...)
	if len(a.buf) >= headFrom {
		a.release()
	}
	if a.out {
		a.wake.Broadcast()
	}
	return len(b), nil
}

// Flush is http.Flusher's.
func (a *reply) Flush() { _ = a.FlushError() }

// FlushError is what http.ResponseController asks for.
func (a *reply) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fix(http.StatusOK)
	a.release()
	if a.gone {
		return errGone
	}
	return nil
}

// SetWriteDeadline is http.ResponseController's. No deadline is needed for memory: abandon ends every wait.
func (a *reply) SetWriteDeadline(time.Time) error { return nil }

// end ends the answer where the handler ended.
func (a *reply) end(whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	switch {
	case whole:
		a.fix(http.StatusOK)
	case a.broken == nil:
		a.broken = io.ErrUnexpectedEOF
	}
	a.release()
	a.wake.Broadcast()
}

// abandon ends the request: the caller is gone, and reads err from now on.
func (a *reply) abandon(err error) {
	a.mu.Lock()
	if !a.gone {
		a.gone = true
		if !a.ended && a.broken == nil {
			a.broken = err
		}
	}
	a.wake.Broadcast()
	a.mu.Unlock()
	a.cancel()
}

// response is the answer, once its head stands.
func (a *reply) response(stop func() bool) (*http.Response, error) {
	a.stop = stop
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.code == 0 { // broken off before the first word
		stop()
		if a.broken != nil && a.broken != io.ErrUnexpectedEOF { //nolint:errorlint // set here
			return nil, a.broken
		}
		return nil, io.EOF
	}
	r := &http.Response{
		Status: strconv.Itoa(a.code) + " " + http.StatusText(a.code), StatusCode: a.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.sent, Request: a.asked, Body: a, ContentLength: -1,
	}
	switch n, err := strconv.ParseInt(a.sent.Get("Content-Length"), 10, 64); {
	case err == nil:
		r.ContentLength = n
	case a.ended:
		r.ContentLength = int64(len(a.buf))
	}
	return r, nil
}

// Read is the body's.
func (a *reply) Read(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		switch {
		case a.gone && a.broken != nil:
			return 0, a.broken
		case a.read < len(a.buf):
			n := copy(b, a.buf[a.read:])
			a.read += n
			if a.read == len(a.buf) {
				a.buf, a.read = a.buf[:0], 0
				a.wake.Broadcast()
			}
			return n, nil
		case a.broken != nil:
			return 0, a.broken
		case a.ended:
			return 0, io.EOF
		}
		a.wake.Wait()
	}
}

// Close is the body's.
func (a *reply) Close() error {
	if a.stop != nil {
		a.stop()
	}
	a.abandon(net.ErrClosed)
	return nil
}
