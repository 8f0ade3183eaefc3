package driver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/fakecloud/api"
	"drydock.dev/drydock/fakecloud/blockdev"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/internal/mounts"
)

// rig is a cloud with nodes, each with a driver that serves both sides.
type rig struct {
	t      testing.TB
	dir    string
	sim    bool
	lab    *lab.Lab
	cloud  *fakecloud.Cloud
	server *httptest.Server
	nodes  map[string]*testNode
	log    zerolog.Logger

	mu       sync.Mutex
	requests []api.Request // guarded by mu
}

type testNode struct {
	r       *rig
	name    string
	id      string // of the droplet
	mounter mount.Interface
	life    *lab.Component
	driver  *Driver
	ended   chan error
	conn    *grpc.ClientConn
	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient
}

// modes runs a test on simulated devices and, for a root, on loop devices.
func modes(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Run("sim", func(t *testing.T) { f(t, newRig(t, true)) })
	t.Run("loop", func(t *testing.T) { f(t, newRig(t, false)) })
}

func needsRoot(t testing.TB) {
	t.Helper()
	if private {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("loop devices and mounts need root on Linux, and CI has to test them")
	}
	t.Skip("loop devices and mounts need root on Linux")
}

func newRig(t testing.TB, sim bool) *rig {
	t.Helper()
	if !sim {
		needsRoot(t)
	}
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, sim: sim, lab: lab.New(lab.Options{}), nodes: map[string]*testNode{}, log: zerolog.Nop()}
	if os.Getenv("DRYDOCK_TEST_LOG") != "" {
		r.log = zerolog.New(zerolog.NewTestWriter(t))
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getenv("DRYDOCK_TEST_SPANS") != "" {
		t.Cleanup(r.dump)
	}
	o := blockdev.Options{Lab: r.lab, Links: r.links}
	var devices blockdev.Backend
	if sim {
		devices, err = blockdev.NewSim(filepath.Join(dir, "cloud"), o)
	} else {
		devices, err = blockdev.NewLoop(filepath.Join(dir, "cloud"), o)
	}
	r.must(err)
	t.Cleanup(func() {
		if err := devices.Close(); err != nil {
			t.Error(err)
		}
	})
	r.cloud, err = fakecloud.Open(context.Background(), fakecloud.Config{
		DB: filepath.Join(dir, "cloud.db"), Devices: devices, Lab: r.lab, Log: r.log, Limits: fakecloud.Limits{VolumesPerDroplet: DefaultMaxVolumes}})
	r.must(err)
	r.server = httptest.NewServer(api.New(r.cloud, api.Config{Token: "token", OnRequest: func(q api.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, q)
	}}))
	t.Cleanup(func() {
		r.server.Close()
		if err := r.cloud.Close(); err != nil {
			t.Error(err)
		}
	})
	r.addNode("n1")
	return r
}

func (r *rig) links(droplet string) string { return filepath.Join(r.dir, droplet, "by-id") }

func (r *rig) path(elem ...string) string { return filepath.Join(append([]string{r.dir}, elem...)...) }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) addNode(name string) *testNode {
	r.t.Helper()
	id, err := r.cloud.EnsureDroplet(context.Background(), name)
	r.must(err)
	n := &testNode{r: r, name: name, id: strconv.Itoa(int(id))}
	r.must(os.MkdirAll(r.path(name), 0o755))
	if r.sim {
		n.mounter, err = mounts.OpenTable(r.path(name, "mounts"))
		r.must(err)
	} else {
		n.mounter = mounts.New()
	}
	r.nodes[name] = n
	n.start()
	r.t.Cleanup(func() {
		n.stop()
		n.unmountAll()
	})
	return n
}

// unmountAll takes away what a test left mounted, so that its directory can be removed.
func (n *testNode) unmountAll() {
	list, err := n.mounter.List()
	if err != nil {
		n.r.t.Error(err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		if strings.HasPrefix(list[i].Path, n.r.path(n.name)+"/") {
			if err := n.mounter.Unmount(list[i].Path); err != nil {
				n.r.t.Error(err)
			}
		}
	}
}

func (n *testNode) start() {
	r := n.r
	r.t.Helper()
	via, err := url.Parse(r.server.URL)
	r.must(err)
	via.User = url.User(n.name)
	n.life = r.lab.Component(context.Background(), "driver", n.name)
	d, err := New(Config{
		Version: "test", Endpoint: r.path(n.name, "csi.sock"), Lab: r.lab, Component: n.life, Log: r.log,
		Controller: &ControllerConfig{CloudURL: r.server.URL, Token: "token", Region: "nyc3"},
		Node: &NodeConfig{MetadataURL: "http://169.254.169.254", HTTPClient: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(via)}},
			DeviceDir: r.links(n.name), Mounter: n.mounter, Simulated: r.sim},
	})
	r.must(err)
	n.driver, n.ended = d, make(chan error, 1)
	go func() { n.ended <- d.Run(n.life.Context()) }()
	n.conn, err = grpc.NewClient("passthrough:///"+r.path(n.name, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: 10 * time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", addr)
		}))
	r.must(err)
	n.IdentityClient, n.ControllerClient, n.NodeClient = csi.NewIdentityClient(n.conn), csi.NewControllerClient(n.conn), csi.NewNodeClient(n.conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = n.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
	r.must(err)
}

// hasten makes the lab's time fly until the test ends: for what waits between tries.
func (r *rig) hasten() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				r.lab.Clock.(*lab.Clock).Advance(100 * time.Millisecond)
			}
		}
	}()
	r.t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// dump writes the timeline into the test's log.
func (r *rig) dump() {
	for _, s := range r.lab.Timeline.Spans() {
		r.t.Logf("%10v %-8s %-28s %s %s", s.End.Sub(s.Start).Round(time.Microsecond), s.Component, s.Op, s.Code, s.Error)
	}
}

// stop ends the driver, if it has not been killed, and waits for that.
func (n *testNode) stop() {
	if n.conn == nil {
		return
	}
	n.conn.Close()
	n.life.Stop()
	if err := <-n.ended; err != nil {
		n.r.t.Error(err)
	}
	n.conn = nil
}

// restart is a new life of the driver on the same machine.
func (n *testNode) restart() { n.stop(); n.start() }

func writer(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
}

func rawBlock() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

// disk is a volume on its way through the calls, on one node.
type disk struct {
	n       *testNode
	id      string
	name    string
	cap     *csi.VolumeCapability
	publish map[string]string
	staging string
	target  string
}

func (n *testNode) create(name string, c *csi.VolumeCapability) *disk {
	n.r.t.Helper()
	resp, err := n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{c}})
	n.r.must(err)
	return n.disk(resp.Volume.VolumeId, name, c)
}

func (n *testNode) disk(id, name string, c *csi.VolumeCapability) *disk {
	d := &disk{n: n, id: id, name: name, cap: c, staging: n.r.path(n.name, "stage", name), target: n.r.path(n.name, "pods", name, "mount")}
	n.r.must(os.MkdirAll(d.staging, 0o750))
	n.r.must(os.MkdirAll(filepath.Dir(d.target), 0o750))
	return d
}

// on is the same volume seen from another node.
func (d *disk) on(n *testNode) *disk { return n.disk(d.id, d.name, d.cap) }

func (n *testNode) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	n.r.t.Cleanup(cancel)
	return ctx
}

func (d *disk) attach() error {
	resp, err := d.n.ControllerPublishVolume(d.n.ctx(), &csi.ControllerPublishVolumeRequest{VolumeId: d.id, NodeId: d.n.id, VolumeCapability: d.cap})
	d.publish = resp.GetPublishContext()
	return err
}

func (d *disk) detach() error {
	_, err := d.n.ControllerUnpublishVolume(d.n.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: d.id, NodeId: d.n.id})
	return err
}

func (d *disk) stage() error {
	_, err := d.n.NodeStageVolume(d.n.ctx(), &csi.NodeStageVolumeRequest{VolumeId: d.id, PublishContext: d.publish, StagingTargetPath: d.staging, VolumeCapability: d.cap})
	return err
}

func (d *disk) unstage() error {
	_, err := d.n.NodeUnstageVolume(d.n.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: d.id, StagingTargetPath: d.staging})
	return err
}

func (d *disk) pod() error { return d.podAt(d.target, false) }

func (d *disk) podAt(target string, readonly bool) error {
	_, err := d.n.NodePublishVolume(d.n.ctx(), &csi.NodePublishVolumeRequest{VolumeId: d.id, PublishContext: d.publish,
		StagingTargetPath: d.staging, TargetPath: target, VolumeCapability: d.cap, Readonly: readonly})
	return err
}

func (d *disk) unpod() error { return d.unpodAt(d.target) }

func (d *disk) unpodAt(target string) error {
	_, err := d.n.NodeUnpublishVolume(d.n.ctx(), &csi.NodeUnpublishVolumeRequest{VolumeId: d.id, TargetPath: target})
	return err
}

func (d *disk) delete() error {
	_, err := d.n.DeleteVolume(d.n.ctx(), &csi.DeleteVolumeRequest{VolumeId: d.id})
	return err
}

// up takes the volume all the way to the pod; down takes it back to where it was created.
func (d *disk) up() {
	d.n.r.t.Helper()
	for _, step := range []func() error{d.attach, d.stage, d.pod} {
		d.n.r.must(step())
	}
}

func (d *disk) down() {
	d.n.r.t.Helper()
	for _, step := range []func() error{d.unpod, d.unstage, d.detach} {
		d.n.r.must(step())
	}
}

func (d *disk) write(text string) {
	d.n.r.t.Helper()
	d.n.r.must(os.WriteFile(filepath.Join(d.target, "marker"), []byte(text), 0o600))
}

func (d *disk) verify(text string) {
	d.n.r.t.Helper()
	if b, err := os.ReadFile(filepath.Join(d.target, "marker")); err != nil || string(b) != text {
		d.n.r.t.Errorf("the marker of %s: %q, %v", d.name, b, err)
	}
}

// image is the file that holds the volume's bytes.
func (d *disk) image() string {
	if d.n.r.sim {
		block := d.n.r.path("cloud", "volumes", d.id+".sim", "block")
		if _, err := os.Stat(block); err != nil {
			return block + ".unplugged" // where the fake cloud keeps it while it is detached
		}
		return block
	}
	return d.n.r.path("cloud", "volumes", d.id+".img")
}

// bytesAt reads from the image, past the device.
func (d *disk) bytesAt(off, length int64) string {
	d.n.r.t.Helper()
	f, err := os.Open(d.image())
	d.n.r.must(err)
	defer f.Close()
	b := make([]byte, length)
	_, err = f.ReadAt(b, off)
	d.n.r.must(err)
	return string(b)
}

// wantCode fails the test unless err has a code, and says something.
func (r *rig) wantCode(err error, code codes.Code, says string) {
	r.t.Helper()
	if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		r.t.Errorf("got %v, want code %s with %q", err, code, says)
	}
}

// count counts the ended spans of an operation.
func (r *rig) count(op string) (n int) {
	for _, s := range r.lab.Timeline.Spans() {
		if s.Op == op && !s.End.IsZero() {
			n++
		}
	}
	return n
}

func (r *rig) rule(f lab.Rule) *lab.Handle {
	r.t.Helper()
	h, err := r.lab.Faults.Add(f)
	r.must(err)
	return h
}
