package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// within is a client of h without a wire. Everything has ended when the test has.
func within(t *testing.T, h http.HandlerFunc) (*http.Client, *inside) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	base, cancel := context.WithCancel(context.Background())
	in := newInside(base, zerolog.Nop())
	in.handler = h
	t.Cleanup(func() {
		cancel()
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		in.close(ctx)
		goleak.VerifyNone(t, leaks)
	})
	return &http.Client{Transport: in}, in
}

func ask(t *testing.T, c *http.Client, method, body string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:7474/a/b?c=d", strings.NewReader(body))
	must(t, err)
	req.Header.Set("X-Asked", "yes")
	r, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

// What a handler sees and a caller gets is what they would over a wire.
func TestInsideIsAsAWire(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"echo": func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %s %v %s %q %v", r.Method, r.URL, r.RequestURI, r.Host, r.URL.IsAbs(), r.Header.Get("X-Asked"), b, err)
		},
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"code": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
		},
		"late header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "1")
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-A", "2")
			w.Header().Set("X-B", "2")
		},
		"sniffed": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html><body>") },
		"typed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "x/y")
			io.WriteString(w, "<html>")
		},
		"failure": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"long":    func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("0123456789"), 100_000)) },
		"in parts": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			io.WriteString(w, "b")
		},
	}
	for name, h := range handlers {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
			t.Run(name+" "+method, func(t *testing.T) {
				wire := httptest.NewServer(h)
				defer wire.Close()
				over := wire.Client()
				over.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", wire.Listener.Addr().String())
				}
				want, wantBody, err := ask(t, over, method, "sent")
				must(t, err)
				c, _ := within(t, h)
				got, gotBody, err := ask(t, c, method, "sent")
				must(t, err)
				want.Header.Del("Date")
				for _, k := range []string{"Content-Length"} { // a wire needs it, a caller reads ContentLength
					want.Header.Del(k)
					got.Header.Del(k)
				}
				if got.StatusCode != want.StatusCode || gotBody != wantBody {
					t.Errorf("answered %d %.200q, over a wire %d %.200q", got.StatusCode, gotBody, want.StatusCode, wantBody)
				}
				if method != http.MethodHead && want.ContentLength >= 0 && got.ContentLength != want.ContentLength {
					t.Errorf("content length %d, over a wire %d", got.ContentLength, want.ContentLength)
				}
				if d := cmp.Diff(want.Header, got.Header); d != "" {
					t.Errorf("headers (-wire +inside):\n%s", d)
				}
			})
		}
	}
}

func TestInsidePassesNoValues(t *testing.T) {
	type key struct{}
	c, _ := within(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Context().Value(key{})) })
	req, err := http.NewRequestWithContext(context.WithValue(t.Context(), key{}, "secret"), http.MethodGet, "http://127.0.0.1/", nil)
	must(t, err)
	r, err := c.Do(req)
	must(t, err)
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "<nil>" {
		t.Errorf("the handler sees %q of the caller's context", b)
	}
}

// A handler that breaks off has not answered: before the first byte that is no
// answer at all, after it one that is cut short.
func TestInsideBrokenOff(t *testing.T) {
	ends := map[string]func(){
		"abort": func() { panic(http.ErrAbortHandler) }, "panic": func() { panic("oh") }, "exit": runtime.Goexit,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			c, _ := within(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					io.WriteString(w, "half")
					w.(http.Flusher).Flush()
				}
				end()
			})
			if _, _, err := ask(t, c, http.MethodGet, ""); !errors.Is(err, io.EOF) {
				t.Errorf("no answer gives %v", err)
			}
			if _, b, err := ask(t, c, http.MethodPost, ""); !errors.Is(err, io.ErrUnexpectedEOF) || b != "half" {
				t.Errorf("half an answer gives %q, %v", b, err)
			}
		})
	}
}

// A caller that goes away ends the handler, whatever it waits for; what it gets is why it went.
func TestInsideCancel(t *testing.T) {
	for _, at := range []string{"before the answer", "while reading", "by closing"} {
		t.Run(at, func(t *testing.T) {
			ended := make(chan error, 1)
			c, _ := within(t, func(w http.ResponseWriter, r *http.Request) {
				if at != "before the answer" {
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
				_, err := io.WriteString(w, "more")
				ended <- err
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/", nil)
			must(t, err)
			if at == "before the answer" {
				cancel()
			}
			r, err := c.Do(req)
			switch at {
			case "before the answer":
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			case "while reading":
				must(t, err)
				cancel()
				if _, err := io.ReadAll(r.Body); !errors.Is(err, context.Canceled) {
					t.Errorf("reading gives %v", err)
				}
				r.Body.Close()
			case "by closing":
				must(t, err)
				r.Body.Close()
			}
			if err := <-ended; err == nil {
				t.Error("the handler could still write")
			}
		})
	}
}

// A handler is not ahead of its reader by more than a bound, and loses nothing.
func TestInsideSlowReader(t *testing.T) {
	var mu sync.Mutex
	written := 0
	const parts = 1000
	part := bytes.Repeat([]byte("x"), 1000)
	c, _ := within(t, func(w http.ResponseWriter, _ *http.Request) {
		for range parts {
			if _, err := w.Write(part); err != nil {
				return
			}
			mu.Lock()
			written += len(part)
			mu.Unlock()
		}
	})
	r, err := c.Get("http://127.0.0.1/")
	must(t, err)
	defer r.Body.Close()
	read, buf := 0, make([]byte, 700)
	for {
		n, err := r.Body.Read(buf)
		read += n
		mu.Lock()
		if lead := written - read; lead > ahead+2*len(part) {
			t.Errorf("the handler is %d bytes ahead", lead)
		}
		mu.Unlock()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
	}
	if read != parts*len(part) {
		t.Errorf("read %d bytes of %d", read, parts*len(part))
	}
}

// TestInsideForgetsWhatWasRead: a stream whose reader is always a byte behind keeps little of it.
func TestInsideForgetsWhatWasRead(t *testing.T) {
	a := &reply{asked: &http.Request{Method: http.MethodGet}, header: http.Header{}, head: make(chan struct{})}
	a.wake.L = &a.mu
	piece := bytes.Repeat([]byte("x"), 1000)
	_, err := a.Write(piece[:1])
	for i := 0; err == nil && i < 10_000; i++ {
		if _, err = a.Write(piece); err == nil {
			_, err = io.ReadFull(a, make([]byte, len(piece)))
		}
	}
	must(t, err)
	if kept := cap(a.buf); kept > 4*ahead {
		t.Errorf("%d bytes are kept", kept)
	}
}

func TestInsideClosed(t *testing.T) {
	c, in := within(t, func(http.ResponseWriter, *http.Request) {})
	_, _, err := ask(t, c, http.MethodGet, "")
	must(t, err)
	in.close(t.Context())
	if _, _, err := ask(t, c, http.MethodPost, "x"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end a request gives %v", err)
	}
}

// Callers side by side each get their own answer.
func TestInsideManyCallers(t *testing.T) {
	c, _ := within(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for j := range 20 {
				want := strings.Repeat(fmt.Sprint(i, "-", j, " "), 500)
				r, err := c.Post("http://127.0.0.1/", "text/plain", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || string(b) != want {
					t.Errorf("caller %d got %d bytes of %d: %v", i, len(b), len(want), err)
				}
			}
		})
	}
	wg.Wait()
}
