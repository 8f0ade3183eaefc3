package bench

import (
	"context"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const manyDriver = "bench.example.com"

// idleDriver takes every volume at once and notes every call.
type idleDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	root       string
	once       sync.Once
	registered chan struct{}

	mu        sync.Mutex
	calls     []call          // guarded by mu, as they came in
	published map[string]bool // guarded by mu
	changed   chan struct{}   // guarded by mu
}

// call is one that reached the driver.
type call struct {
	method string
	volume string // empty if it names none
	at     time.Time
}

// newIdleDriver is a driver of the node whose kubelet has this directory.
func newIdleDriver(root string) *idleDriver {
	return &idleDriver{root: root, registered: make(chan struct{}), published: map[string]bool{}, changed: make(chan struct{})}
}

// note writes a call down before it is answered.
func (d *idleDriver) note(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	c := call{method: path.Base(info.FullMethod), at: time.Now()}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		c.volume = r.GetVolumeId()
	}
	d.mu.Lock()
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	return handle(ctx, req)
}

// about lists the calls since then that name the volume, or none, as one does that asks what the driver can do.
func (d *idleDriver) about(volume string, since time.Time) []call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []call
	for _, c := range d.calls {
		if !c.at.Before(since) && (c.volume == volume || c.volume == "") {
			out = append(out, c)
		}
	}
	return out
}

func (d *idleDriver) socket() string { return filepath.Join(d.root, "plugins", manyDriver, "csi.sock") }

// start serves the driver's sockets; what it returns stops them.
func (d *idleDriver) start(b *testing.B) func() {
	fatal(b, os.MkdirAll(filepath.Dir(d.socket()), 0o755))
	s := grpc.NewServer(grpc.UnaryInterceptor(d.note))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterNodeServer(s, d)
	registration.RegisterRegistrationServer(s, d)
	var wg sync.WaitGroup
	for _, path := range []string{d.socket(), filepath.Join(d.root, "plugins_registry", manyDriver+"-reg.sock")} {
		l, err := net.Listen("unix", path)
		fatal(b, err)
		wg.Go(func() { s.Serve(l) })
	}
	return func() { s.Stop(); wg.Wait() }
}

func (d *idleDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: manyDriver, Endpoint: d.socket(), SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *idleDriver) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.once.Do(func() { close(d.registered) })
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *idleDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "n1"}, nil
}

func (d *idleDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (d *idleDriver) NodeStageVolume(context.Context, *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *idleDriver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published[r.VolumeId] = true
	close(d.changed)
	d.changed = make(chan struct{})
	return &csi.NodePublishVolumeResponse{}, nil
}

// wait blocks until these volumes were published.
func (d *idleDriver) wait(ctx context.Context, b *testing.B, names ...string) {
	b.Helper()
	for _, n := range names {
		for {
			d.mu.Lock()
			done, changed := d.published[n], d.changed
			d.mu.Unlock()
			if done {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				b.Fatalf("volume %s is not published in time", n)
			}
		}
	}
}
