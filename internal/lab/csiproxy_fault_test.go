package lab

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

func TestProxyAppliesFaults(t *testing.T) {
	short := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	long := func(t *testing.T) context.Context { return t.Context() }
	for _, tc := range []struct {
		name string
		rule Rule
		ctx  func(*testing.T) context.Context
		code codes.Code
		work int32 // how often the driver did the work
	}{
		{"fail", Rule{Action: Fail, Code: "INVALID_ARGUMENT"}, long, codes.InvalidArgument, 0},
		{"fail without a code", Rule{Action: Fail}, long, codes.Internal, 0},
		{"late-ok", Rule{Action: LateOK}, long, codes.DeadlineExceeded, 1},
		{"done and denied", Rule{Action: LateOK, Code: "FailedPrecondition"}, long, codes.FailedPrecondition, 1},
		{"lost", Rule{Action: Lost}, short, codes.DeadlineExceeded, 1},
		{"hang", Rule{Action: Hang}, short, codes.DeadlineExceeded, 0},
		{"delay", Rule{Action: Delay, Delay: time.Millisecond}, long, codes.OK, 1},
		{"delay beyond the deadline", Rule{Action: Delay, Delay: time.Hour}, short, codes.DeadlineExceeded, 0},
		{"of another caller", Rule{Action: Fail, Component: "attacher"}, long, codes.OK, 1},
		{"of another node", Rule{Action: Fail, Node: "n2"}, long, codes.OK, 1},
		{"of another kind", Rule{Action: Fail, Kind: KindAPI}, long, codes.OK, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.startDriver(t)
			var worked atomic.Int32
			b.driver.create = func(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
				worked.Add(1)
				return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1"}}, nil
			}
			tc.rule.Op = "Create*"
			h := b.rule(t, tc.rule)
			_, err := csi.NewControllerClient(b.conn).CreateVolume(tc.ctx(t), &csi.CreateVolumeRequest{Name: "pvc-1"})
			wantCode(t, err, tc.code)
			if worked.Load() != tc.work {
				t.Errorf("the driver worked %d times, want %d", worked.Load(), tc.work)
			}
			if tc.work > 0 && b.lab.Timeline.canonical("vol-1") != "pvc-1" {
				t.Error("the volume is there, but its name was not learned")
			}
			if tc.code != codes.OK && h.Fired() != 1 {
				t.Errorf("fired %d times", h.Fired())
			}
		})
	}
}

func TestProxyPausesUntilReleased(t *testing.T) {
	b := newBench(t)
	b.startDriver(t)
	h := b.rule(t, Rule{Op: "NodeStageVolume", Action: Pause})
	done := make(chan error, 1)
	go func() {
		_, err := csi.NewNodeClient(b.conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v"})
		done <- err
	}()
	if err := h.WaitFired(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if sp := b.spans("NodeStageVolume"); len(sp) != 1 || !sp[0].End.IsZero() {
		t.Fatalf("a paused call shows as running: %+v", sp)
	}
	h.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestProxyWhileTheDriverComesAndGoes(t *testing.T) {
	b := newBench(t)
	id := csi.NewIdentityClient(b.conn)
	info := func() error {
		_, err := id.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
		return err
	}
	for range 3 {
		wantCode(t, info(), codes.Unavailable)
		wantCode(t, info(), codes.Unavailable)
		stop := b.startDriver(t)
		if err := info(); err != nil { // at once, without waiting for any back-off
			t.Fatal(err)
		}
		stop()
	}
}

func TestProxyReportsADriverThatDiesInACall(t *testing.T) {
	b := newBench(t)
	stop := b.startDriver(t)
	entered := make(chan struct{})
	b.driver.stage = func(ctx context.Context, _ *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() { <-entered; stop() }()
	_, err := csi.NewNodeClient(b.conn).NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v"})
	wantCode(t, err, codes.Unavailable)
}

func TestProxyRefusesATakenPath(t *testing.T) {
	b := newBench(t)
	_, err := NewProxy(ProxyConfig{Listen: b.dir + "/csi.sock", Target: b.dir + "/driver.sock", Lab: b.lab})
	if err == nil {
		t.Fatal("two proxies on one socket")
	}
}
