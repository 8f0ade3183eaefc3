package sidecar

import (
	"context"
	"fmt"
	"net"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"drydock.dev/drydock/internal/sock"
)

// dial is a connection to the driver's socket, under a name by which the lab's proxy
// knows the caller. It is made by the first call; a driver that is not there fails that call.
func dial(path, agent string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///driver",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return sock.Dial(ctx, path) }),
		grpc.WithAuthority("localhost"),
		grpc.WithUserAgent(agent),
		grpc.WithIdleTimeout(0),
		grpc.WithChainUnaryInterceptor(connection.LogGRPC))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver at %s: %w", path, err)
	}
	return conn, nil
}

// connect opens the connection that a life has to its driver. It is closed when ctx
// ends; the life ends with ErrDriverLost when it is lost. stop waits for that watch.
func connect(ctx context.Context, cfg *Config) (conn *grpc.ClientConn, stop func(), err error) {
	if conn, err = dial(cfg.Address, cfg.agent); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer conn.Close()
		for was := conn.GetState(); conn.WaitForStateChange(ctx, was); was = conn.GetState() {
			if was == connectivity.Ready {
				cfg.end(ErrDriverLost)
			}
		}
	}()
	return conn, func() { cancel(); <-watched }, nil
}

// driverName asks the driver, and holds it to the name that it is expected to have.
func driverName(ctx context.Context, conn *grpc.ClientConn, cfg *Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shortCall)
	defer cancel()
	name, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("ask driver at %s for its name: %w", cfg.Address, err)
	}
	if cfg.DriverName != "" && name != cfg.DriverName {
		return "", fmt.Errorf("driver at %s calls itself %s, not %s", cfg.Address, name, cfg.DriverName)
	}
	return name, nil
}
