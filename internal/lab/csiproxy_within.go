package lab

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Conn is a connection to the proxy from within its process, or nil while it does not serve. It
// carries the unary calls of the CSI specification: they are recorded, meet faults and
// reach the driver like those that come over the socket.
func (p *Proxy) Conn() grpc.ClientConnInterface {
	if p.within.Taking() {
		return p.within
	}
	return nil
}

// call is an inprocess.Serve. The messages take the form that they have on the wire.
func (p *Proxy) call(ctx context.Context, full string, request proto.Message) (proto.Message, error) {
	m := methodOf(full)
	if !m.unary() {
		return nil, status.Errorf(codes.Unimplemented, "%s is not among CSI's unary methods; call it over the socket", full)
	}
	data, err := proto.Marshal(request)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "request of %s: %v", full, err)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	in := &withheld{ctx: ctx}
	c := &proxied{proxy: p, in: in, full: full, method: m, metadata: md, request: &frame{data: data}, known: m.decodeRequest(data)}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	reply := unmarshal(m.desc.Output(), in.sent)
	if reply == nil {
		return nil, status.Errorf(codes.Internal, "the answer of %s cannot be read", full)
	}
	return reply, nil
}

// withheld is the caller's side of a call within the process: it keeps the one message that is sent.
type withheld struct {
	grpc.ServerStream // nil: nothing else is asked of it
	ctx               context.Context
	sent              []byte
}

func (w *withheld) Context() context.Context     { return w.ctx }
func (w *withheld) SetHeader(metadata.MD) error  { return nil }
func (w *withheld) SendHeader(metadata.MD) error { return nil }
func (w *withheld) SetTrailer(metadata.MD)       {}

func (w *withheld) SendMsg(m any) error {
	w.sent = m.(*frame).data
	return nil
}
