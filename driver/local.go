package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"drydock.dev/drydock/internal/inprocess"
)

// local is the driver's services for callers of its own process, by the full names of their methods.
type local struct {
	methods map[string]localMethod // constant
	handle  grpc.UnaryServerInterceptor
}

type localMethod struct {
	grpc.MethodDesc
	service any
}

// RegisterService is grpc.ServiceRegistrar's.
func (l *local) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, m := range desc.Methods {
		l.methods["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{m, service}
	}
}

// serve is an inprocess.Serve.
func (l *local) serve(ctx context.Context, method string, request proto.Message) (proto.Message, error) {
	m, ok := l.methods[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "the driver does not serve %s", method)
	}
	answer, err := m.Handler(m.service, ctx, func(to any) error {
		proto.Merge(to.(proto.Message), request)
		return nil
	}, l.handle)
	if err != nil {
		return nil, err // a status: handle sees to that
	}
	message, ok := answer.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%s answered with %T: not a message", method, answer)
	}
	return message, nil
}

// Conn is a connection to the driver from within its process, or nil while it does not
// serve. It carries unary calls.
func (d *Driver) Conn() grpc.ClientConnInterface {
	if d.local.Taking() {
		return d.local
	}
	return nil
}

// within makes the connection for callers of the same process.
func (d *Driver) within() *inprocess.Conn {
	l := &local{methods: map[string]localMethod{}, handle: d.handle}
	d.register(l)
	return inprocess.New("driver "+d.cfg.Name, l.serve)
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
