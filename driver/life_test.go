package driver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/drydock/internal/lab"
)

// insist calls a step until it works, starting the driver again whenever it was killed.
func (d *disk) insist(step func() error) {
	r := d.n.r
	r.t.Helper()
	for range 20 {
		err := step()
		if err == nil {
			return
		}
		if d.n.life.Killed() {
			d.n.restart()
		} else if c := status.Code(err); c != codes.Aborted && c != codes.Unavailable {
			r.t.Fatal(err)
		}
	}
	r.t.Fatal("did not get there in 20 tries")
}

// The driver dies at each of its points in turn, and always gets to the end, with one
// volume, one mkfs, and the data as they were.
func TestKilledAtEveryPoint(t *testing.T) {
	for _, p := range Points() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			run := modes
			if strings.Contains(p.Name, "cloud") || strings.Contains(p.Name, "Controller") || strings.Contains(p.Name, "asked") {
				run = func(t *testing.T, f func(*testing.T, *rig)) { f(t, newRig(t, true)) } // no matter for devices
			}
			run(t, func(t *testing.T, r *rig) {
				n := r.nodes["n1"]
				h := r.rule(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
				d := n.disk("", "pvc-a", writer(""))
				d.insist(func() error {
					resp, err := n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-a", VolumeCapabilities: []*csi.VolumeCapability{d.cap}})
					d.id = resp.GetVolume().GetVolumeId()
					return err
				})
				for _, step := range []func() error{d.attach, d.stage, d.pod} {
					d.insist(step)
				}
				d.write("precious")
				d.insist(func() error {
					_, err := n.CreateSnapshot(n.ctx(), &csi.CreateSnapshotRequest{Name: "snapshot-a", SourceVolumeId: d.id})
					return err
				})
				d.insist(func() error {
					_, err := n.ControllerExpandVolume(n.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: d.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
					return err
				})
				for _, step := range []func() error{d.unpod, d.unstage, d.detach, d.attach, d.stage, d.pod} {
					d.insist(step)
				}
				d.verify("precious")
				for _, step := range []func() error{d.unpod, d.unstage, d.detach} {
					d.insist(step)
				}
				if got := r.volumes(); !slices.Equal(got, []string{d.id + "@"}) {
					t.Errorf("volumes: %v", got)
				}
				if s, err := n.ListSnapshots(n.ctx(), &csi.ListSnapshotsRequest{}); err != nil || len(s.Entries) != 1 {
					t.Errorf("snapshots: %v, %v", s, err)
				}
				d.insist(d.delete)
				if h.Fired() != 1 {
					t.Error("the point was not reached")
				}
				if got := r.count("mkfs.ext4"); got != 1 {
					t.Errorf("formatted %d times", got)
				}
			})
		})
	}
}

// mkfs runs when the driver is killed: it dies with it, and is done over.
func TestKilledDuringMkfs(t *testing.T) {
	r := newRig(t, false)
	n := r.nodes["n1"]
	d := n.create("pvc-a", writer(""))
	r.must(d.attach())
	ready := filepath.Join(r.dir, "ready")
	r.must(os.Mkdir(ready, 0o755))
	t.Run("killed", func(t *testing.T) {
		// It has written something when it hangs.
		r.fakeTool(t, "mkfs.ext4", `for last; do :; done; printf x | dd of="$last" bs=1 seek=134217728 conv=notrunc,fsync 2>/dev/null; touch `+ready+`/now; exec sleep 1000`)
		done := make(chan error, 1)
		go func() { done <- d.stage() }()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(ready, "now")); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("mkfs was not run")
			}
		}
		n.life.Kill()
		if err := <-done; err == nil {
			t.Error("the stage succeeded")
		}
	})
	n.restart()
	d.up()
	d.write("x")
	d.verify("x")
	d.down()
}

// The disk is pulled under a mounted volume. Taking down works, and the data are there again.
func TestPulledDisk(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", writer("ext4"))
		d.up()
		d.write("precious")
		f, err := os.Open(d.target)
		r.must(err)
		if !r.sim {
			r.must(sync1(f))
		}
		r.must(f.Close())
		r.must(d.detach())
		if _, err := os.ReadFile(filepath.Join(d.target, "other")); err == nil {
			t.Error("could read from a pulled disk")
		}
		_, err = d.n.NodeGetVolumeStats(d.n.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: d.id, VolumePath: filepath.Join(r.dir, "elsewhere")})
		r.wantCode(err, codes.NotFound, "not mounted")
		r.must(d.unpod())
		r.must(d.unstage())
		d.intact()
	})
}

// A publish must never show the node's own disk in the place of a volume.
func TestPublishNeedsAStagedVolume(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		n := r.nodes["n1"]
		d, other := n.create("pvc-a", writer("")), n.create("pvc-b", writer(""))
		r.must(d.attach())
		r.wantCode(d.pod(), codes.FailedPrecondition, "not staged")
		if _, err := os.Lstat(d.target); !os.IsNotExist(err) {
			t.Errorf("it left a target: %v", err)
		}
		r.must(other.attach())
		r.must(other.stage())
		staging := d.staging
		d.staging = other.staging
		r.wantCode(d.pod(), codes.FailedPrecondition, "another volume is staged")
		r.wantCode(d.stage(), codes.AlreadyExists, "another device is mounted")
		d.staging = staging
		r.must(d.stage())
		r.must(d.pod())
		target := other.target
		other.target = d.target
		r.wantCode(other.pod(), codes.AlreadyExists, "another volume is mounted there")
		other.target = target
		d.down()
		r.must(other.unstage())
	})
}

func TestReadOnlyPublish(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", writer(""))
		d.up()
		d.write("x")
		second := d.target + "-ro"
		r.must(d.podAt(second, true))
		r.must(d.podAt(second, true))
		r.wantCode(d.podAt(second, false), codes.AlreadyExists, "read-only being true, not false")
		r.wantCode(d.podAt(d.target, true), codes.AlreadyExists, "read-only being false, not true")
		if !r.sim {
			if err := os.WriteFile(filepath.Join(second, "f"), nil, 0o600); err == nil || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("write through a read-only target: %v", err)
			}
		}
		r.must(d.unpodAt(second))
		d.verify("x")
		d.down()
	})
}

// What lies in a target that is not mounted is not the driver's to remove.
func TestUnpublishKeepsStrayFiles(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", writer(""))
		r.must(os.MkdirAll(d.target, 0o755))
		stray := filepath.Join(d.target, "stray")
		r.must(os.WriteFile(stray, nil, 0o600))
		r.wantCode(d.unpod(), codes.Internal, "its target stays")
		r.must(os.Remove(stray))
		r.must(d.unpod())
		r.must(os.WriteFile(d.target, []byte("stray"), 0o600))
		r.wantCode(d.unpod(), codes.Internal, "not an empty file")
	})
}

func TestMountTrouble(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", writer("ext4"))
		r.must(d.attach())
		r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mount", Action: lab.Fail, Code: "EIO", Times: 1})
		r.wantCode(d.stage(), codes.Internal, "input/output error")
		r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mount", Action: lab.LateOK, Times: 1}) // mounted, and not told
		r.wantCode(d.stage(), codes.DeadlineExceeded, "")
		r.must(d.stage())
		r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mount", Action: lab.Fail, Code: "EIO", Times: 1})
		r.wantCode(d.pod(), codes.Internal, "input/output error")
		r.must(d.pod())
		d.write("precious")
		for _, step := range []func() error{d.unpod, d.unstage} {
			r.rule(lab.Rule{Kind: lab.KindKernel, Op: "unmount", Action: lab.Fail, Code: "EBUSY", Times: 1})
			r.wantCode(step(), codes.Internal, "busy")
			r.rule(lab.Rule{Kind: lab.KindKernel, Op: "unmount", Action: lab.Lost, Times: 1})
			r.wantCode(step(), codes.DeadlineExceeded, "")
			r.must(step())
		}
		r.must(d.detach())
		d.intact()
	})
}

func TestNonsenseMountOption(t *testing.T) {
	r := newRig(t, false)
	d := r.nodes["n1"].create("pvc-a", writer("ext4", "nonsense=1"))
	r.must(d.attach())
	r.wantCode(d.stage(), codes.Internal, "nonsense")
	d.cap = writer("ext4", "noatime", "nodev")
	d.up()
	m, _, err := (&node{mounter: d.n.mounter}).topmost(d.staging)
	if err != nil || !slices.Contains(m.Opts, "noatime") || !slices.Contains(m.Opts, "nodev") {
		t.Errorf("mounted with %v, %v", m.Opts, err)
	}
	d.down()
}

func TestNodeGetInfo(t *testing.T) {
	r := newRig(t, true)
	n := r.nodes["n1"]
	info, err := n.NodeGetInfo(n.ctx(), &csi.NodeGetInfoRequest{})
	r.must(err)
	if info.NodeId != n.id || info.MaxVolumesPerNode != DefaultMaxVolumes || info.AccessibleTopology.Segments[RegionKey] != "nyc3" {
		t.Errorf("info: %v", info)
	}
	r.server.Close()
	_, err = n.NodeGetInfo(n.ctx(), &csi.NodeGetInfoRequest{})
	r.wantCode(err, codes.Unavailable, "metadata service")
}

func TestNew(t *testing.T) {
	node, ctl := &NodeConfig{}, &ControllerConfig{Region: "nyc3"}
	for says, c := range map[string]Config{
		"driver name":      {Name: "a/b", Endpoint: "s", Controller: ctl},
		"no socket path":   {Controller: ctl},
		"neither":          {Endpoint: "s"},
		"needs a region":   {Endpoint: "s", Controller: &ControllerConfig{}},
		"cloud URL":        {Endpoint: "s", Controller: &ControllerConfig{Region: "r", CloudURL: "nowhere"}},
		"need a simulated": {Endpoint: "s", Node: &NodeConfig{Simulated: true}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	for _, name := range []string{"", "dobs.csi.digitalocean.com", "com.digitalocean.csi.dobs"} {
		if _, err := New(Config{Name: name, Endpoint: "s", Controller: ctl, Node: node}); err != nil {
			t.Error(err)
		}
	}
}

// A socket that was left behind is replaced, one that is in use is not, and a path that
// is longer than the kernel takes works.
func TestSocket(t *testing.T) {
	r := newRig(t, true)
	second, err := New(Config{Endpoint: r.path("n1", "csi.sock"), Controller: &ControllerConfig{Region: "nyc3"}})
	r.must(err)
	if err := second.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("second driver on a socket: %v", err)
	}
	stale := r.path("stale.sock")
	l, err := net.Listen("unix", stale)
	r.must(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	r.must(l.Close())
	long := r.path(strings.Repeat("d", 90), "plugins", "csi.sock")
	for _, path := range []string{stale, long} {
		d, err := New(Config{Endpoint: path, Controller: &ControllerConfig{Region: "nyc3"}})
		r.must(err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A call that hangs does not keep the driver from ending.
func TestStopDuringACall(t *testing.T) {
	r := newRig(t, true)
	n := r.nodes["n1"]
	d := n.create("pvc-a", writer(""))
	r.must(d.attach())
	h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mount", Action: lab.Hang})
	done := make(chan error, 1)
	go func() { done <- d.stage() }()
	r.must(h.WaitFired(n.ctx(), 1))
	n.life.Stop()
	if err := r.hurry(n.ended); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("the stage succeeded")
	}
	n.ended <- nil // stop waits for it again
	h.Remove()
	n.restart()
	d.up()
	d.down()
}

func TestPanicStaysInItsCall(t *testing.T) {
	r := newRig(t, true)
	d := &Driver{cfg: Config{Log: r.log}, lab: r.lab}
	info := &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"}
	_, err := d.handle(context.Background(), &csi.NodeStageVolumeRequest{}, info, func(context.Context, any) (any, error) { panic("oops") })
	r.wantCode(err, codes.Internal, "panic in /csi.v1.Node/NodeStageVolume: oops")
}
