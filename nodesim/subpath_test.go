package nodesim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSubPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.must(w.client.CoreV1().ConfigMaps(namespace).Create(w.ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cm"}, Data: map[string]string{"tier": "gold"}}, metav1.CreateOptions{}))
	w.startKubelet()
	p := pod("p", "c")
	p.Labels = map[string]string{"app": "shop"}
	c := &p.Spec.Containers[0]
	c.Env = []v1.EnvVar{
		{Name: "POD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "APP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
		{Name: "TIER", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Key: "tier"}}},
		{Name: "DIR", Value: "$(POD)-$(APP)"},
	}
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "vol-c", MountPath: "/whole"},
		{Name: "vol-c", MountPath: "/a", SubPath: "a"},
		{Name: "vol-c", MountPath: "/b", SubPathExpr: "$(DIR)/$(TIER)/$$(DIR)", ReadOnly: true},
	}
	w.createPod(p)
	w.waitRunning("p")
	for _, want := range []string{"a", "p-shop/gold/$(DIR)"} {
		if fi, err := os.Stat(filepath.Join(w.path(p, "vol-c"), want)); err != nil || !fi.IsDir() {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, want := range []string{"pods/uid-p/volume-subpaths/pv-c/app/1", "pods/uid-p/volume-subpaths/pv-c/app/2"} {
		if not, err := w.mounter.IsLikelyNotMountPoint(filepath.Join(KubeletRoot(w.root), want)); err != nil || not {
			t.Errorf("nothing is bound at %s: %v", want, err)
		}
	}
	if slices.Contains(w.files(), "pods/uid-p/volume-subpaths/pv-c/app/0") {
		t.Error("the whole volume needs no bind")
	}
	mounts, err := w.node.life.volumes.ContainerMounts(w.ctx, p, c)
	w.must(mounts, err)
	if len(mounts) != 3 || !mounts[2].ReadOnly || mounts[1].ReadOnly || mounts[0].HostPath != w.path(p, "vol-c") || mounts[2].ContainerPath != "/b" {
		t.Errorf("mounts %+v", mounts)
	}

	// A restart of the kubelet leaves them, and takes them down with the volume.
	w.killKubelet()
	w.startKubelet()
	w.waitState("mounted again", func(_, m string) bool { return m == "Mounted" })
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}

func TestWhatAContainerCannotMount(t *testing.T) {
	t.Parallel()
	wrong, whatever := v1.MountPropagationMode("Sideways"), v1.RecursiveReadOnlyEnabled
	for name, c := range map[string]struct {
		mount v1.VolumeMount
		want  string
	}{
		"absolute":        {v1.VolumeMount{SubPath: "/etc"}, "error SubPath `/etc` must not be an absolute path"},
		"climbing":        {v1.VolumeMount{SubPath: "a/../../b"}, "unable to provision SubPath `a/../../b`: must not contain '..'"},
		"no value":        {v1.VolumeMount{SubPathExpr: "$(NONE)"}, `missing value for "NONE"`},
		"propagation":     {v1.VolumeMount{MountPropagation: &wrong}, `invalid MountPropagation mode: "Sideways"`},
		"not read-only":   {v1.VolumeMount{RecursiveReadOnly: &whatever}, "requested recursive read-only mode, but it is not read-only"},
		"both directions": {v1.VolumeMount{RecursiveReadOnly: &whatever, ReadOnly: true, MountPropagation: new(v1.MountPropagationBidirectional)}, "not compatible with propagation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("c", "vol-1")
			w.startKubelet()
			p := pod("p", "c")
			c.mount.Name, c.mount.MountPath = "vol-c", "/x"
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{c.mount}
			w.createPod(p)
			w.waitEvent("Failed: Error: ")
			w.waitEvent(c.want)
			if w.podPhase("p") == v1.PodRunning {
				t.Error("the pod runs")
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
}
