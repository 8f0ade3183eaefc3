package controllers_test

import (
	"context"
	"flag"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/internal/held"
)

// still is a world in a bubble of synctest: the API is reached without a network, time passes only
// while nothing else happens, and what the controllers' caches see can be held back.
type still struct {
	world
	held *held.Transport // of the controllers
	end  func()          // of the controllers
}

// newStill is called within the bubble. The controllers run.
func newStill(t *testing.T) *still {
	t.Helper()
	l, store, srv := newAPI(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		srv.Close()
		store.Close()
	})
	w := &still{held: held.New(srv.Handler()), world: world{t: t, ctx: ctx, lab: l, log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}}
	w.client, w.meta = clientsOver(t, held.New(srv.Handler()))
	w.begin()
	t.Cleanup(func() { w.end() })
	return w
}

func clientsOver(t *testing.T, rt http.RoundTripper) (kubernetes.Interface, metadata.Interface) {
	t.Helper()
	hc, cfg := &http.Client{Transport: rt}, &rest.Config{Host: "http://api", QPS: -1}
	client, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	m, err := metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), hc)
	if err != nil {
		t.Fatal(err)
	}
	return client, m
}

// begin starts the controllers with caches of their own.
func (w *still) begin() {
	ctx, cancel := context.WithCancel(w.ctx)
	client, m := clientsOver(w.t, w.held)
	wait := w.play(ctx, func(ctx context.Context) {
		if err := controllers.Run(ctx, controllers.Config{Client: client, Metadata: m, Lab: w.lab, Log: w.log}); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.end = func() { cancel(); wait() }
	w.settle()
}

// settle waits until nothing happens any more, the first tries after a failure included.
func (w *still) settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// plays runs parts until the returned function is called, which waits for their ends.
func (w *still) plays(parts ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, parts...)
	return func() { cancel(); wait() }
}

// TestMain keeps the model tests short by default; -rapid.checks=N makes them thorough.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("15")
	}
	os.Exit(m.Run())
}
