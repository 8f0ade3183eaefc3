package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
)

func TestSizeFor(t *testing.T) {
	const tib = 1024 * gib
	for _, c := range []struct {
		required, limit int64
		want            int64 // GiB
		code            codes.Code
	}{
		{0, 0, 1, codes.OK},
		{1, 0, 1, codes.OK},
		{gib, 0, 1, codes.OK},
		{gib + 1, 0, 2, codes.OK},
		{3 * gib / 2, 0, 2, codes.OK},
		{3 * gib / 2, 2 * gib, 2, codes.OK},
		{3 * gib / 2, 2*gib - 1, 0, codes.OutOfRange},
		{gib / 2, gib - 1, 0, codes.OutOfRange},
		{0, gib / 2, 0, codes.OutOfRange},
		{0, gib, 1, codes.OK},
		{0, 5 * gib, 1, codes.OK},
		{5 * gib, 5 * gib, 5, codes.OK},
		{16 * tib, 0, 16384, codes.OK},
		{16*tib + 1, 0, 0, codes.OutOfRange},
		{20 * tib, 0, 0, codes.OutOfRange},
		{1<<63 - 1, 0, 0, codes.OutOfRange},
		{1<<63 - 1, 1<<63 - 1, 0, codes.OutOfRange},
		{2 * gib, gib, 0, codes.InvalidArgument},
		{-1, 0, 0, codes.InvalidArgument},
		{0, -1, 0, codes.InvalidArgument},
	} {
		got, err := sizeFor(&csi.CapacityRange{RequiredBytes: c.required, LimitBytes: c.limit})
		if got != c.want && err == nil || codeOf(err) != c.code {
			t.Errorf("%d to %d bytes: %d GiB, %v; want %d GiB, %s", c.required, c.limit, got, err, c.want, c.code)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		span := &csi.CapacityRange{RequiredBytes: rapid.Int64Min(0).Draw(r, "required"), LimitBytes: rapid.Int64Min(0).Draw(r, "limit")}
		if size, err := sizeFor(span); err == nil && !within(span, size) {
			r.Fatalf("%v gets %d GiB", span, size)
		}
	})
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, true)
	n := r.nodes["n1"]
	d := n.create("pvc-a", writer(""))
	rwx := writer("")
	rwx.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	create := func(change func(*csi.CreateVolumeRequest)) error {
		q := &csi.CreateVolumeRequest{Name: "pvc-bad", VolumeCapabilities: []*csi.VolumeCapability{writer("")}}
		change(q)
		_, err := n.CreateVolume(n.ctx(), q)
		return err
	}
	region := func(s string) *csi.TopologyRequirement {
		return &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{RegionKey: s}}}}
	}
	attach := func(volume, node string, c *csi.VolumeCapability) error {
		_, err := n.ControllerPublishVolume(n.ctx(), &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: c})
		return err
	}
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		says string
	}{
		"20 TiB":         {create(func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{RequiredBytes: 20 << 40} }), codes.OutOfRange, "at most 16384 GiB"},
		"RWX":            {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = rwx }), codes.InvalidArgument, "use ReadWriteOnce"},
		"zfs":            {create(func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = writer("zfs") }), codes.InvalidArgument, `filesystem "zfs"`},
		"other region":   {create(func(q *csi.CreateVolumeRequest) { q.AccessibilityRequirements = region("fra1") }), codes.ResourceExhausted, "region nyc3 only"},
		"mutable":        {create(func(q *csi.CreateVolumeRequest) { q.MutableParameters = map[string]string{"iops": "1"} }), codes.InvalidArgument, "mutable"},
		"no snapshot":    {create(func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("aaaa") }), codes.NotFound, "snapshot aaaa"},
		"strange id":     {attach("../../v2/account", n.id, d.cap), codes.NotFound, "not an id of this cloud"},
		"no volume":      {attach("aaaa", n.id, d.cap), codes.NotFound, "volume aaaa"},
		"node by name":   {attach(d.id, "n1", d.cap), codes.NotFound, "not a droplet's id"},
		"no such node":   {attach(d.id, "999", d.cap), codes.NotFound, "droplet 999"},
		"RWX attach":     {attach(d.id, n.id, rwx), codes.InvalidArgument, "use ReadWriteOnce"},
		"nothing at all": {attach("", "", nil), codes.InvalidArgument, "no volume id"},
	} {
		t.Run(name, func(t *testing.T) { r.wantCode(c.err, c.code, c.says) })
	}
	if got := r.volumes(); len(got) != 1 {
		t.Errorf("bad requests made volumes: %v", got)
	}
	if err := create(func(q *csi.CreateVolumeRequest) { q.AccessibilityRequirements = region("nyc3") }); err != nil {
		t.Error(err)
	}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

// volumes lists "name@node" of what is in the cloud.
func (r *rig) volumes() (out []string) {
	r.t.Helper()
	resp, err := r.nodes["n1"].ListVolumes(context.Background(), &csi.ListVolumesRequest{})
	r.must(err)
	for _, e := range resp.Entries {
		out = append(out, e.Volume.VolumeId+"@"+strings.Join(e.Status.PublishedNodeIds, ","))
	}
	return out
}

// post is the call that makes or attaches something.
const (
	callCreate = "POST /v2/volumes"
	callAction = "POST /v2/volumes/{id}/actions"
)

// Whatever happens to a request or its answer, calling again leads to one volume in
// one place, and no error in between may sound final once the volume may exist.
func TestLostAnswers(t *testing.T) {
	for _, a := range []lab.Action{lab.Lost, lab.LateOK} {
		t.Run(string(a), func(t *testing.T) {
			modes(t, func(t *testing.T, r *rig) {
				n := r.nodes["n1"]
				once := func(op string) {
					r.rule(lab.Rule{Kind: lab.KindCloud, Op: op, Component: "driver*", Action: a, Times: 1})
				}
				create := func() (*csi.CreateVolumeResponse, error) {
					return n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-a", VolumeCapabilities: []*csi.VolumeCapability{writer("")}})
				}
				once(callCreate)
				_, err := create()
				r.wantCode(err, codes.Unavailable, "create volume pvc-a")
				resp, err := create()
				r.must(err)
				d := n.disk(resp.Volume.VolumeId, "pvc-a", writer(""))
				once(callAction)
				r.wantCode(d.attach(), codes.Unavailable, "attach volume")
				r.must(d.attach())
				if got := r.volumes(); !slices.Equal(got, []string{d.id + "@" + n.id}) {
					t.Errorf("volumes: %v", got)
				}
				r.must(d.stage())
				r.must(d.unstage())
				once(callAction)
				r.wantCode(d.detach(), codes.Unavailable, "detach volume")
				r.must(d.detach())
				once("DELETE /v2/volumes/{id}")
				r.must(d.delete()) // a repeat says NotFound, which is as good
				if got := r.volumes(); len(got) != 0 {
					t.Errorf("volumes: %v", got)
				}
			})
		})
	}
}

func TestCloudTrouble(t *testing.T) {
	r := newRig(t, true)
	r.hasten()
	n := r.nodes["n1"]
	d := n.create("pvc-a", writer(""))
	with := func(op, code string, times int, do func() error) error {
		h := r.rule(lab.Rule{Kind: lab.KindCloud, Op: op, Component: "driver*", Action: lab.Fail, Code: code, Times: times})
		defer h.Remove()
		return do()
	}
	create := func() error {
		_, err := n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-b", VolumeCapabilities: []*csi.VolumeCapability{writer("")}})
		return err
	}
	r.wantCode(with(callCreate, "403-capacity", 1, create), codes.ResourceExhausted, "limit is reached")
	r.wantCode(with(callCreate, "500", 0, create), codes.Unavailable, "500")
	r.wantCode(with(callCreate, "422", 0, create), codes.InvalidArgument, "422")
	for _, status := range []string{"401", "403", "404", "500"} { // as long as nobody knows whether it exists, nothing is final
		r.wantCode(with("GET /v2/volumes", status, 0, create), codes.Unavailable, status)
	}
	if got := r.volumes(); len(got) != 1 {
		t.Errorf("volumes: %v", got)
	}
	r.must(with("GET /v2/volumes", "503", 2, create)) // passes by itself
	r.must(with(callCreate, "429", 2, func() error {
		_, err := n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-c", VolumeCapabilities: []*csi.VolumeCapability{writer("")}})
		return err
	}))
	r.wantCode(with(callAction, "422-pending", 1, d.attach), codes.Aborted, "busy")
	r.wantCode(with(callAction, "errored", 1, d.attach), codes.Internal, "errored")
	r.must(with("GET /v2/volumes/{id}/actions/{aid}", "500", 3, d.attach))
	r.wantCode(with(callAction, "422-pending", 1, d.detach), codes.Aborted, "busy")
	r.must(d.detach())
	r.wantCode(with("GET /v2/volumes/{id}", "429", 0, d.attach), codes.Unavailable, "429")
}

func TestAttachedElsewhere(t *testing.T) {
	r := newRig(t, true)
	n2 := r.addNode("n2")
	d := r.nodes["n1"].create("pvc-a", writer(""))
	r.must(d.attach())
	e := d.on(n2)
	r.wantCode(e.attach(), codes.FailedPrecondition, "attached to node "+d.n.id)
	r.wantCode(d.delete(), codes.FailedPrecondition, "once it is detached")
	r.must(e.detach()) // it is not there, and stays where it is
	if got := r.volumes(); !slices.Equal(got, []string{d.id + "@" + d.n.id}) {
		t.Errorf("volumes: %v", got)
	}
	_, err := d.n.ControllerUnpublishVolume(d.n.ctx(), &csi.ControllerUnpublishVolumeRequest{VolumeId: d.id})
	r.must(err) // from wherever it is
	r.must(e.attach())
	r.must(e.detach())
}

func TestTooManyVolumes(t *testing.T) {
	r := newRig(t, true)
	s := r.cloud.Settings()
	s.Limits.VolumesPerDroplet = 1
	r.cloud.Configure(s)
	a, b := r.nodes["n1"].create("pvc-a", writer("")), r.nodes["n1"].create("pvc-b", writer(""))
	r.must(a.attach())
	r.wantCode(b.attach(), codes.ResourceExhausted, "as many volumes as it can take")
}

// slow makes attach and detach take a minute of the lab's time.
func (r *rig) slow() {
	s := r.cloud.Settings()
	minute := fakecloud.Delay{Min: time.Minute, Max: time.Minute}
	s.Latency = fakecloud.Latency{Attach: minute, Detach: minute, Resize: minute}
	r.cloud.Configure(s)
}

// A caller gave up waiting for an attach. A detach that came next must not say "done"
// before the attach has happened and is undone.
func TestDetachDuringAttach(t *testing.T) {
	r := newRig(t, true)
	r.slow()
	d := r.nodes["n1"].create("pvc-a", writer(""))
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := d.n.ControllerPublishVolume(short, &csi.ControllerPublishVolumeRequest{VolumeId: d.id, NodeId: d.n.id, VolumeCapability: d.cap})
	r.wantCode(err, codes.DeadlineExceeded, "")
	done := make(chan error, 1)
	go func() { done <- r.untilFree(d.detach) }()
	r.must(r.hurry(done))
	if got := r.volumes(); !slices.Equal(got, []string{d.id + "@"}) {
		t.Errorf("volumes: %v", got)
	}
}

// And the other way round: an attach during a detach that was given up.
func TestAttachDuringDetach(t *testing.T) {
	r := newRig(t, true)
	d := r.nodes["n1"].create("pvc-a", writer(""))
	r.must(d.attach())
	r.slow()
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := d.n.ControllerUnpublishVolume(short, &csi.ControllerUnpublishVolumeRequest{VolumeId: d.id, NodeId: d.n.id})
	r.wantCode(err, codes.DeadlineExceeded, "")
	done := make(chan error, 1)
	go func() { done <- r.untilFree(d.attach) }()
	r.must(r.hurry(done))
	if got := r.volumes(); !slices.Equal(got, []string{d.id + "@" + d.n.id}) {
		t.Errorf("volumes: %v", got)
	}
	r.must(d.stage())
	r.must(d.unstage())
}

// untilFree calls again as long as the answer is Aborted, as a sidecar does.
func (r *rig) untilFree(call func() error) error {
	for {
		if err := call(); status.Code(err) != codes.Aborted {
			return err
		}
	}
}

func TestCallsAtOnce(t *testing.T) {
	r := newRig(t, true)
	n := r.nodes["n1"]
	s := r.cloud.Settings()
	s.Latency.Attach = fakecloud.Delay{Min: 5 * time.Millisecond, Max: 10 * time.Millisecond}
	r.cloud.Configure(s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range 10 { // of one name
		wg.Go(func() {
			resp, err := n.CreateVolume(n.ctx(), &csi.CreateVolumeRequest{Name: "pvc-a", VolumeCapabilities: []*csi.VolumeCapability{writer("")}})
			if err != nil && status.Code(err) != codes.Aborted {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ids[resp.Volume.VolumeId] = true
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || len(r.volumes()) != 1 {
		t.Errorf("made %v", ids)
	}
	var disks []*disk
	for i := range 10 {
		disks = append(disks, n.create(fmt.Sprintf("pvc-%d", i), writer("")))
	}
	for _, step := range []func(*disk) error{(*disk).attach, (*disk).stage, (*disk).pod, (*disk).unpod, (*disk).unstage, (*disk).detach} {
		for _, d := range disks {
			wg.Go(func() {
				if err := step(d); err != nil { // the droplet takes one action at a time, and nobody need know
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestOverlappingCallsOfAVolume(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-a", writer(""))
		r.must(d.attach())
		h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mkfs", Action: lab.Pause})
		done := make(chan error, 1)
		go func() { done <- d.stage() }()
		r.must(h.WaitFired(d.n.ctx(), 1))
		for _, call := range []func() error{d.stage, d.unstage, d.pod, d.unpod} {
			r.wantCode(call(), codes.Aborted, "An operation with the given Volume ID "+d.id+" already exists")
		}
		h.Release()
		r.must(<-done)
		d.up()
		d.down()
	})
}

// A format goes on when its caller goes away, and is not begun twice.
func TestCallerLeavesDuringFormat(t *testing.T) {
	r := newRig(t, false)
	d := r.nodes["n1"].create("pvc-a", writer(""))
	r.must(d.attach())
	h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "mkfs", Action: lab.Pause})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := d.n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: d.id, PublishContext: d.publish, StagingTargetPath: d.staging, VolumeCapability: d.cap})
		done <- err
	}()
	r.must(h.WaitFired(d.n.ctx(), 1))
	cancel()
	r.wantCode(<-done, codes.Canceled, "")
	h.Release()
	r.must(r.untilFree(d.stage))
	if got := r.count("mkfs.ext4"); got != 1 {
		t.Errorf("formatted %d times", got)
	}
	r.must(d.unstage())
}

func TestGetCapacity(t *testing.T) {
	r := newRig(t, true)
	n := r.nodes["n1"]
	s := r.cloud.Settings()
	s.Limits.Volumes = 3
	r.cloud.Configure(s)
	n.create("pvc-a", writer(""))
	ask := func(q *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		t.Helper()
		resp, err := n.GetCapacity(n.ctx(), q)
		r.must(err)
		return resp
	}
	if got := ask(&csi.GetCapacityRequest{}); got.AvailableCapacity != 2*maxGiB*gib || got.MaximumVolumeSize.GetValue() != maxGiB*gib {
		t.Errorf("capacity: %v", got)
	}
	rwx := writer("")
	rwx.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	for _, q := range []*csi.GetCapacityRequest{
		{AccessibleTopology: &csi.Topology{Segments: map[string]string{RegionKey: "fra1"}}},
		{VolumeCapabilities: []*csi.VolumeCapability{rwx}},
	} {
		if got := ask(q); got.AvailableCapacity != 0 {
			t.Errorf("capacity for %v: %v", q, got)
		}
	}
}

// Pages of a list that changes meanwhile: no entry twice, none of those that stay missing.
func TestPages(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(r, "entries")
		var all []place
		for i := range n {
			all = append(all, place{int64(rapid.IntRange(0, 3).Draw(r, "created")), fmt.Sprint("v", i)})
		}
		stay, seen, token := slices.Clone(all), map[place]int{}, ""
		for {
			part, next, err := page(slices.Clone(all), func(p place) place { return p }, token, 3)
			if err != nil {
				r.Fatal(err)
			}
			for _, p := range part {
				seen[p]++
			}
			if next == "" {
				break
			}
			token = next
			if len(all) > 0 && rapid.Bool().Draw(r, "delete") {
				i := rapid.IntRange(0, len(all)-1).Draw(r, "which")
				stay = slices.DeleteFunc(stay, func(p place) bool { return p == all[i] })
				all = slices.Delete(all, i, i+1)
			}
		}
		for p, times := range seen {
			if times > 1 {
				r.Fatalf("%v came %d times", p, times)
			}
		}
		for _, p := range stay {
			if seen[p] != 1 {
				r.Fatalf("%v is missing", p)
			}
		}
	})
	if _, _, err := page([]place{}, func(p place) place { return p }, "11", 0); codeOf(err) != codes.Aborted {
		t.Errorf("a foreign token: %v", err)
	}
}

func TestOriginRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := origin{name: rapid.StringMatching(`[a-z ]{1,20}( from snapshot )?[A-Z+_-]{0,9}`).Draw(r, "name"),
			source: SnapshotID(rapid.StringMatching(`([0-9a-f]{8})?`).Draw(r, "source"))}
		got, ours := parseOrigin(o.String())
		if !ours || got.String() != o.String() {
			r.Fatalf("%+v came back as %+v", o, got)
		}
	})
	if _, ours := parseOrigin("somebody's disk"); ours {
		t.Error("took a stranger's description for its own")
	}
}

func TestCodes(t *testing.T) {
	for want, err := range map[codes.Code]error{
		codes.OK:               nil,
		codes.Aborted:          errorf(codes.Aborted, "x: %w", errorf(codes.Internal, "y")),
		codes.DeadlineExceeded: fmt.Errorf("x: %w", context.DeadlineExceeded),
		codes.Canceled:         fmt.Errorf("x: %w", context.Canceled),
		codes.Internal:         errors.New("x"),
	} {
		if got := codeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	long := clip(strings.Repeat("é", 2000))
	if len(long) > 1024 || !strings.HasSuffix(long, "é ...") {
		t.Errorf("clipped to %d bytes: %q", len(long), long[len(long)-10:])
	}
}
