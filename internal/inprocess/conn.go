// Package inprocess carries unary gRPC calls to a server of the same process, without a socket.
//
// As over a socket, nothing of the caller's context but its deadline, its end and its metadata
// reaches a call, and a caller whose time is up goes on while the call ends by itself. The
// server copies what it keeps of a message. There are no headers and no trailers.
package inprocess

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Serve answers one call: it reads request and returns the answer, or an error that is a status.
type Serve func(ctx context.Context, method string, request proto.Message) (proto.Message, error)

// Conn is a grpc.ClientConnInterface. Make it with New.
type Conn struct {
	server string // for people
	serve  Serve

	mu    sync.Mutex
	base  context.Context // guarded by mu: of the calls; nil while none are taken
	calls sync.WaitGroup  // added to under mu
}

// New returns a connection to a server, named for people, that takes no calls yet.
func New(server string, serve Serve) *Conn { return &Conn{server: server, serve: serve} }

// Open takes calls until base ends or Close is called.
func (c *Conn) Open(base context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
}

// Close takes no more calls. Those that were taken go on.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = nil
}

// Wait returns when the calls that were taken have ended.
func (c *Conn) Wait() { c.calls.Wait() }

// Taking says whether calls are taken.
func (c *Conn) Taking() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base != nil && c.base.Err() == nil
}

// begin is the context of a call's own that lasts as long as ctx, or nil where no calls are taken.
func (c *Conn) begin(ctx context.Context) (call, base context.Context, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base == nil || c.base.Err() != nil {
		return nil, nil, nil
	}
	c.calls.Add(1)
	call, cancel := context.WithCancel(c.base)
	if deadline, ok := ctx.Deadline(); ok {
		var late context.CancelFunc
		call, late = context.WithDeadline(call, deadline)
		both := cancel
		cancel = func() { late(); both() }
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		call = metadata.NewIncomingContext(call, md)
	}
	stop := context.AfterFunc(ctx, cancel)
	return call, c.base, func() {
		stop()
		cancel()
		c.calls.Done()
	}
}

// Invoke is grpc.ClientConnInterface's. The request is the server's to read until the call has ended,
// which may be after Invoke has.
func (c *Conn) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	in, ok := request.(proto.Message)
	out, also := reply.(proto.Message)
	if !ok || !also {
		return status.Errorf(codes.Internal, "call %s with %T and %T: not messages", method, request, reply)
	}
	call, base, end := c.begin(ctx)
	if call == nil {
		return status.Errorf(codes.Unavailable, "call %s: %s takes no calls: it is not running", method, c.server)
	}
	type outcome struct {
		message proto.Message
		err     error
		late    bool // the server had been cut off by then
	}
	done := make(chan outcome, 1)
	go func() {
		defer end()
		message, err := c.serve(call, method, in)
		done <- outcome{message, err, base.Err() != nil}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-base.Done():
		select {
		case o = <-done: // it was answered before
		default:
			o.late = true
		}
	}
	switch {
	case o.late:
		return status.Errorf(codes.Unavailable, "call %s: %s ended in the middle of it", method, c.server)
	case o.err != nil:
		return o.err
	}
	proto.Merge(out, o.message)
	return nil
}

// NewStream is grpc.ClientConnInterface's. What streams goes over a socket.
func (c *Conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("a call within the process does not stream")
}

var _ grpc.ClientConnInterface = (*Conn)(nil)
