//go:build unix

package nodesim

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTokenIsTheUsers: the file with a token is for the user of all containers alone, if they have one.
func TestTokenIsTheUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startKubelet()
	for name, c := range map[string]struct {
		common, side *int64
		owner        int
		mode         os.FileMode
	}{
		"one":       {new(int64(1234)), nil, 1234, 0o600},
		"same":      {new(int64(1234)), new(int64(1234)), 1234, 0o600},
		"two":       {new(int64(1234)), new(int64(1)), os.Geteuid(), 0o644},
		"some":      {nil, new(int64(1234)), os.Geteuid(), 0o644},
		"nobodys-1": {nil, nil, os.Geteuid(), 0o644},
	} {
		p := pod(name)
		p.Spec.ServiceAccountName = "default"
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: c.common}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		side := p.Spec.Containers[0].DeepCopy()
		side.Name, side.SecurityContext = "side", &v1.SecurityContext{RunAsUser: c.side}
		p.Spec.Containers = append(p.Spec.Containers, *side)
		w.createPod(p)
		w.waitRunning(name)
		fi, err := os.Stat(filepath.Join(w.path(p, "v"), "token"))
		w.must(fi, err)
		if os.Geteuid() != 0 {
			c.owner = os.Geteuid() // who is not root can give nothing away
		}
		if got := int(fi.Sys().(*syscall.Stat_t).Uid); got != c.owner || fi.Mode().Perm() != c.mode {
			t.Errorf("%s: user %d, mode %o; want %d, %o", name, got, fi.Mode().Perm(), c.owner, c.mode)
		}
	}
}
