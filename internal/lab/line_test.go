package lab

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// server answers "ok", and a watch with what is sent to events until its caller goes.
func server(t *testing.T) (url string, events chan string) {
	events = make(chan string, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			io.WriteString(w, "ok")
			return
		}
		http.NewResponseController(w).Flush()
		for {
			select {
			case e := <-events:
				io.WriteString(w, e)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, events
}

func get(ctx context.Context, l *Line, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return l.RoundTrip(req)
}

func TestCutLine(t *testing.T) {
	url, _ := server(t)
	f := New(Options{}).Faults
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, other := f.Line("attacher", http.DefaultTransport), f.Line("kubelet/n1", http.DefaultTransport)
	watch, err := get(ctx, l, url+"/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Add(Rule{Action: Cut}); err == nil {
		t.Error("everybody could be cut off at once")
	}
	h, err := f.Add(Rule{Action: Cut, Component: "attacher"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Body.Read(make([]byte, 1)); err == nil {
		t.Error("what was under way did not break off")
	}
	watch.Body.Close()
	if resp, err := get(ctx, other, url); err != nil {
		t.Errorf("another component's line is cut too: %v", err)
	} else {
		resp.Body.Close()
	}
	short, end := context.WithCancel(ctx)
	go func() {
		if err := h.WaitFired(ctx, 2); err != nil { // the watch and this one
			t.Error(err)
		}
		end()
	}()
	if _, err := get(short, l, url); !errors.Is(err, context.Canceled) {
		t.Errorf("a request on a line that is cut: %v", err)
	}
	answered := make(chan error)
	go func() {
		resp, err := get(ctx, l, url)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	if err := h.WaitFired(ctx, 3); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	h.Remove()
	if !l.IsCut() {
		t.Error("the end of a rule healed what somebody else cut")
	}
	l.Heal()
	if err := <-answered; err != nil {
		t.Errorf("a request that waited for the line: %v", err)
	}
}

func TestStaleWatch(t *testing.T) {
	url, events := server(t)
	f := New(Options{}).Faults
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := f.Line("controllers", http.DefaultTransport)
	watch, err := get(ctx, l, url+"/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	h, err := f.Add(Rule{Action: Stale, Component: "controllers", Kind: KindAPI, Op: "watch pods"})
	if err != nil {
		t.Fatal(err)
	}
	events <- "one"
	read := make(chan string)
	go func() {
		b := make([]byte, 3)
		io.ReadFull(watch.Body, b)
		read <- string(b)
	}()
	if err := h.WaitFired(ctx, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-read:
		t.Errorf("the watch delivered %q", got)
	default:
	}
	h.Release()
	if got := <-read; got != "one" {
		t.Errorf("after the release the watch delivered %q", got)
	}
	events <- "two" // and what follows comes through
	b := make([]byte, 3)
	if _, err := io.ReadFull(watch.Body, b); err != nil || string(b) != "two" {
		t.Errorf("then it delivered %q, %v", b, err)
	}
}
