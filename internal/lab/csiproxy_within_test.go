package lab

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// within waits until the proxy takes calls from within.
func (b *bench) within(t *testing.T) grpc.ClientConnInterface {
	t.Helper()
	_, _ = csi.NewIdentityClient(b.conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true)) // answered as soon as it serves
	conn := b.proxy.Conn()
	if conn == nil {
		t.Fatal("the proxy serves, but not within its process")
	}
	return conn
}

// TestProxyCallersWithin: a caller of the same process is answered, recorded and meets the rules like one at the socket.
func TestProxyCallersWithin(t *testing.T) {
	for _, way := range []string{"socket", "within"} {
		t.Run(way, func(t *testing.T) {
			b := newBench(t)
			conn := grpc.ClientConnInterface(b.conn)
			if way == "within" {
				conn = b.within(t)
			}
			controller := csi.NewControllerClient(conn)
			ctx := metadata.AppendToOutgoingContext(t.Context(), ComponentKey, "provisioner", "x-tenant", "blue")
			create := &csi.CreateVolumeRequest{Name: "pvc-a", Secrets: map[string]string{"key": "hidden-word"}}
			_, err := controller.CreateVolume(ctx, create)
			wantCode(t, err, codes.Unavailable) // no driver yet

			b.startDriver(t)
			b.driver.create = func(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				if len(md.Get(ComponentKey)) != 0 || len(md.Get("x-tenant")) != 1 || r.GetSecrets()["key"] != "hidden-word" {
					t.Errorf("the driver got %v with %v", r, md)
				}
				if r.GetName() == "bad" {
					return nil, status.Error(codes.ResourceExhausted, "no room for hidden-word")
				}
				return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1", CapacityBytes: 5}}, nil
			}
			v, err := controller.CreateVolume(ctx, create)
			if err != nil || v.GetVolume().GetVolumeId() != "vol-1" || v.GetVolume().GetCapacityBytes() != 5 {
				t.Fatalf("got %v, %v", v, err)
			}
			_, err = controller.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "bad", Secrets: create.Secrets})
			wantCode(t, err, codes.ResourceExhausted)
			if !strings.Contains(err.Error(), "no room for hidden-word") {
				t.Errorf("the caller learned %v", err)
			}
			sp := b.spans("CreateVolume")
			if len(sp) != 3 || sp[1].Component != "provisioner" || sp[1].Volume != "pvc-a" || sp[1].Code != "OK" || sp[1].Attrs["response"] == "" ||
				sp[2].Code != "ResourceExhausted" || strings.Contains(sp[1].Attrs["request"]+sp[2].Error, "hidden-word") {
				t.Errorf("recorded: %+v", sp)
			}

			h := b.rule(t, Rule{Op: "CreateVolume", Action: Fail, Code: "Aborted"})
			_, err = controller.CreateVolume(ctx, create)
			wantCode(t, err, codes.Aborted)
			h.Remove()
			b.rule(t, Rule{Op: "CreateVolume", Action: Lost})
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err = controller.CreateVolume(short, create)
			wantCode(t, err, codes.DeadlineExceeded)
		})
	}
}

// TestProxyEndsCallersWithin: with the proxy end the calls that it has taken, and it takes no more.
func TestProxyEndsCallersWithin(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	conn := b.within(t)
	entered, left := make(chan struct{}), make(chan struct{})
	b.driver.stage = func(ctx context.Context, _ *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
		close(entered)
		<-ctx.Done()
		close(left)
		return nil, ctx.Err()
	}
	got := make(chan error, 1)
	go func() {
		_, err := csi.NewNodeClient(conn).NodeStageVolume(context.WithoutCancel(t.Context()), &csi.NodeStageVolumeRequest{VolumeId: "v"})
		got <- err
	}()
	<-entered
	b.end()
	wantCode(t, <-got, codes.Unavailable)
	<-left
	_, err := csi.NewNodeClient(conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{})
	wantCode(t, err, codes.Unavailable)
	if b.proxy.Conn() != nil {
		t.Error("a proxy that has ended still takes calls")
	}
}
