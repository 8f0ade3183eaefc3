package pluginmanager

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/sock"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// Limits of the protocol's steps.
const (
	dialTimeout   = 10 * time.Second
	infoTimeout   = time.Second
	notifyTimeout = 5 * time.Second
	dialPause     = 10 * time.Millisecond
)

// dial waits until somebody listens: the socket's file appears a moment before.
func (m *Manager) dial(ctx context.Context, path string) (registration.RegistrationClient, io.Closer, error) {
	ctx, cancel := volumeplugin.WithTimeout(ctx, m.c.Lab.Clock, dialTimeout)
	defer cancel()
	for pause := dialPause; ; pause *= 2 {
		probe, err := sock.Dial(ctx, path)
		if err == nil {
			probe.Close()
			break
		}
		t := m.c.Lab.Clock.NewTimer(pause)
		select {
		case <-t.C():
		case <-ctx.Done():
			t.Stop()
			return nil, nil, fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return sock.Dial(ctx, path) }))
	if err != nil {
		return nil, nil, err
	}
	return registration.NewRegistrationClient(conn), conn, nil
}

func (m *Manager) info(ctx context.Context, c registration.RegistrationClient) (*registration.PluginInfo, error) {
	ctx, cancel := volumeplugin.WithTimeout(ctx, m.c.Lab.Clock, infoTimeout)
	defer cancel()
	return c.GetInfo(ctx, &registration.InfoRequest{})
}

// notify tells the plugin the outcome.
func (m *Manager) notify(ctx context.Context, c registration.RegistrationClient, outcome error) error {
	ctx, cancel := volumeplugin.WithTimeout(ctx, m.c.Lab.Clock, notifyTimeout)
	defer cancel()
	s := &registration.RegistrationStatus{PluginRegistered: outcome == nil}
	if outcome != nil {
		s.Error = outcome.Error()
	}
	_, err := c.NotifyRegistrationStatus(ctx, s)
	return err
}

// refuse tells the plugin why it is not registered, and returns that.
func (m *Manager) refuse(ctx context.Context, c registration.RegistrationClient, why error) error {
	why = fmt.Errorf("RegisterPlugin error -- %w", why)
	if err := m.notify(ctx, c, why); err != nil {
		return fmt.Errorf("%w (and the plugin could not be told: %w)", why, err)
	}
	return why
}
