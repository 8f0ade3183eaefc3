package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/lab"
)

const testDriver = "tiny.csi.test"

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serveDriver serves d on socket until the test ends or stop is called.
func serveDriver(t *testing.T, socket string, d *tinyDriver) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	stop = func() { s.Stop(); <-done }
	t.Cleanup(stop)
	return stop
}

// kubelet is a client of a registration socket, which may be about to appear.
func kubelet(t *testing.T, socket string) (registration.RegistrationClient, *grpc.ClientConn) {
	t.Helper()
	quick := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, Multiplier: 1.5}, MinConnectTimeout: 5 * time.Second}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quick))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return registration.NewRegistrationClient(conn), conn
}

type registrarBench struct {
	socket, csi string
	component   *lab.Component
	once        chan error
}

func startRegistrar(t *testing.T) *registrarBench {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir := tempDir(t)
	b := &registrarBench{socket: filepath.Join(dir, testDriver+"-reg.sock"), csi: filepath.Join(dir, "csi.sock"), once: make(chan error, 1)}
	b.component = lab.New(lab.Options{}).Component(context.Background(), "registrar", "n1")
	serveDriver(t, b.csi, &tinyDriver{})
	go func() {
		b.once <- RegisterOnce(b.component.Context(), RegistrarConfig{
			Address: b.csi, RegistryDir: dir, KubeletSocket: "/var/lib/kubelet/plugins/tiny/csi.sock", Component: b.component})
	}()
	t.Cleanup(b.component.Stop)
	return b
}

func (b *registrarBench) info(t *testing.T) *registration.PluginInfo {
	t.Helper()
	k, conn := kubelet(t, b.socket)
	defer conn.Close()
	i, err := k.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestRegistrarOffersTheDriver(t *testing.T) {
	b := startRegistrar(t)
	i := b.info(t)
	if i.Type != registration.CSIPlugin || i.Name != testDriver || i.Endpoint != "/var/lib/kubelet/plugins/tiny/csi.sock" ||
		len(i.SupportedVersions) != 1 || i.SupportedVersions[0] != "1.0.0" {
		t.Fatalf("info: %+v", i)
	}
	b.component.Stop()
	if err := <-b.once; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.socket); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the socket stayed after a stop: %v", err)
	}
}

func TestKilledRegistrarLeavesItsSocket(t *testing.T) {
	b := startRegistrar(t)
	b.info(t)
	b.component.Kill()
	<-b.once
	if _, err := os.Stat(b.socket); err != nil {
		t.Fatalf("a killed process cannot have removed its socket: %v", err)
	}
}

func TestRefusedRegistrarEnds(t *testing.T) {
	b := startRegistrar(t)
	k, _ := kubelet(t, b.socket)
	b.info(t)
	if _, err := k.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "topology collision"}); err != nil {
		t.Fatal(err)
	}
	if err := <-b.once; !errors.Is(err, ErrNotRegistered) || err.Error() != "register driver tiny.csi.test: the kubelet did not register the driver: topology collision" {
		t.Fatal(err)
	}
}

func TestRegistrarTriesAgain(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir := tempDir(t)
	registered := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	serveDriver(t, filepath.Join(dir, "csi.sock"), &tinyDriver{})
	go func() {
		done <- RunRegistrar(ctx, RegistrarConfig{Address: filepath.Join(dir, "csi.sock"), RegistryDir: dir, Registered: func() { registered <- struct{}{} }})
	}()
	stopped := func() {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	defer stopped()
	for _, ok := range []bool{false, false, true} {
		k, conn := kubelet(t, filepath.Join(dir, testDriver+"-reg.sock"))
		i, err := k.GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
		if err != nil || i.Endpoint != filepath.Join(dir, "csi.sock") {
			t.Fatalf("%v %v", i, err)
		}
		if _, err := k.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: ok}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if !ok { // the refused one ends, and cuts this connection
			conn.WaitForStateChange(t.Context(), connectivity.Ready)
		}
	}
	<-registered
}
