package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/internal/host"
)

// shutdownWait is how long requests in flight may take when the cluster stops. Watches
// and event streams do not end by themselves; their contexts are cancelled first.
const shutdownWait = 500 * time.Millisecond

// maxStreams is how many requests share an HTTP/2 connection: a client with hundreds of watches needs no second one.
const maxStreams = 2000

func newHTTPServers(l net.Listener, id *identity, log zerolog.Logger) *httpServers {
	base, cancel := context.WithCancel(context.Background())
	h := &httpServers{split: newSplit(l), inside: newInside(base, log), cancel: cancel, log: log}
	make := func() *http.Server {
		return &http.Server{
			ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute, ErrorLog: stdlog.New(httpLog{log}, "", 0),
			BaseContext: func(net.Listener) context.Context { return base },
		}
	}
	h.tls, h.plain = make(), make()
	h.tls.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	h.tls.TLSConfig = &tls.Config{Certificates: []tls.Certificate{id.cert}, MinVersion: tls.VersionTLS12}
	if id.clients != nil { // who has a certificate of ours may show it; whether it holds is told by the answer
		h.tls.TLSConfig.ClientAuth, h.tls.TLSConfig.ClientCAs = tls.RequestClientCert, id.clients.pool
	}
	return h
}

// httpServers serve one handler on the one listener, in TLS and in plain HTTP.
type httpServers struct {
	split      *split
	inside     *inside
	thrift     *thrift // nil before serve
	tls, plain *http.Server
	cancel     context.CancelFunc // of every request
	wg         sync.WaitGroup
	log        zerolog.Logger
}

func (h *httpServers) serve(handler http.Handler) {
	h.thrift = newThrift(handler, host.GiveBack)
	h.tls.Handler, h.plain.Handler, h.inside.handler = h.thrift, h.thrift, h.thrift
	for _, f := range []func() error{
		h.split.run,
		func() error { return h.tls.ServeTLS(h.split.tls, "", "") },
		func() error { return h.plain.Serve(h.split.plain) },
	} {
		h.wg.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				h.log.Error().Err(err).Msg("the listener ended")
			}
		})
	}
}

func (h *httpServers) close() error {
	h.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	for _, s := range []*http.Server{h.tls, h.plain} {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
	h.inside.close(ctx)
	if h.thrift != nil {
		h.thrift.close()
	}
	err := h.split.Close()
	h.wg.Wait()
	return err
}

// httpLog keeps net/http's complaints at debug level: clients that hang up are no news.
type httpLog struct{ log zerolog.Logger }

func (l httpLog) Write(b []byte) (int, error) {
	l.log.Debug().Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}
