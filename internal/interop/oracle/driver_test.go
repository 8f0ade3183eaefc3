package oracle

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

const driverName = "oracle.csi.test"

// outcome is how one call of the driver ends.
type outcome struct {
	code codes.Code
	done bool            // the work is done all the same
	hold <-chan struct{} // the call waits for it first, with its work done
}

// driver is a CSI driver that mounts on the simulated table, writes down what it is asked and ends its calls as planned.
type driver struct {
	csipb.UnimplementedNodeServer
	mounter  mount.Interface
	root     string // the kubelet's, which is R in what is written down
	unstaged bool   // it cannot stage; set before a kubelet asks

	mu      sync.Mutex
	calls   []string             // guarded by mu
	plan    map[string][]outcome // guarded by mu: of the next calls, by method
	changed chan struct{}        // guarded by mu: closes at the next call or end of one
}

// registrar announces the driver to those who watch for sockets.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: "CSIPlugin", Name: driverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// serveDriver serves the driver and its registrar below a kubelet's root until the test ends.
func serveDriver(t *testing.T, root string, m mount.Interface) *driver {
	t.Helper()
	d := &driver{mounter: m, root: root, plan: map[string][]outcome{}, changed: make(chan struct{})}
	serve(t, d.endpoint(), func(s *grpc.Server) { csipb.RegisterNodeServer(s, d) })
	serve(t, filepath.Join(root, "plugins_registry", driverName+"-reg.sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, registrar{endpoint: d.endpoint()})
	})
	return d
}

func serve(t *testing.T, path string, register func(*grpc.Server)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

func (d *driver) endpoint() string { return filepath.Join(d.root, "plugins", driverName, "csi.sock") }

// next plans the ends of the next calls of a method.
func (d *driver) next(method string, ends ...outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan[method] = append(d.plan[method], ends...)
}

// forget drops what is planned.
func (d *driver) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.plan)
}

func (d *driver) log() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// await waits until a method was called so often.
func (d *driver) await(ctx context.Context, method string, times int) error {
	for {
		d.mu.Lock()
		n := 0
		for _, c := range d.calls {
			if strings.HasPrefix(c, method+" ") {
				n++
			}
		}
		calls, changed := slices.Clone(d.calls), d.changed
		d.mu.Unlock()
		if n >= times {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d calls of %s: %w; there were:\n%s", times, method, ctx.Err(), strings.Join(calls, "\n"))
		}
	}
}

// call writes a call down and ends it as planned.
func (d *driver) call(method, asked string, work func() error) error {
	d.mu.Lock()
	var end outcome
	if p := d.plan[method]; len(p) > 0 {
		end, d.plan[method] = p[0], p[1:]
	}
	line := method + " " + strings.ReplaceAll(asked, d.root, "R")
	if end.code != codes.OK {
		line += " -> " + end.code.String()
	}
	d.calls = append(d.calls, line)
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	if end.code == codes.OK || end.done {
		if err := work(); err != nil {
			return err
		}
	}
	if end.hold != nil {
		<-end.hold
	}
	if end.code != codes.OK {
		return status.Error(end.code, "as planned")
	}
	return nil
}

func (d *driver) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	return &csipb.NodeGetInfoResponse{NodeId: "id-" + nodeName, MaxVolumesPerNode: 7}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	r := &csipb.NodeGetCapabilitiesResponse{}
	can := []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_EXPAND_VOLUME}
	if !d.unstaged {
		can = append(can, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	for _, c := range can {
		r.Capabilities = append(r.Capabilities, &csipb.NodeServiceCapability{Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	asked := fmt.Sprintf("%s staging=%s capability=%s publish=%v context=%v secrets=%v", r.VolumeId, r.StagingTargetPath, capability(r.VolumeCapability), r.PublishContext, r.VolumeContext, r.Secrets)
	return &csipb.NodeStageVolumeResponse{}, d.call("Stage", asked, func() error {
		if r.VolumeCapability.GetBlock() != nil {
			return nil
		}
		return d.mount(r.VolumeId, r.StagingTargetPath)
	})
}

func (d *driver) NodePublishVolume(_ context.Context, r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	asked := fmt.Sprintf("%s target=%s staging=%s capability=%s readonly=%t publish=%v context=%v secrets=%v", r.VolumeId, r.TargetPath, r.StagingTargetPath,
		capability(r.VolumeCapability), r.Readonly, r.PublishContext, r.VolumeContext, r.Secrets)
	return &csipb.NodePublishVolumeResponse{}, d.call("Publish", asked, func() error {
		if r.VolumeCapability.GetBlock() != nil {
			if err := os.WriteFile(r.TargetPath, nil, 0o600); err != nil {
				return err
			}
		} else if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
			return err
		}
		return d.mount(r.VolumeId, r.TargetPath)
	})
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	return &csipb.NodeUnpublishVolumeResponse{}, d.call("Unpublish", r.VolumeId+" target="+r.TargetPath, func() error {
		if err := d.unmount(r.TargetPath); err != nil {
			return err
		}
		return os.RemoveAll(r.TargetPath)
	})
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	return &csipb.NodeUnstageVolumeResponse{}, d.call("Unstage", r.VolumeId+" staging="+r.StagingTargetPath, func() error { return d.unmount(r.StagingTargetPath) })
}

func (d *driver) NodeExpandVolume(_ context.Context, r *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	asked := fmt.Sprintf("%s path=%s staging=%s capability=%s bytes=%d limit=%d secrets=%v", r.VolumeId, r.VolumePath, r.StagingTargetPath, capability(r.VolumeCapability),
		r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes(), r.Secrets)
	return &csipb.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, d.call("Expand", asked, func() error { return nil })
}

func (d *driver) mount(volume, target string) error {
	if not, err := d.mounter.IsLikelyNotMountPoint(target); err == nil && !not {
		return nil
	}
	return d.mounter.Mount("/dev/disk/by-id/"+volume, target, "ext4", nil)
}

func (d *driver) unmount(target string) error {
	if not, err := d.mounter.IsLikelyNotMountPoint(target); err != nil || not {
		return nil
	}
	return d.mounter.Unmount(target)
}

func capability(c *csipb.VolumeCapability) string {
	mode := strings.ToLower(c.GetAccessMode().GetMode().String())
	if m := c.GetMount(); m != nil {
		return fmt.Sprintf("{%s %s %v group=%s}", mode, m.FsType, m.MountFlags, m.VolumeMountGroup)
	}
	if c.GetBlock() != nil {
		return fmt.Sprintf("{%s block}", mode)
	}
	return "{}"
}

// count tells how often a method was called.
func (d *driver) count(method string) int {
	n := 0
	for _, c := range d.log() {
		if strings.HasPrefix(c, method+" ") {
			n++
		}
	}
	return n
}
