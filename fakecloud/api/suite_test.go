package api_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
)

// TestMain demands, after a whole run, that the tests asked for every route at least once.
func TestMain(m *testing.M) {
	flag.Parse()
	// The model test is short by default; -rapid.checks=N makes it thorough.
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("8")
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if whole := flag.Lookup("test.run").Value.String() == "" && !testing.Short(); whole && code == 0 && os.Geteuid() == 0 {
		for _, route := range api.Routes() {
			if _, asked := asked.Load(route); !asked && !strings.Contains(route, "/metadata/") {
				fmt.Fprintln(os.Stderr, "no test asked for", route)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// asked collects the routes that the tests asked for.
var asked sync.Map

const token = "test-token"

// world is a cloud behind a real port, with an unmodified godo in front of it.
type world struct {
	testing.TB
	cloud   *fakecloud.Cloud
	lab     *lab.Lab
	devices blockdev.Backend
	server  *httptest.Server
	handler http.Handler
	do      *godo.Client
	dir     string
	log     chan api.Request

	weightless bool // its volumes have no images, on purpose
}

// each runs a test against both backends.
func each(t *testing.T, test func(*world)) {
	for _, kind := range []string{"sim", "loop"} {
		t.Run(kind, func(t *testing.T) { test(newWorld(t, kind, fakecloud.Config{})) })
	}
}

// both runs a test with a configuration of its own against both backends.
func both(t *testing.T, cfg fakecloud.Config, test func(*testing.T, *world)) {
	for _, kind := range []string{"sim", "loop"} {
		t.Run(kind, func(t *testing.T) { test(t, newWorld(t, kind, cfg)) })
	}
}

// sim runs a test that has nothing to do with devices.
func sim(t *testing.T, cfg fakecloud.Config) *world { return newWorld(t, "sim", cfg) }

func newWorld(t *testing.T, kind string, cfg fakecloud.Config) *world {
	t.Helper()
	return newWorldAt(t, kind, cfg, lab.New(lab.Options{}))
}

func newWorldAt(t testing.TB, kind string, cfg fakecloud.Config, l *lab.Lab) *world {
	t.Helper()
	if kind == "loop" && os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("loop devices need root, and CI must not skip them")
		}
		t.Skip("loop devices need root")
	}
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := blockdev.Options{Lab: l, Links: func(d string) string { return filepath.Join(dir, "nodes", d, "dev/disk/by-id") }}
	w := &world{TB: t, lab: l, dir: dir, log: make(chan api.Request, 10000)}
	if kind == "loop" {
		w.devices, err = blockdev.NewLoop(filepath.Join(dir, "cloud"), o)
	} else {
		w.devices, err = blockdev.NewSim(filepath.Join(dir, "cloud"), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.devices.Close() })
	t.Cleanup(func() { w.cloud.Close() })
	t.Cleanup(w.noLeftovers)
	w.reopen(cfg)
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.handler.ServeHTTP(rw, r) }))
	t.Cleanup(w.server.Close)
	w.do = w.client(token)
	return w
}

// reopen opens the cloud on the world's files.
func (w *world) reopen(cfg fakecloud.Config) {
	w.Helper()
	cfg.DB, cfg.Devices, cfg.Lab, cfg.Log = filepath.Join(w.dir, "cloud.db"), w.devices, w.lab, zerolog.Nop()
	var err error
	w.cloud, err = fakecloud.Open(w.Context(), cfg)
	w.must(err)
	w.handler = api.New(w.cloud, api.Config{Token: token, OnRequest: func(r api.Request) {
		asked.Store(r.Method+" "+r.Route, true)
		select {
		case w.log <- r:
		default: // nobody reads it
		}
	}})
}

func (w *world) client(token string) *godo.Client {
	c, err := godo.New(&http.Client{Transport: &http.Transport{}}, godo.SetBaseURL(w.server.URL+"/"), godo.SetRequestHeaders(map[string]string{"Authorization": "Bearer " + token}))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.HTTPClient.CloseIdleConnections)
	return c
}

func (w *world) noLeftovers() {
	if w.weightless {
		return
	}
	left, err := w.cloud.Leftovers(context.Background())
	// A process beside us that looks for a free loop device keeps ours for a moment.
	passing := func(l fakecloud.Leftover) bool { return strings.Contains(l.Why, "another process") }
	for end := time.Now().Add(time.Minute); err == nil && slices.ContainsFunc(left, passing) && time.Now().Before(end); {
		runtime.Gosched()
		left, err = w.cloud.Leftovers(context.Background())
	}
	if err != nil {
		w.Error(err)
	}
	for _, l := range left {
		w.Errorf("left over: %s", l)
	}
}

func (w *world) droplet(name string) int {
	w.Helper()
	id, err := w.cloud.EnsureDroplet(w.Context(), name)
	w.must(err)
	return int(id)
}

func (w *world) volume(name string, gib int64) *godo.Volume {
	w.Helper()
	v, _, err := w.do.Storage.CreateVolume(w.Context(), &godo.VolumeCreateRequest{Name: name, Region: "nyc3", SizeGigaBytes: gib})
	w.must(err)
	return v
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// done waits for an action that a POST returned and gives its end.
func (w *world) done(a *godo.Action, _ *godo.Response, err error) *godo.Action {
	w.Helper()
	w.must(err)
	if a.Status != "in-progress" || a.CompletedAt != nil {
		w.Errorf("the POST of action %d answers %s, completed %v; it must be in progress", a.ID, a.Status, a.CompletedAt)
	}
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	if _, err := w.cloud.Wait(ctx, fakecloud.ActionID(a.ID)); err != nil {
		w.Fatal(err)
	}
	end, _, err := w.do.Actions.Get(w.Context(), a.ID)
	w.must(err)
	return end
}

func (w *world) completed(a *godo.Action, r *godo.Response, err error) *godo.Action {
	w.Helper()
	end := w.done(a, r, err)
	if end.Status != "completed" || end.CompletedAt == nil {
		w.Fatalf("action %d ended %s at %v", end.ID, end.Status, end.CompletedAt)
	}
	return end
}

// refused checks an error's status and message, letter for letter.
func (w *world) refused(err error, status int, message string) {
	w.Helper()
	var e *godo.ErrorResponse
	if !errors.As(err, &e) {
		w.Fatalf("got %v, not an API error with status %d", err, status)
	}
	if e.Response.StatusCode != status || e.Message != message {
		w.Errorf("got %d %q, want %d %q", e.Response.StatusCode, e.Message, status, message)
	}
	if e.RequestID == "" {
		w.Error("the error has no request id")
	}
}

func benchWorld(b *testing.B) *world {
	return newWorldAt(b, "sim", fakecloud.Config{}, lab.New(lab.Options{}))
}
