package driver

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/inprocess"
	"drydock.dev/drydock/internal/lab"
)

// script is a service whose calls do as the test says.
type script struct {
	csi.UnimplementedIdentityServer
	probe func(context.Context) error
}

func (s *script) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, s.probe(ctx)
}

func (s *script) GetPluginInfo(ctx context.Context, _ *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_, timed := ctx.Deadline()
	return &csi.GetPluginInfoResponse{Name: "script", Manifest: map[string]string{
		"said": md.Get("said")[0], "timed": map[bool]string{true: "yes", false: "no"}[timed], "value": map[bool]string{true: "came", false: "stayed"}[ctx.Value(valueKey{}) != nil],
	}}, nil
}

type valueKey struct{}

// both plays a test over a socket and within the process: they must not be told apart.
func both(t *testing.T, s *script, play func(*testing.T, csi.IdentityClient, csi.NodeClient)) {
	handle := (&Driver{cfg: Config{}, lab: lab.New(lab.Options{})}).handle
	t.Run("socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnaryInterceptor(handle), grpc.WaitForHandlers(true))
		csi.RegisterIdentityServer(server, s)
		go server.Serve(l)
		defer server.Stop()
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		play(t, csi.NewIdentityClient(conn), csi.NewNodeClient(conn))
	})
	t.Run("local", func(t *testing.T) {
		l := &local{methods: map[string]localMethod{}, handle: handle}
		csi.RegisterIdentityServer(l, s)
		conn := inprocess.New("driver", l.serve)
		base, cut := context.WithCancel(context.Background())
		conn.Open(base)
		defer conn.Wait()
		defer cut()
		play(t, csi.NewIdentityClient(conn), csi.NewNodeClient(conn))
	})
}

func TestLocalCallsAreLikeTheSockets(t *testing.T) {
	s := &script{}
	both(t, s, func(t *testing.T, id csi.IdentityClient, node csi.NodeClient) {
		ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), valueKey{}, 1), "said", "hello")
		info, err := id.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		if m := info.GetManifest(); err != nil || m["said"] != "hello" || m["timed"] != "no" || m["value"] != "stayed" {
			t.Errorf("got %v, %v", m, err)
		}
		timed, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if info, err = id.GetPluginInfo(timed, &csi.GetPluginInfoRequest{}); err != nil || info.Manifest["timed"] != "yes" {
			t.Errorf("got %v, %v", info, err)
		}
		if _, err := node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("a service that is not there: %v", err)
		}
		for _, c := range []struct {
			err  error
			code codes.Code
			text string
		}{
			{errorf(codes.NotFound, "no such %s", "thing"), codes.NotFound, "no such thing"},
			{errors.New("plain"), codes.Internal, "plain"},
			{errorf(codes.Aborted, "busy"), codes.Aborted, "busy"},
			{context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded"},
		} {
			s.probe = func(context.Context) error { return c.err }
			if _, err := id.Probe(ctx, &csi.ProbeRequest{}); status.Code(err) != c.code || status.Convert(err).Message() != c.text {
				t.Errorf("%v came as %v", c.err, err)
			}
		}
		s.probe = func(context.Context) error { panic("oh") }
		if _, err := id.Probe(ctx, &csi.ProbeRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("a panic came as %v", err)
		}
	})
}

// TestLocalCallersNeedNotWait: a caller whose time is up goes on; the call hears of it and ends by itself.
func TestLocalCallersNeedNotWait(t *testing.T) {
	s := &script{}
	both(t, s, func(t *testing.T, id csi.IdentityClient, _ csi.NodeClient) {
		for name, limit := range map[codes.Code]func(context.Context) (context.Context, context.CancelFunc){
			codes.DeadlineExceeded: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 10*time.Millisecond)
			},
			codes.Canceled: context.WithCancel,
		} {
			ctx, cancel := limit(t.Context())
			defer cancel()
			begun, told, let := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s.probe = func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				close(told)
				<-let
				return nil
			}
			if name == codes.Canceled {
				go func() { <-begun; cancel() }()
			}
			_, err := id.Probe(ctx, &csi.ProbeRequest{})
			if status.Code(err) != name {
				t.Errorf("got %v, want %s", err, name)
			}
			<-told // the call goes on until it is let
			close(let)
		}
	})
}

// TestLocalCallsEndWithTheDriver: one that is stopped has its calls end, one that is killed breaks them off; both wait for them.
func TestLocalCallsEndWithTheDriver(t *testing.T) {
	for _, kill := range []bool{false, true} {
		r := newRig(t, true)
		n := r.nodes["n1"]
		h := r.rule(lab.Rule{Kind: lab.KindCloud, Op: "POST /v2/volumes", Action: lab.Pause, Times: 1})
		conn := csi.NewControllerClient(n.driver.Conn())
		got := make(chan error, 1)
		go func() {
			_, err := conn.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-a", VolumeCapabilities: []*csi.VolumeCapability{writer("")}})
			got <- err
		}()
		for h.Tally().Held == 0 {
			time.Sleep(time.Millisecond) // the rule tells nobody
		}
		want := codes.Canceled
		if kill {
			n.life.Kill()
			want = codes.Unavailable
		}
		n.stop()
		if err := <-got; status.Code(err) != want {
			t.Errorf("killed %t: got %v, want %s", kill, err, want)
		}
		if n.driver.Conn() != nil {
			t.Error("a driver that has ended still takes calls")
		}
		if _, err := conn.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a call after the end: %v", err)
		}
	}
}
