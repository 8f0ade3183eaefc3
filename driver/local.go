package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// local carries unary calls to the driver within its process. As over its socket, nothing
// of the caller's context but its deadline, its end and its metadata reaches a call, messages
// are copied, and a caller whose time is up goes on while the call ends by itself. The
// driver sets no headers and no trailers, and there are none here.
type local struct {
	methods map[string]localMethod // by full name; constant
	handle  grpc.UnaryServerInterceptor

	mu    sync.Mutex
	base  context.Context // guarded by mu: of the calls; nil while none are taken
	calls sync.WaitGroup  // added to under mu
}

type localMethod struct {
	grpc.MethodDesc
	service any
}

func newLocal(handle grpc.UnaryServerInterceptor) *local {
	return &local{methods: map[string]localMethod{}, handle: handle}
}

// RegisterService is grpc.ServiceRegistrar's.
func (l *local) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		l.methods["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{m, service}
	}
}

// open takes calls until base ends or close is called.
func (l *local) open(base context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = base
}

// close takes no more calls.
func (l *local) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = nil
}

// begin is the context of a call's own that lasts as long as ctx, or nil where the driver takes no calls.
func (l *local) begin(ctx context.Context) (call, base context.Context, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.base == nil || l.base.Err() != nil {
		return nil, nil, nil
	}
	l.calls.Add(1)
	call, cancel := context.WithCancel(l.base)
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
	return call, l.base, func() {
		stop()
		cancel()
		l.calls.Done()
	}
}

// Invoke is grpc.ClientConnInterface's. The request is the driver's from now on.
func (l *local) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	in, ok := request.(proto.Message)
	out, also := reply.(proto.Message)
	if !ok || !also {
		return status.Errorf(codes.Internal, "call %s with %T and %T: not messages", method, request, reply)
	}
	m, ok := l.methods[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "the driver does not serve %s", method)
	}
	call, base, end := l.begin(ctx)
	if call == nil {
		return status.Error(codes.Unavailable, "the driver takes no calls")
	}
	type outcome struct {
		message any
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		defer end()
		message, err := m.Handler(m.service, call, func(to any) error {
			proto.Merge(to.(proto.Message), in)
			return nil
		}, l.handle)
		done <- outcome{message, err}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-base.Done():
		return status.Error(codes.Unavailable, "the driver ended in the middle of the call")
	}
	if o.err != nil {
		return o.err // a status: handle sees to that
	}
	message, ok := o.message.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%s answered with %T: not a message", method, o.message)
	}
	proto.Merge(out, message)
	return nil
}

// NewStream is grpc.ClientConnInterface's. What streams goes over the socket.
func (l *local) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("a call within the process does not stream")
}

var _ interface {
	grpc.ClientConnInterface
	grpc.ServiceRegistrar
} = (*local)(nil)

// Conn is a connection to the driver from within its process, or nil while it does not
// serve. It carries unary calls.
func (d *Driver) Conn() grpc.ClientConnInterface {
	d.local.mu.Lock()
	defer d.local.mu.Unlock()
	if d.local.base == nil {
		return nil
	}
	return d.local
}

// register gives every service to the server.
func (d *Driver) register(s grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(s, &identity{cfg: d.cfg, node: d.node})
	if d.controller != nil {
		csi.RegisterControllerServer(s, d.controller)
	}
	if d.node != nil {
		csi.RegisterNodeServer(s, d.node)
	}
}
