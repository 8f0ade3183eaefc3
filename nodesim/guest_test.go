package nodesim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/internal/sock"
)

// guest is a small CSI driver that announces itself as node-driver-registrar does. It
// mounts on a simulated table, records its calls, and can be told to fail. It outlives
// kubelets, as a driver's pod does.
type guest struct {
	csipb.UnimplementedNodeServer
	name    string
	node    string
	mounter mount.Interface
	caps    []csipb.NodeServiceCapability_RPC_Type

	mu      sync.Mutex
	calls   []string                            // guarded by mu: method and volume
	fault   func(call string) error             // guarded by mu: an error instead of the work
	after   func(call string) error             // guarded by mu: an error after the work
	who     func() error                        // guarded by mu: an error instead of NodeGetInfo's answer
	changed chan struct{}                       // guarded by mu: closes at the next call
	told    []*registration.RegistrationStatus  // guarded by mu
	stages  []*csipb.NodeStageVolumeRequest     // guarded by mu
	pubs    []*csipb.NodePublishVolumeRequest   // guarded by mu
	grown   []*csipb.NodeExpandVolumeRequest    // guarded by mu
	order   func(method, volume, target string) // is told of each call before its work; set before start
	ended   func(method, volume, target string, err error)
	work    sync.WaitGroup // calls under way
	conns   connections
	stops   []func()

	ill      illness      // what it says of health
	contents *contents    // of what is published; nil if nobody looks; set before start
	max      atomic.Int64 // of volumes on the node
	unstaged bool         // it publishes what is not staged; set before start
}

// connections counts the connections that callers have open, each from before the
// driver has greeted its caller until no call that came over it can begin any more. The
// server's own account begins only after the greeting, when a call may be waiting
// already, and the socket's ends while calls can still begin: so both count.
type connections struct {
	mu   sync.Mutex
	open int           // guarded by mu
	none chan struct{} // guarded by mu: closes when open is 0; nil if nobody waits
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.add(1)
	case *stats.ConnEnd:
		c.add(-1)
	}
}

func (c *connections) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// idle closes when nobody is connected.
func (c *connections) idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if c.none == nil {
		c.none = make(chan struct{})
	}
	return c.none
}

// counted is a listener whose connections are counted.
type counted struct {
	net.Listener
	conns *connections
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.add(1)
	return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.conns.add(-1) })}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// settle waits until nobody is connected and no call is under way: whatever a kubelet
// that died has sent has then been done, or never will be.
func (g *guest) settle(ctx context.Context) {
	select {
	case <-g.conns.idle():
	case <-ctx.Done():
	}
	g.work.Wait()
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	g        *guest
	endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: r.g.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.g.told = append(r.g.told, s)
	r.g.ring()
	return &registration.RegistrationStatusResponse{}, nil
}

func newGuest(name, node string, m mount.Interface) *guest {
	g := &guest{name: name, node: node, mounter: m, changed: make(chan struct{}),
		caps: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}
	g.fits(7)
	return g
}

// fits sets how many volumes the driver says that the node takes.
func (g *guest) fits(n int64) { g.max.Store(n) }

// start serves the driver's socket and the registration socket below a kubelet root.
func (g *guest) start(t *testing.T, root string) {
	t.Helper()
	endpoint := filepath.Join(root, "plugins", g.name, "csi.sock")
	g.serve(t, endpoint, func(s *grpc.Server) { csipb.RegisterNodeServer(s, g) })
	g.serve(t, filepath.Join(root, "plugins_registry", g.name+"-reg.sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, &registrar{g: g, endpoint: endpoint})
	})
}

func (g *guest) serve(t *testing.T, path string, register func(*grpc.Server)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StatsHandler(&g.conns))
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(counted{l, &g.conns}) }()
	g.stops = append(g.stops, func() { s.Stop(); <-done; os.Remove(path) })
}

func (g *guest) stop() {
	for _, s := range slices.Backward(g.stops) {
		s()
	}
	g.stops = nil
}

func (g *guest) ring() { close(g.changed); g.changed = make(chan struct{}) }

// call records a call and does its work, unless it is told to fail.
func (g *guest) call(ctx context.Context, method, volume, target string, work func() error) (err error) {
	g.work.Add(1)
	defer g.work.Done()
	if ctx.Err() != nil {
		return ctx.Err() // the caller has died before its call began
	}
	if g.ended != nil {
		defer func() { g.ended(method, volume, target, err) }()
	}
	call := method + " " + volume
	g.mu.Lock()
	g.calls = append(g.calls, call)
	g.ring()
	fault, after := g.fault, g.after
	g.mu.Unlock()
	if fault != nil {
		if err := fault(call); err != nil {
			return err
		}
	}
	if g.order != nil {
		g.order(method, volume, target)
	}
	if err := work(); err != nil {
		return err
	}
	if after != nil {
		return after(call)
	}
	return nil
}

// note adds to the record what somebody else did.
func (g *guest) note(method, volume string) {
	if g.order != nil {
		g.order(method, volume, "")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, method+" "+volume)
	g.ring()
}

// set replaces what the driver is told to do: errors before and after the work.
func (g *guest) set(before, after func(call string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault, g.after = before, after
}

func (g *guest) log() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func (g *guest) count(call string) int {
	n := 0
	for _, c := range g.log() {
		if c == call {
			n++
		}
	}
	return n
}

// wait blocks until ok of the calls so far.
func (g *guest) wait(ctx context.Context, ok func(calls []string) bool) error {
	for {
		g.mu.Lock()
		calls, next := slices.Clone(g.calls), g.changed
		g.mu.Unlock()
		if ok(calls) {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%w; calls so far: %s", ctx.Err(), strings.Join(calls, ", "))
		}
	}
}

func (g *guest) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	g.mu.Lock()
	who := g.who
	g.mu.Unlock()
	if who != nil {
		if err := who(); err != nil {
			return nil, err
		}
	}
	return &csipb.NodeGetInfoResponse{NodeId: "id-" + g.node, MaxVolumesPerNode: g.max.Load(),
		AccessibleTopology: &csipb.Topology{Segments: map[string]string{"region": "nyc3"}}}, nil
}

func (g *guest) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	r := &csipb.NodeGetCapabilitiesResponse{}
	for _, c := range g.caps {
		r.Capabilities = append(r.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (g *guest) NodeStageVolume(ctx context.Context, r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	g.mu.Lock()
	g.stages = append(g.stages, r)
	g.mu.Unlock()
	return &csipb.NodeStageVolumeResponse{}, g.call(ctx, "Stage", r.VolumeId, r.StagingTargetPath, func() error {
		return g.mount("/dev/disk/by-id/"+r.VolumeId, r.StagingTargetPath)
	})
}

func (g *guest) NodeUnstageVolume(ctx context.Context, r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, g.call(ctx, "Unstage", r.VolumeId, r.StagingTargetPath, func() error { return g.unmount(r.StagingTargetPath) })
}

func (g *guest) NodePublishVolume(ctx context.Context, r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	g.mu.Lock()
	g.pubs = append(g.pubs, r)
	g.mu.Unlock()
	return &csipb.NodePublishVolumeResponse{}, g.call(ctx, "Publish", r.VolumeId, r.TargetPath, func() error {
		if r.StagingTargetPath != "" && !g.unstaged {
			if not, err := g.mounter.IsLikelyNotMountPoint(r.StagingTargetPath); err != nil || not {
				return fmt.Errorf("publish %s before it is staged (%v)", r.VolumeId, err)
			}
		}
		if r.VolumeCapability.GetBlock() != nil {
			if err := os.WriteFile(r.TargetPath, nil, 0o600); err != nil {
				return err
			}
		} else if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
			return err
		}
		if err := g.mount("/dev/disk/by-id/"+r.VolumeId, r.TargetPath); err != nil || g.contents == nil || r.VolumeCapability.GetBlock() != nil {
			return err
		}
		return g.contents.mounted(r.VolumeId, r.TargetPath)
	})
}

func (g *guest) NodeUnpublishVolume(ctx context.Context, r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, g.call(ctx, "Unpublish", r.VolumeId, r.TargetPath, func() error {
		if err := g.unmount(r.TargetPath); err != nil {
			return err
		}
		return os.RemoveAll(r.TargetPath)
	})
}

func (g *guest) NodeExpandVolume(ctx context.Context, r *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	g.mu.Lock()
	g.grown = append(g.grown, r)
	g.mu.Unlock()
	return &csipb.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()},
		g.call(ctx, "Expand", r.VolumeId, r.VolumePath, func() error { return nil })
}

func (g *guest) mount(source, target string) error {
	if not, err := g.mounter.IsLikelyNotMountPoint(target); err == nil && !not {
		return nil
	}
	return g.mounter.Mount(source, target, "ext4", nil)
}

func (g *guest) unmount(target string) error {
	if not, err := g.mounter.IsLikelyNotMountPoint(target); err != nil || not {
		return nil
	}
	return g.mounter.Unmount(target)
}
