package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/sock"
)

// grace is how long calls in flight may go on once the driver is asked to end.
const grace = 2 * time.Second

func (d *Driver) serve(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(d.cfg.Endpoint), 0o750); err != nil {
		return fmt.Errorf("serve CSI on %s: %w", d.cfg.Endpoint, err)
	}
	l, err := sock.Listen(d.cfg.Endpoint)
	if err != nil {
		return fmt.Errorf("serve CSI: %w", err)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(d.handle), grpc.WaitForHandlers(true))
	d.register(s)
	base, cut := context.WithCancel(context.Background())
	defer cut()
	d.local.Open(base)
	d.cfg.Log.Debug().Str("endpoint", d.cfg.Endpoint).Msg("serving CSI")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		d.stop(s, cut)
	}()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		cut()
		s.Stop()
		d.local.Wait()
		return fmt.Errorf("serve CSI on %s: %w", d.cfg.Endpoint, err)
	}
	<-stopped
	return nil
}

// stop ends the server. A killed driver gives its callers no grace.
func (d *Driver) stop(s *grpc.Server, cut func()) {
	d.local.Close()
	if c := d.cfg.Component; c == nil || !c.Killed() {
		done := make(chan struct{})
		go func() {
			s.GracefulStop()
			d.local.Wait()
			close(done)
		}()
		t := d.lab.Clock.NewTimer(grace)
		defer t.Stop()
		select {
		case <-done:
			return
		case <-t.C():
			cut()
			s.Stop()
			<-done
			return
		}
	}
	cut()
	s.Stop()
	d.local.Wait()
}

// handle is around every call: it joins the caller's trace and this driver's life
// to the context, keeps a panic inside the call, and turns the error into a status once.
func (d *Driver) handle(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	start := d.lab.Clock.Now()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = propagation.TraceContext{}.Extract(ctx, carrier(md))
	}
	if c := d.cfg.Component; c != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(lifeContext{ctx, c.Context()})
		defer cancel(nil)
		defer context.AfterFunc(c.Context(), func() { cancel(context.Cause(c.Context())) })()
	}
	defer func() {
		if p := recover(); p != nil {
			d.cfg.Log.Error().Str("method", info.FullMethod).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("a call panicked")
			err = errorf(codes.Internal, "the driver has a defect: panic in %s: %v", info.FullMethod, p)
		}
		if err != nil {
			resp, err = nil, toStatus(err)
		}
		d.record(req, info.FullMethod, start, err)
	}()
	return next(ctx, req)
}

func (d *Driver) record(req any, method string, start time.Time, err error) {
	e := d.cfg.Log.Debug()
	if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
		e = d.cfg.Log.Error()
	} else if err != nil {
		e = d.cfg.Log.Warn()
	}
	if !e.Enabled() {
		return
	}
	e = e.Str("method", method[strings.LastIndexByte(method, '/')+1:]).Str("code", status.Code(err).String()).
		Dur("took", d.lab.Clock.Since(start)).Stringer("request", protosanitizer.StripSecrets(req))
	if err != nil {
		e = e.Str("error", status.Convert(err).Message())
	}
	e.Msg("call")
}

// lifeContext is a call's context in which the values of the component's can be found too.
type lifeContext struct {
	context.Context
	life context.Context
}

func (c lifeContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.life.Value(key)
}

// carrier reads trace headers from gRPC metadata.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}
func (carrier) Set(string, string) {}
func (carrier) Keys() []string     { return nil }
