package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/sock"
)

// RegistrarConfig describes the registration of one driver on one node.
type RegistrarConfig struct {
	// Address is the socket where the registrar asks the driver for its name.
	Address string
	// RegistryDir is the kubelet's plugins_registry directory. It must exist.
	RegistryDir string
	// KubeletSocket is the socket that the kubelet is told to call; empty means Address.
	KubeletSocket string
	// Component is the life that the registrar belongs to; nil outside of a lab.
	Component *lab.Component
	Log       zerolog.Logger
	// Registered is called each time the kubelet has accepted the driver; it may be nil.
	Registered func()
}

// ErrNotRegistered is in the chain of the error that ends a registrar whom the kubelet refused.
var ErrNotRegistered = errors.New("the kubelet did not register the driver")

// supportedVersion is the version of the CSI endpoint that node-driver-registrar names.
const supportedVersion = "1.0.0"

// RunRegistrar does what node-driver-registrar does, until ctx ends: it asks the driver
// for its name and offers it to the kubelet on <driver>-reg.sock in the registry
// directory. One that the kubelet refuses ends, as upstream's exits, and is started
// afresh, which makes the kubelet try again.
//
// At the end the socket is removed, whereby the kubelet deregisters the driver. It
// stays if the component was killed, as it does for a killed process.
func RunRegistrar(ctx context.Context, cfg RegistrarConfig) error {
	if cfg.Address == "" || cfg.RegistryDir == "" {
		return errors.New("run registrar: the driver's socket and the registry directory are needed")
	}
	log := cfg.Log.With().Str("component", "registrar").Logger()
	return restart(ctx, "registrar", log, cfg.Component, func(ctx context.Context) error { return RegisterOnce(ctx, cfg) })
}

// RegisterOnce is one life of a registrar. It gives nil when ctx ends, and otherwise
// says why it ended.
func RegisterOnce(ctx context.Context, cfg RegistrarConfig) error {
	name, err := pluginName(ctx, cfg.Address)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	path := filepath.Join(cfg.RegistryDir, name+"-reg.sock")
	listener, err := sock.Listen(path)
	if err != nil {
		return fmt.Errorf("offer driver %s to the kubelet: %w", name, err)
	}
	r := &registrar{name: name, cfg: cfg, refused: make(chan error, 1)}
	if r.cfg.KubeletSocket == "" {
		r.cfg.KubeletSocket = cfg.Address
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	registration.RegisterRegistrationServer(server, r)

	var serving sync.WaitGroup
	served := make(chan error, 1)
	serving.Go(func() { served <- server.Serve(listener) })
	defer serving.Wait()
	defer server.Stop()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", path, err)
	case err := <-r.refused:
		stop := context.AfterFunc(ctx, server.Stop)
		defer stop()
		server.GracefulStop() // the kubelet gets its answer
		return err
	case <-ctx.Done():
		if u, ok := listener.(*net.UnixListener); ok && errors.Is(context.Cause(ctx), lab.ErrKilled) {
			u.SetUnlinkOnClose(false)
		}
		return nil
	}
}

// pluginName asks the driver for its name.
func pluginName(ctx context.Context, socket string) (string, error) {
	conn, err := dial(socket, "drydock-registrar")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return driverName(ctx, conn, &Config{Address: socket})
}

// registrar answers the kubelet.
type registrar struct {
	registration.UnsafeRegistrationServer
	name    string
	cfg     RegistrarConfig
	refused chan error
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.name,
		Endpoint:          r.cfg.KubeletSocket,
		SupportedVersions: []string{supportedVersion},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- fmt.Errorf("register driver %s: %w: %s", r.name, ErrNotRegistered, s.GetError()):
		default: // one refusal is enough to end
		}
	} else if r.cfg.Registered != nil {
		r.cfg.Registered()
	}
	return &registration.RegistrationStatusResponse{}, nil
}
