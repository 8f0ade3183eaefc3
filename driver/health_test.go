package driver

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"drydock.dev/drydock/internal/lab"
)

// ails are status and reason of what the driver says is wrong with the volume, as the kubelet asks.
func (d *disk) ails() []string {
	d.n.r.t.Helper()
	r, err := d.n.NodeGetVolumeHealth(d.n.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: d.id, StagingTargetPath: d.staging, VolumePublishPath: d.target})
	d.n.r.must(err)
	if r.VolumeHealth.VolumeId != d.id {
		d.n.r.t.Errorf("the health of volume %q", r.VolumeHealth.VolumeId)
	}
	var out []string
	for _, e := range r.VolumeHealth.HealthStatuses {
		if e.Message == "" {
			d.n.r.t.Errorf("%s says nothing", e.Reason)
		}
		out = append(out, e.Status.String()+" "+e.Reason)
	}
	return out
}

// expect fails the test unless that is what is wrong.
func (d *disk) expect(want ...string) {
	d.n.r.t.Helper()
	if got := d.ails(); !slices.Equal(got, want) {
		d.n.r.t.Errorf("wrong with %s: %q, want %q", d.name, got, want)
	}
}

func TestVolumeHealth(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		n := r.nodes["n1"]
		d := n.create("pvc-a", writer("ext4"))
		d.up()
		d.expect()
		// What the lab can play.
		for code, want := range map[string]string{"EIO": "INACCESSIBLE IOError", "EROFS": "DEGRADED FilesystemReadOnly", "ENODEV": "INACCESSIBLE DeviceMissing"} {
			h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "health", Action: lab.Fail, Code: code})
			d.expect(want)
			h.Remove()
		}
		// Somebody unmounts it behind the kubelet's back.
		r.must(n.mounter.Unmount(d.target))
		d.expect("INACCESSIBLE NotMounted")
		r.must(d.pod())
		d.expect()
		// Somebody detaches it in the cloud.
		r.must(d.detach())
		d.expect("INACCESSIBLE DeviceMissing")
		r.must(d.unpod())
		r.must(d.unstage())

		b := n.create("pvc-b", rawBlock())
		b.up()
		b.expect()
		b.target = "" // as the kubelet asks for a block volume
		b.expect()
		r.must(b.detach())
		b.expect("INACCESSIBLE DeviceMissing")

		_, err := n.NodeGetVolumeHealth(n.ctx(), &csi.NodeGetVolumeHealthRequest{})
		r.wantCode(err, codes.InvalidArgument, "no volume id")
		h := r.rule(lab.Rule{Kind: lab.KindKernel, Op: "health", Action: lab.Fail, Code: "EACCES"})
		defer h.Remove()
		_, err = n.NodeGetVolumeHealth(n.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: b.id})
		r.wantCode(err, codes.PermissionDenied, "look at volume "+b.id)
	})
}
