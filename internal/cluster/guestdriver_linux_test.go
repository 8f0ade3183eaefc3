package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/mounts"
	"drydock.dev/drydock/internal/sock"
)

const (
	guestDriverName = "guest.example.com"
	// guestDriver makes the test binary be somebody's CSI driver and its node-driver-registrar.
	guestDriver = "DRYDOCK_TEST_GUEST_DRIVER"
	// guestMark is a file that the driver puts into each volume.
	guestMark = "made-by-the-guest"
)

// driverOfAGuest knows nothing of drydock: it finds everything where a real node has it, unless
// devices are simulated, where the environment says where things are. Its volumes are
// directories of memory, or plain ones where it cannot mount.
type driverOfAGuest struct {
	csipb.UnimplementedIdentityServer
	csipb.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	root string // the kubelet's
	real bool

	publishing sync.Mutex // one call at a time: a kubelet that has been started anew repeats those of the one before
}

func runGuestDriver() error {
	d := &driverOfAGuest{root: "/var/lib/kubelet", real: os.Getenv(guestDriver) == "loop"}
	if !d.real {
		d.root = os.Getenv("DRYDOCK_KUBELET_DIR")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := grpc.NewServer()
	csipb.RegisterIdentityServer(s, d)
	csipb.RegisterNodeServer(s, d)
	registration.RegisterRegistrationServer(s, d)
	context.AfterFunc(ctx, s.Stop)
	if err := os.MkdirAll(filepath.Dir(d.socket()), 0o755); err != nil {
		return err
	}
	var listeners []net.Listener
	for _, path := range []string{d.socket(), filepath.Join(d.root, "plugins_registry", guestDriverName+"-reg.sock")} {
		l, err := sock.Listen(path)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	go s.Serve(listeners[0])
	return s.Serve(listeners[1])
}

func (d *driverOfAGuest) socket() string {
	return filepath.Join(d.root, "plugins", guestDriverName, "csi.sock")
}

func (d *driverOfAGuest) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: guestDriverName, Endpoint: d.socket(), SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driverOfAGuest) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		fmt.Fprintln(os.Stderr, "guest driver: not registered:", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driverOfAGuest) GetPluginInfo(context.Context, *csipb.GetPluginInfoRequest) (*csipb.GetPluginInfoResponse, error) {
	return &csipb.GetPluginInfoResponse{Name: guestDriverName, VendorVersion: "1"}, nil
}

func (d *driverOfAGuest) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	return &csipb.NodeGetInfoResponse{NodeId: os.Getenv("NODE_NAME")}, nil
}

func (d *driverOfAGuest) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	return &csipb.NodeGetCapabilitiesResponse{Capabilities: []*csipb.NodeServiceCapability{{Type: &csipb.NodeServiceCapability_Rpc{
		Rpc: &csipb.NodeServiceCapability_RPC{Type: csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (d *driverOfAGuest) NodeStageVolume(_ context.Context, r *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	if d.real {
		if err := mounts.New().Mount("tmpfs", r.StagingTargetPath, "tmpfs", []string{"size=1m"}); err != nil {
			return nil, err
		}
	}
	return &csipb.NodeStageVolumeResponse{}, nil
}

func (d *driverOfAGuest) NodePublishVolume(_ context.Context, r *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	if err := os.Mkdir(r.TargetPath, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if d.real {
		// A kubelet that has been started anew publishes again.
		if is, err := mounts.New().IsMountPoint(r.TargetPath); is || err != nil {
			return &csipb.NodePublishVolumeResponse{}, err
		}
		source, kind, options := r.StagingTargetPath, "", []string{"bind"}
		if r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
			source, kind, options = "tmpfs", "tmpfs", []string{"size=1m"}
		}
		if err := mounts.New().Mount(source, r.TargetPath, kind, options); err != nil {
			return nil, err
		}
	}
	return &csipb.NodePublishVolumeResponse{}, os.WriteFile(filepath.Join(r.TargetPath, guestMark), []byte(r.VolumeId), 0o644)
}

func (d *driverOfAGuest) NodeUnpublishVolume(_ context.Context, r *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	if is, err := mounts.New().IsMountPoint(r.TargetPath); d.real && is {
		if err := mounts.New().Unmount(r.TargetPath); err != nil {
			return nil, err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csipb.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.TargetPath)
}

func (d *driverOfAGuest) NodeUnstageVolume(_ context.Context, r *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	if !d.real {
		return &csipb.NodeUnstageVolumeResponse{}, nil
	}
	return &csipb.NodeUnstageVolumeResponse{}, mounts.New().Unmount(r.StagingTargetPath)
}
