package nodesim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLocalVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := localPod(w)
	w.startKubelet()
	w.createPod(p)
	w.waitRunning("p")
	for volume, want := range map[string]map[string]string{
		"cfg": {"a": "1", "b": "2"}, "sec": {"key": "s3"}, "dwn": {"meta/name": "p"},
		"kube-api-access-x": {"token": "token-for-p", "ca.crt": "1", "meta/name": "p"},
	} {
		dir := w.path(p, volume)
		for file, text := range want {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != text {
				t.Errorf("%s/%s: %q %v, want %q", volume, file, b, err, text)
			}
		}
	}
	if fi, err := os.Stat(w.path(p, "tmp")); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("emptyDir: %v %v", fi, err)
	}
	if dir := w.path(p, "host"); dir != filepath.Join(w.root, "data") {
		t.Errorf("hostPath at %s", dir)
	}
	for _, want := range []string{"pods/uid-p/plugins/kubernetes.io~empty-dir/tmp/ready", "pods/uid-p/plugins/kubernetes.io~empty-dir/wrapped_cfg/ready"} {
		if !slices.Contains(w.files(), want) {
			t.Errorf("no file %s", want)
		}
	}
	if err := os.WriteFile(filepath.Join(w.path(p, "tmp"), "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	// A changed ConfigMap shows at the next sync of the pod.
	cm, err := w.client.CoreV1().ConfigMaps(namespace).Get(w.ctx, "cm", metav1.GetOptions{})
	w.must(cm, err)
	cm.Data = map[string]string{"a": "one", "c": "3"}
	w.must(w.client.CoreV1().ConfigMaps(namespace).Update(w.ctx, cm, metav1.UpdateOptions{}))
	for i := 0; w.ctx.Err() == nil; i++ {
		if i%100 == 0 { // the worker may not have begun to wait yet
			advance(w, 2*time.Minute)
		}
		b, _ := os.ReadFile(filepath.Join(w.path(p, "cfg"), "a"))
		if _, err := os.Lstat(filepath.Join(w.path(p, "cfg"), "b")); err != nil && string(b) == "one" {
			break // the name of what is gone goes last
		}
		w.pause()
	}
	if b, _ := os.ReadFile(filepath.Join(w.path(p, "cfg"), "a")); string(b) != "one" {
		t.Errorf("after the change a is %q", b)
	}
	if _, err := os.Lstat(filepath.Join(w.path(p, "cfg"), "b")); err == nil {
		t.Error("a key that is gone still shows")
	}

	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	if _, err := os.Stat(filepath.Join(w.root, "data")); err != nil {
		t.Errorf("the hostPath did not survive: %v", err)
	}
}

func TestMissingObjectsAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source v1.VolumeSource
		want   string
	}{
		"configmap": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}}},
			`FailedMount: MountVolume.SetUp failed for volume "v" : configmaps "none" not found`},
		"huge pages": {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}},
			`FailedMount: MountVolume.NewMounter initialization failed for volume "v" : emptyDir medium "HugePages": this node has no huge pages`},
		"hostPath type": {v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none", Type: new(v1.HostPathDirectory)}},
			`FailedMount: MountVolume.SetUp failed for volume "v" : hostPath type check failed: /none is not a directory`},
		"nfs": {v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}},
			`FailedMount: Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ` +
				`failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched: volume "v" is of type nfs, which this node does not have`},
		"claim": {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}},
			`FailedMount: Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ` +
				`error processing PVC default/none: failed to fetch PVC from API server: persistentvolumeclaims "none" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.startKubelet()
			p := pod("p")
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: c.source}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
			w.createPod(p)
			e := w.waitEvent(c.want)
			if e.Type != v1.EventTypeWarning || e.Source.Component != "kubelet" || e.Source.Host != nodeName {
				t.Errorf("event %+v", e)
			}
			if w.podPhase("p") == v1.PodRunning {
				t.Errorf("phase %s", w.podPhase("p"))
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
}
