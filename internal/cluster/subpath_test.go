package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSubPathOnDevices binds part of a volume for a container, on simulated and on real mounts.
func TestSubPathOnDevices(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			c := begin(t, Options{Devices: mode})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			u := user{c.Client()}
			must(t, u.class(ctx, storagev1.VolumeBindingImmediate))
			must(t, u.claim(ctx, "data"))
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelHostname: "n1"},
				Containers: []corev1.Container{{Name: "app", Image: "pause", VolumeMounts: []corev1.VolumeMount{
					{Name: "v", MountPath: "/all"}, {Name: "v", MountPath: "/part", SubPath: "some/part"}}}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			}}
			_, err := c.Client().CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
			must(t, err)
			pod, err := u.running(ctx, "p")
			must(t, err)
			whole, err := published(c.Layout, pod)
			must(t, err)
			binds, err := filepath.Glob(filepath.Join(c.Layout.Kubelet("n1"), "pods", string(pod.UID), "volume-subpaths", "*", "app", "1"))
			if err != nil || len(binds) != 1 {
				t.Fatalf("binds %v %v", binds, err)
			}
			must(t, os.WriteFile(filepath.Join(binds[0], "f"), []byte("x"), 0o600))
			if b, err := os.ReadFile(filepath.Join(whole, "some/part/f")); err != nil || string(b) != "x" {
				t.Errorf("%q %v", b, err)
			}
			clean(t, c)
			must(t, u.remove(ctx, "p"))
			must(t, u.removeClaim(ctx, "data"))
			clean(t, c)
		})
	}
}
