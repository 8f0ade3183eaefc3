package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/sock"
	"drydock.dev/drydock/nodesim/volumeplugin"
)

// callTimeout bounds every operation on a driver.
const callTimeout = 2 * time.Minute

// drivers holds the endpoints of the registered drivers and one connection to each that is
// not reached within this process.
type drivers struct {
	host   *volumeplugin.Host
	mu     sync.Mutex
	byName map[string]*driver // guarded by mu
	closed bool               // guarded by mu
}

type driver struct {
	endpoint string
	version  string
	conn     *grpc.ClientConn // guarded by drivers.mu; nil until it is needed
}

// client speaks to one driver as the kubelet does, for one operation.
type client struct {
	name   string
	node   csipb.NodeClient
	all    *drivers
	driver *driver
	used   *grpc.ClientConn // of the last call; nil if that stayed in this process
}

func (d *drivers) set(name, endpoint, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.byName[name]; old != nil && old.conn != nil {
		old.conn.Close()
	}
	if d.byName == nil {
		d.byName = map[string]*driver{}
	}
	d.byName[name] = &driver{endpoint: endpoint, version: version}
}

func (d *drivers) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.byName[name]; old != nil && old.conn != nil {
		old.conn.Close()
	}
	delete(d.byName, name)
}

func (d *drivers) version(name string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byName[name]; x != nil {
		return x.version, true
	}
	return "", false
}

// names lists the registered drivers.
func (d *drivers) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.byName))
}

func (d *drivers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, x := range d.byName {
		if x.conn != nil {
			x.conn.Close()
			x.conn = nil
		}
	}
}

// client returns a client of a registered driver.
func (d *drivers) client(name string) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" {
		return nil, errors.New("driver name is empty")
	}
	x := d.byName[name]
	if x == nil {
		return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
	}
	if d.closed {
		return nil, errors.New("kubelet is shutting down")
	}
	c := &client{name: name, all: d, driver: x}
	c.node = csipb.NewNodeClient(c)
	return c, nil
}

// Invoke is grpc.ClientConnInterface's: it makes a call, says who is calling, and counts it.
func (c *client) Invoke(ctx context.Context, method string, request, reply any, o ...grpc.CallOption) error {
	host := c.all.host
	began := host.Lab.Clock.Now()
	conn, err := c.reach()
	if err == nil {
		err = conn.Invoke(metadata.AppendToOutgoingContext(ctx, lab.ComponentKey, "kubelet"), method, request, reply, o...)
	}
	code := "unknown-non-grpc"
	if s, ok := status.FromError(err); ok {
		code = s.Code().String()
	}
	host.Operations.Call(c.name, method, code, host.Lab.Clock.Since(began))
	return err
}

// NewStream is grpc.ClientConnInterface's. No node method streams.
func (c *client) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("the kubelet makes no streaming calls to drivers")
}

// reach finds the way to the driver. The kubelet dials for each call; one connection is kept
// here, and dropped as soon as it was unavailable, so that a driver that came back is
// reached at the next call.
func (c *client) reach() (grpc.ClientConnInterface, error) {
	c.used = nil
	if within := c.all.host.Within; within != nil {
		if conn := within(c.driver.endpoint); conn != nil {
			return conn, nil
		}
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.all.closed {
		return nil, errors.New("kubelet is shutting down")
	}
	if c.driver.conn == nil {
		conn, err := dial(c.driver.endpoint)
		if err != nil {
			return nil, err
		}
		c.driver.conn = conn
	}
	c.used = c.driver.conn
	return c.used, nil
}

func dial(endpoint string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return sock.Dial(ctx, path) }))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver at %s: %w", endpoint, err)
	}
	return conn, nil
}

// done drops the connection if the driver was not there.
func (c *client) done(err error) {
	if status.Code(err) != codes.Unavailable || c.used == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.driver.conn == c.used {
		c.used.Close()
		c.driver.conn = nil
	}
}

// classify marks an RPC's error as uncertain where the driver may still be at work
// or may have finished; also where the error is none of gRPC's.
func (c *client) classify(err error) error {
	c.done(err)
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return volumeplugin.AsUncertain(err)
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Unavailable:
		return volumeplugin.AsUncertain(err)
	}
	return err
}

func (c *client) has(ctx context.Context, ability Ability) (bool, error) {
	can, err := c.abilities(ctx)
	return can[ability], err
}

func (c *client) abilities(ctx context.Context) (map[Ability]bool, error) {
	r, err := c.node.NodeGetCapabilities(ctx, &csipb.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, c.classify(err)
	}
	can := make(map[Ability]bool, len(r.GetCapabilities()))
	for _, x := range r.GetCapabilities() {
		can[x.GetRpc().GetType()] = true
	}
	return can, nil
}

// accessMode maps one access mode of a PV. A driver that tells single-node writers
// apart gets the finer modes.
func (c *client) accessMode(ctx context.Context, m v1.PersistentVolumeAccessMode) (csipb.VolumeCapability_AccessMode_Mode, error) {
	fine, err := c.has(ctx, csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return 0, err
	}
	switch m {
	case v1.ReadWriteOnce:
		if fine {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, nil
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case v1.ReadWriteOncePod:
		if fine {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, nil
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, nil
	case v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, nil
	}
	return csipb.VolumeCapability_AccessMode_UNKNOWN, nil
}

// access describes how a volume is used, for capability.
type access struct {
	block   bool
	fsType  string
	flags   []string
	fsGroup *int64
	mode    v1.PersistentVolumeAccessMode
}

// label asks for a mount with an SELinux label, and writes that down. The flags are the PV's own, and are copied.
func (a *access) label(label string, data map[string]string) {
	if label != "" {
		a.flags = append(slices.Clone(a.flags), volumeplugin.SELinuxOption(label))
		data[keySELinux] = label
	}
}

func (c *client) capability(ctx context.Context, a access) (*csipb.VolumeCapability, error) {
	mode, err := c.accessMode(ctx, a.mode)
	if err != nil {
		return nil, err
	}
	vc := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{Mode: mode}}
	if a.block {
		vc.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return vc, nil
	}
	m := &csipb.VolumeCapability_MountVolume{FsType: a.fsType, MountFlags: a.flags}
	if a.fsGroup != nil {
		m.VolumeMountGroup = fmt.Sprint(*a.fsGroup)
	}
	vc.AccessType = &csipb.VolumeCapability_Mount{Mount: m}
	return vc, nil
}

func (c *client) stage(ctx context.Context, a access, r *csipb.NodeStageVolumeRequest) error {
	var err error
	if r.VolumeCapability, err = c.capability(ctx, a); err != nil {
		return err
	}
	_, err = c.node.NodeStageVolume(ctx, r)
	return c.classify(err)
}

func (c *client) publish(ctx context.Context, a access, r *csipb.NodePublishVolumeRequest) error {
	var err error
	if r.VolumeCapability, err = c.capability(ctx, a); err != nil {
		return err
	}
	_, err = c.node.NodePublishVolume(ctx, r)
	return c.classify(err)
}

func (c *client) unpublish(ctx context.Context, handle, target string) error {
	_, err := c.node.NodeUnpublishVolume(ctx, &csipb.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	c.done(err)
	return err
}

func (c *client) unstage(ctx context.Context, handle, staging string) error {
	_, err := c.node.NodeUnstageVolume(ctx, &csipb.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: staging})
	c.done(err)
	return err
}
