package driver

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"drydock.dev/drydock/internal/lab"
)

func TestSnapshots(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			modes(t, func(t *testing.T, r *rig) {
				n := r.nodes["n1"]
				d := n.create("pvc-a", writer(fs))
				d.up()
				d.write("precious")
				snap, err := n.CreateSnapshot(n.ctx(), &csi.CreateSnapshotRequest{Name: "snapshot-a", SourceVolumeId: d.id})
				r.must(err)
				again, err := n.CreateSnapshot(n.ctx(), &csi.CreateSnapshotRequest{Name: "snapshot-a", SourceVolumeId: d.id})
				r.must(err)
				if diff := cmp.Diff(snap.Snapshot.SnapshotId, again.Snapshot.SnapshotId); diff != "" {
					t.Error(diff)
				}
				d.write("changed")
				// A bigger volume, made in two goes: the first dies before it is enlarged.
				q := &csi.CreateVolumeRequest{Name: "pvc-b", VolumeCapabilities: []*csi.VolumeCapability{writer(fs)},
					CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}, VolumeContentSource: fromSnapshot(snap.Snapshot.SnapshotId)}
				r.rule(lab.Rule{Kind: lab.KindCloud, Op: callAction, Component: "driver*", Action: lab.Fail, Code: "errored", Times: 1})
				_, err = n.CreateVolume(n.ctx(), q)
				r.wantCode(err, codes.Unavailable, "too small yet")
				made, err := n.CreateVolume(n.ctx(), q)
				r.must(err)
				if v := made.Volume; v.CapacityBytes != 2*gib || v.ContentSource.GetSnapshot().GetSnapshotId() != snap.Snapshot.SnapshotId {
					t.Errorf("restored as %v", v)
				}
				e := n.disk(made.Volume.VolumeId, "pvc-b", writer(fs))
				e.up() // beside its source, which has the same filesystem UUID
				e.verify("precious")
				d.verify("changed")
				s, err := n.NodeGetVolumeStats(n.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: e.id, VolumePath: e.target})
				r.must(err)
				if total := s.Usage[0].Total; total < 2*gib*9/10 {
					t.Errorf("the filesystem has %d bytes only", total)
				}
				q.VolumeContentSource = nil
				_, err = n.CreateVolume(n.ctx(), q)
				r.wantCode(err, codes.AlreadyExists, "was made otherwise")
				e.down()
				d.down()
				if got := r.count("mkfs." + fs); got != 1 {
					t.Errorf("formatted %d times", got)
				}
			})
		})
	}
}

func TestExpand(t *testing.T) {
	for _, c := range []struct {
		fs     string
		online bool
	}{{"ext4", false}, {"ext4", true}, {"xfs", false}, {"xfs", true}} {
		t.Run(fmt.Sprintf("%s online=%t", c.fs, c.online), func(t *testing.T) {
			modes(t, func(t *testing.T, r *rig) {
				n := r.nodes["n1"]
				d := n.create("pvc-a", writer(c.fs))
				d.up()
				d.write("precious")
				if !c.online {
					d.down()
				}
				resp, err := n.ControllerExpandVolume(n.ctx(), &csi.ControllerExpandVolumeRequest{
					VolumeId: d.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2*gib + 1}, VolumeCapability: d.cap})
				r.must(err)
				if resp.CapacityBytes != 3*gib || !resp.NodeExpansionRequired {
					t.Errorf("expand: %v", resp)
				}
				if !c.online {
					d.up()
				} else {
					_, err := n.NodeExpandVolume(n.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: d.id, VolumePath: d.target,
						CapacityRange: &csi.CapacityRange{RequiredBytes: 2*gib + 1}})
					if !r.sim && !growsMounted(FSType(c.fs)) { // this machine withholds CAP_SYS_RESOURCE: the next stage does it
						r.wantCode(err, codes.FailedPrecondition, "CAP_SYS_RESOURCE")
						d.down()
						d.up()
						_, err = n.NodeExpandVolume(n.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: d.id, VolumePath: d.target,
							CapacityRange: &csi.CapacityRange{RequiredBytes: 2*gib + 1}})
					}
					r.must(err)
				}
				d.verify("precious")
				s, err := n.NodeGetVolumeStats(n.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: d.id, VolumePath: d.target})
				r.must(err)
				if total := s.Usage[0].Total; total < 3*gib*9/10 {
					t.Errorf("the filesystem has %d bytes only", total)
				}
				d.down()
			})
		})
	}
}
