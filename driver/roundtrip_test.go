package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// A volume goes to a pod, its node is left, and another node finds its data.
func TestRoundTrip(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		n1, n2 := r.nodes["n1"], r.addNode("n2")
		d := n1.create("pvc-a", writer(""))
		for _, step := range []func() error{d.attach, d.attach, d.stage, d.stage, d.pod, d.pod} {
			r.must(step())
		}
		d.write("x")
		for _, step := range []func() error{d.unpod, d.unpod, d.unstage, d.unstage, d.detach, d.detach} {
			r.must(step())
		}
		if _, err := os.Lstat(d.target); !os.IsNotExist(err) {
			t.Errorf("the target is still there: %v", err)
		}
		e := d.on(n2)
		e.up()
		e.verify("x")
		e.down()
		for range 2 {
			r.must(e.delete())
		}
		if got := r.count("mkfs.ext4"); got != 1 {
			t.Errorf("formatted %d times", got)
		}
	})
}

func TestFilesystems(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		for _, fs := range []string{"ext4", "xfs", "ext3"} {
			d := r.nodes["n1"].create("pvc-"+fs, writer(fs, "noatime"))
			d.up()
			d.write(fs)
			d.down()
			d.up()
			d.verify(fs)
			d.down()
			if got := r.count("mkfs." + fs); got != 1 {
				t.Errorf("%s: formatted %d times", fs, got)
			}
		}
	})
}

func TestBlockVolume(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-b", rawBlock())
		d.up()
		f, err := os.OpenFile(d.target, os.O_RDWR, 0)
		r.must(err)
		_, err = f.WriteAt([]byte("raw"), 1<<20)
		r.must(err)
		r.must(f.Sync())
		r.must(f.Close())
		stats, err := d.n.NodeGetVolumeStats(d.n.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: d.id, VolumePath: d.target})
		r.must(err)
		if len(stats.Usage) != 1 || stats.Usage[0].Total != gib {
			t.Errorf("stats: %v", stats)
		}
		r.must(d.pod())
		d.down()
		d.up()
		if got := d.bytesAt(1<<20, 3); got != "raw" {
			t.Errorf("the data are %q", got)
		}
		d.down()
		if _, err := os.Lstat(d.target); !os.IsNotExist(err) {
			t.Errorf("the target is still there: %v", err)
		}
	})
}

func TestStats(t *testing.T) {
	modes(t, func(t *testing.T, r *rig) {
		d := r.nodes["n1"].create("pvc-s", writer(""))
		d.up()
		r.must(os.WriteFile(filepath.Join(d.target, "f"), make([]byte, 1<<20), 0o600))
		ask := func(id, path string) (*csi.NodeGetVolumeStatsResponse, error) {
			return d.n.NodeGetVolumeStats(d.n.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
		}
		for _, path := range []string{d.target, d.staging} {
			s, err := ask(d.id, path)
			r.must(err)
			if len(s.Usage) != 2 || s.Usage[0].Total > gib || s.Usage[0].Total < gib*9/10 || s.Usage[0].Used < 1<<20 || s.Usage[1].Used < 2 {
				t.Errorf("stats at %s: %v", path, s)
			}
		}
		other := r.nodes["n1"].create("pvc-t", writer(""))
		_, err := ask(other.id, d.target)
		r.wantCode(err, codes.NotFound, "not mounted")
		d.down()
		for _, path := range []string{d.target, d.staging, r.dir} {
			_, err := ask(d.id, path)
			r.wantCode(err, codes.NotFound, "not mounted")
		}
	})
}
