package cluster

import (
	"context"
	"net"
	"sync"
)

// inside is a listener for this process's own components: its connections are pipes in
// memory and never reach the kernel. What goes over them is the same HTTP.
type inside struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInside() *inside {
	return &inside{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// dial returns the client's end of a new connection.
func (l *inside) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	var err error
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	client.Close()
	server.Close()
	return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: insideAddr{}, Err: err}
}

func (l *inside) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *inside) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *inside) Addr() net.Addr { return insideAddr{} }

type insideAddr struct{}

func (insideAddr) Network() string { return "pipe" }
func (insideAddr) String() string  { return "inside" }
