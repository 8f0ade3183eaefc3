package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"drydock.dev/drydock/internal/sock"
)

// frame is one message as it is on the wire.
type frame struct{ data []byte }

// rawCodec moves messages without looking into them.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("pass on a message of type %T: not a frame", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("take in a message of type %T: not a frame", v)
	}
	f.data = data.Materialize()
	return nil
}

// answer is what came back from the driver and what of it is still to be sent.
type answer struct {
	header, trailer metadata.MD
	message         *frame // held back, of a known unary method
	body            string // for the record
	learned         learned
}

// frameMetadata hands on headers, where they have not gone out yet, and trailers.
func (a *answer) frameMetadata(in grpc.ServerStream) error {
	if a == nil {
		return nil
	}
	in.SetTrailer(a.trailer)
	if len(a.header) == 0 {
		return nil
	}
	return in.SetHeader(a.header)
}

func (a *answer) deliver(in grpc.ServerStream) error {
	if err := a.frameMetadata(in); err != nil || a.message == nil {
		return err
	}
	return in.SendMsg(a.message)
}

// open starts the call at the driver.
func (c *proxied) open(ctx context.Context) (grpc.ClientStream, func(), error) {
	cc, release, err := c.proxy.upstream.get()
	if err != nil {
		return nil, nil, status.Error(codes.Unavailable, err.Error())
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, passed(c.metadata)))
	out, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.full,
		grpc.ForceCodecV2(rawCodec{}), grpc.CallContentSubtype(subtype(c.metadata)))
	if err != nil {
		cancel()
		release()
		return nil, nil, err
	}
	return out, func() { cancel(); release() }, nil
}

// passed is the metadata without what belongs to the transport or to us.
func passed(md metadata.MD) metadata.MD {
	md = md.Copy()
	for k := range md {
		if strings.HasPrefix(k, ":") || strings.HasPrefix(k, "grpc-") && k != "grpc-trace-bin" && k != "grpc-tags-bin" ||
			k == "content-type" || k == "user-agent" || k == "te" || k == ComponentKey {
			delete(md, k)
		}
	}
	return md
}

// subtype is the caller's message format; "proto" where it names none.
func subtype(md metadata.MD) string {
	if v := md.Get("content-type"); len(v) > 0 {
		if sub, ok := strings.CutPrefix(v[0], "application/grpc"); ok && len(sub) > 1 {
			return sub[1:]
		}
	}
	return ""
}

// unary passes one request on and holds its answer back.
func (c *proxied) unary(ctx context.Context) (*answer, error) {
	if cc := c.local(); cc != nil {
		return c.direct(ctx, cc)
	}
	out, done, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	// A failed send means that the driver has answered already; the reason comes from RecvMsg.
	if err := out.SendMsg(c.request); err == nil {
		err = out.CloseSend()
		if err != nil {
			return nil, err
		}
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	a := &answer{message: &frame{}}
	err = out.RecvMsg(a.message)
	if err == nil {
		if err = out.RecvMsg(&frame{}); err == nil {
			err = status.Errorf(codes.Internal, "driver answered %s with more than one message", c.full)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	} else if errors.Is(err, io.EOF) {
		err = status.Errorf(codes.Internal, "driver answered %s with no message", c.full)
	}
	a.trailer = passed(out.Trailer())
	if h, herr := out.Header(); herr == nil {
		a.header = passed(h)
	}
	if err != nil {
		a.message = nil
		return a, err
	}
	a.body, a.learned = c.method.decodeResponse(a.message.data, c.known)
	return a, nil
}

// largestLocal is the size up to which a request need not meet the limits of a socket's receiver.
const largestLocal = 1 << 20

// local is the connection within this process, if this call can take it.
func (c *proxied) local() grpc.ClientConnInterface {
	f := c.proxy.cfg.Local
	if sub := subtype(c.metadata); f == nil || c.known.message == nil || len(c.request.data) > largestLocal || sub != "" && sub != "proto" {
		return nil
	}
	return f()
}

// direct is unary for a driver in this process.
func (c *proxied) direct(ctx context.Context, cc grpc.ClientConnInterface) (*answer, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(c.method.desc.Output().FullName())
	if err != nil {
		return nil, status.Errorf(codes.Internal, "answer of %s: %v", c.full, err)
	}
	reply := t.New().Interface()
	if err := cc.Invoke(metadata.NewOutgoingContext(ctx, passed(c.metadata)), c.full, c.known.message, reply); err != nil {
		return nil, err
	}
	data, err := proto.Marshal(reply)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "answer of %s: %v", c.full, err)
	}
	a := &answer{message: &frame{data: data}}
	a.body, a.learned = recordResponse(reply, c.known)
	return a, nil
}

// stream passes messages both ways as they come, for methods whose shape is not
// known and for those that stream.
func (c *proxied) stream(ctx context.Context) (*answer, error) {
	out, done, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	var sent, received size
	go func() {
		for {
			f := &frame{}
			if err := c.in.RecvMsg(f); err != nil {
				if errors.Is(err, io.EOF) {
					_ = out.CloseSend() // its failure shows in RecvMsg below
				}
				return
			}
			sent.add(len(f.data))
			if out.SendMsg(f) != nil {
				return
			}
		}
	}()
	// The receiving goroutine ends with the caller's stream, hence after this
	// handler; done cancels the driver's side, which it may still hold.
	defer done()

	a := &answer{}
	for first := true; ; first = false {
		f := &frame{}
		err = out.RecvMsg(f)
		if first {
			if h, herr := out.Header(); herr == nil {
				if herr = c.in.SendHeader(passed(h)); herr != nil {
					return a, herr
				}
			}
		}
		if err != nil {
			break
		}
		received.add(len(f.data))
		if err = c.in.SendMsg(f); err != nil {
			return a, err
		}
	}
	a.trailer = passed(out.Trailer())
	a.body = fmt.Sprintf(`{"sent":%q,"received":%q}`, sent.String(), received.String())
	if errors.Is(err, io.EOF) {
		return a, nil
	}
	return a, err
}

// size counts what went one way.
type size struct {
	mu              sync.Mutex
	messages, bytes int // guarded by mu
}

func (s *size) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages++
	s.bytes += n
}

func (s *size) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d messages, %d bytes", s.messages, s.bytes)
}

// upstream holds the one connection to a driver.
//
// gRPC puts ever longer pauses between attempts to connect, during which calls fail
// without trying. A fresh caller would try, so a connection in that state is given
// up and the next call starts a new one.
type upstream struct {
	path string

	mu   sync.Mutex
	conn *connection // guarded by mu
	shut bool        // guarded by mu
}

type connection struct {
	*grpc.ClientConn
	users   int  // guarded by upstream.mu
	retired bool // guarded by upstream.mu
}

func (u *upstream) get() (*grpc.ClientConn, func(), error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut {
		return nil, nil, errors.New("the proxy is closing")
	}
	if c := u.conn; c != nil {
		if s := c.GetState(); s == connectivity.TransientFailure || s == connectivity.Shutdown {
			c.retired = true
			u.drop(c)
			u.conn = nil
		}
	}
	if u.conn == nil {
		cc, err := grpc.NewClient("passthrough:///driver",
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return sock.Dial(ctx, u.path) }),
			grpc.WithAuthority("localhost"), // as a client of a unix socket sends it
			grpc.WithIdleTimeout(0),
			grpc.WithDisableServiceConfig(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
		if err != nil {
			return nil, nil, fmt.Errorf("connect to driver at %s: %w", u.path, err)
		}
		u.conn = &connection{ClientConn: cc}
	}
	c := u.conn
	c.users++
	return c.ClientConn, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		c.users--
		u.drop(c)
	}, nil
}

// drop closes a retired connection that nobody uses. The caller holds mu.
func (u *upstream) drop(c *connection) {
	if c.retired && c.users == 0 {
		c.Close()
	}
}

func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shut = true
	if u.conn != nil {
		u.conn.Close()
		u.conn = nil
	}
}
