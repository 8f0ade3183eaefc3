package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // a caller that compresses is served as the driver would serve it
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/inprocess"
	"drydock.dev/drydock/internal/sock"
)

// ComponentKey is the request metadata by which a caller says who it is, over
// ProxyConfig.Caller. It is not passed on to the driver.
const ComponentKey = "drydock-component"

// DefaultBodyLimit bounds a recorded request or response when ProxyConfig says nothing.
const DefaultBodyLimit = 2048

// ProxyConfig describes the tap on one driver socket.
type ProxyConfig struct {
	// Listen is the socket that callers use. Its directory must exist.
	Listen string
	// Target is the driver's own socket. It need not exist yet, and may come and go.
	Target string
	// Local is a connection to the driver where it runs in this process, and nil while it does
	// not. Unary calls of the CSI specification take it instead of the socket. It may be nil.
	Local func() grpc.ClientConnInterface
	// Lab gives the rules and the timeline.
	Lab *Lab
	// Caller names who calls where the call itself does not say: by the metadata
	// ComponentKey, or by a user agent "drydock-<component>".
	Caller string
	// Node is the node whose plugin this is; empty for the controller's socket.
	Node string
	// BodyLimit bounds each recorded request and response, in bytes; zero means DefaultBodyLimit.
	BodyLimit int
	Log       zerolog.Logger
}

// Proxy is a transparent gRPC proxy on a CSI socket: callers and drivers need not
// know that it is there.
//
// What it passes on unchanged: every method, known or not, unary or streaming; the
// message bytes; metadata, deadlines, cancellation, headers, trailers and status
// details. A driver that is not there gives Unavailable at once, each time anew, as
// dialling its socket would. One connection to the driver is kept, made on first use. A
// driver in this process, reached over Local, gets equal messages, metadata and deadlines.
// Callers of this process may take Conn instead of the socket.
//
// What it adds: one span for each call, and the faults. The spans of the methods of
// the CSI specification carry the volume, and request and response as JSON without
// secrets; those of other methods only their sizes. No secret reaches the log or the
// timeline: fields marked csi_secret and service account tokens are stripped, and
// their values are cut out of error texts and echoes too.
//
// Late-ok and lost withhold the answer of a known method. In other streams the
// messages have gone out by then and only the closing status is withheld.
type Proxy struct {
	cfg      ProxyConfig
	listener net.Listener
	upstream *upstream
	within   *inprocess.Conn
}

// NewProxy starts listening. Calls wait until Serve runs.
func NewProxy(cfg ProxyConfig) (*Proxy, error) {
	if cfg.Lab == nil {
		return nil, errors.New("start CSI proxy: no lab")
	}
	if cfg.BodyLimit <= 0 {
		cfg.BodyLimit = DefaultBodyLimit
	}
	l, err := sock.Listen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("start CSI proxy for %s: %w", cfg.Target, err)
	}
	p := &Proxy{cfg: cfg, listener: l, upstream: &upstream{path: cfg.Target}}
	p.within = inprocess.New("CSI proxy on "+cfg.Listen, p.call)
	return p, nil
}

// Serve passes calls on until ctx ends, then cuts what is in flight, removes the
// socket and returns when the last handler has ended. It may be called once.
func (p *Proxy) Serve(ctx context.Context) error {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.WaitForHandlers(true),
	)
	base, cut := context.WithCancel(ctx)
	defer cut()
	p.within.Open(base)
	var stopped sync.WaitGroup
	done := make(chan struct{})
	stopped.Go(func() {
		select {
		case <-ctx.Done():
			s.Stop()
		case <-done:
		}
	})
	err := s.Serve(p.listener)
	close(done)
	stopped.Wait()
	s.Stop()
	p.within.Close()
	cut()
	p.within.Wait()
	p.upstream.close()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve CSI proxy on %s: %w", p.cfg.Listen, err)
	}
	return nil
}

// handle serves one call.
func (p *Proxy) handle(_ any, in grpc.ServerStream) error {
	ctx := in.Context()
	full, _ := grpc.MethodFromServerStream(in)
	m := methodOf(full)
	md, _ := metadata.FromIncomingContext(ctx)
	c := &proxied{proxy: p, in: in, full: full, method: m, metadata: md}

	if m.unary() {
		c.request = &frame{}
		if err := in.RecvMsg(c.request); err != nil {
			return err
		}
		c.known = m.decodeRequest(c.request.data)
	}
	return c.run(ctx)
}

// caller finds out who calls.
func (p *Proxy) caller(md metadata.MD) string {
	if v := md.Get(ComponentKey); len(v) > 0 && v[0] != "" {
		return v[0]
	}
	if v := md.Get("user-agent"); len(v) > 0 {
		agent, _, _ := strings.Cut(v[0], " ")
		if name, ok := strings.CutPrefix(agent, "drydock-"); ok {
			kind, _, _ := strings.Cut(name, "/")
			return kind
		}
	}
	return p.cfg.Caller
}

// proxied is one call on its way.
type proxied struct {
	proxy    *Proxy
	in       grpc.ServerStream
	full     string
	method   method
	metadata metadata.MD
	request  *frame // of a known unary method
	known    decoded
}

// run records the call and applies the rules to it.
func (c *proxied) run(ctx context.Context) error {
	lab := c.proxy.cfg.Lab
	volume := lab.Timeline.canonical(c.known.volume)
	call := Call{Component: c.proxy.caller(c.metadata), Node: c.proxy.cfg.Node, Kind: KindCSI, Op: c.method.name, Volume: volume}
	if volume != c.known.volume {
		call.Handle = c.known.volume
	}
	attrs := map[string]string{"rpc.method": c.full}
	if body := c.known.json(); body != "" {
		attrs["request"] = bounded(body, c.proxy.cfg.BodyLimit)
	}
	_, sp := lab.Timeline.Start(ctx, SpanOptions{Op: call.Op, Volume: volume, Component: call.Component, Node: call.Node, Attrs: attrs})

	var answer *answer
	err := lab.Faults.Do(ctx, call, func(ctx context.Context) (err error) {
		if c.request != nil {
			answer, err = c.unary(ctx)
		} else {
			answer, err = c.stream(ctx)
		}
		return err
	})
	if answer != nil {
		if answer.body != "" {
			sp.Set("response", bounded(answer.body, c.proxy.cfg.BodyLimit))
		}
		lab.Timeline.Alias(answer.learned.handle, answer.learned.name) // even if the caller is not to learn it
	}
	fault := AsError(err)
	if fault != nil {
		answer = nil
		sp.Set("fault", fault.Rule+" "+string(fault.Action))
		if fault.Action == Lost {
			<-ctx.Done() // the answer is dropped: the caller learns by its own deadline
		}
	}
	st := faultStatus(ctx, err, fault)
	if st.Code() == codes.OK {
		sp.End(codes.OK.String(), nil)
		return answer.deliver(c.in)
	}
	text := c.known.censor(st.Message())
	sp.End(st.Code().String(), errors.New(text))
	c.proxy.cfg.Log.Debug().Str("method", call.Op).Str("component", call.Component).Str("node", call.Node).
		Str("volume", volume).Str("code", st.Code().String()).Msg(text)
	if err := answer.frameMetadata(c.in); err != nil {
		return err
	}
	return st.Err()
}

// faultStatus is the status that the caller sees for err.
func faultStatus(ctx context.Context, err error, fault *Error) *status.Status {
	switch {
	case err == nil:
		return status.New(codes.OK, "")
	case fault == nil:
		if st, ok := status.FromError(err); ok {
			return st
		}
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err())
		}
		return status.New(codes.Unknown, err.Error())
	case fault.Action == Lost:
		return status.FromContextError(ctx.Err())
	case fault.Action == LateOK && fault.Code != "":
		return status.New(codeNamed(fault.Code), fault.Text)
	case fault.Action == LateOK:
		return status.New(codes.DeadlineExceeded, fault.Text)
	case fault.Action == Fail:
		return status.New(codeNamed(fault.Code), fault.Text)
	default:
		return status.New(codes.Unavailable, fault.Text)
	}
}

// codeNamed understands "InvalidArgument" and "INVALID_ARGUMENT"; no name is Internal, an unknown one Unknown.
func codeNamed(name string) codes.Code {
	if name == "" {
		return codes.Internal
	}
	plain := strings.ReplaceAll(name, "_", "")
	for c := codes.OK + 1; c <= codes.Unauthenticated; c++ {
		if strings.EqualFold(plain, c.String()) || strings.EqualFold(plain, "cancelled") && c == codes.Canceled {
			return c
		}
	}
	return codes.Unknown
}
