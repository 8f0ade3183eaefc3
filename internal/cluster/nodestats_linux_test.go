package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubestats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestVolumeStats asks a kubelet through the API server how full a pod's volumes are, one a filesystem and one a device, both with data of the pod's.
func TestVolumeStats(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			c := begin(t, Options{Devices: mode, Nodes: 1})
			ctx, u := limited(t, time.Minute), user{c.Client()}
			core := c.client.CoreV1()
			must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
			must(t, u.claim(ctx, "fs"))
			raw, block := sized("raw", testClass, "2Gi"), corev1.PersistentVolumeBlock
			raw.Spec.VolumeMode = &block
			made(t)(core.PersistentVolumeClaims("default").Create(ctx, raw, metav1.CreateOptions{}))
			source := func(claim string) corev1.VolumeSource {
				return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
			}
			made(t)(core.Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"drydock.dev/data": "*"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "pause", VolumeMounts: []corev1.VolumeMount{{Name: "fs", MountPath: "/fs"}, {Name: "tmp", MountPath: "/tmp"}},
						VolumeDevices: []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/x"}}}},
					Volumes: []corev1.Volume{{Name: "fs", VolumeSource: source("fs")}, {Name: "raw", VolumeSource: source("raw")},
						{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}}, metav1.CreateOptions{}))
			p, err := u.running(ctx, "p")
			made(t)(p, err)
			for _, x := range p.Status.Conditions {
				if x.Type == "drydock.dev/DataIntact" && x.Status != corev1.ConditionTrue {
					t.Errorf("data: %s", x.Message)
				}
			}
			get := func(path string) ([]byte, error) {
				return core.RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy" + path).DoRaw(ctx)
			}
			b, err := get("/stats/summary")
			must(t, err)
			var s kubestats.Summary
			must(t, json.Unmarshal(b, &s))
			if len(s.Pods) != 1 || s.Node.NodeName != "n1" {
				t.Fatalf("summary: %s", b)
			}
			seen := map[string]kubestats.VolumeStats{}
			for _, v := range s.Pods[0].VolumeStats {
				seen[v.Name] = v
			}
			if v := seen["fs"]; v.CapacityBytes == nil || *v.CapacityBytes < 900<<20 || v.UsedBytes == nil || v.AvailableBytes == nil || v.Inodes == nil || v.PVCRef == nil || v.PVCRef.Name != "fs" {
				t.Errorf("filesystem: %s", b)
			}
			if v := seen["raw"]; v.CapacityBytes == nil || *v.CapacityBytes != 2<<30 || v.PVCRef == nil {
				t.Errorf("block: %s", b)
			}
			if v, ok := seen["tmp"]; !ok || v.PVCRef != nil || v.UsedBytes == nil {
				t.Errorf("emptyDir: %s", b)
			}
			b, err = get("/metrics")
			must(t, err)
			for _, want := range []string{
				`kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="raw"} 2147483648`,
				`kubelet_volume_stats_inodes_used{namespace="default",persistentvolumeclaim="fs"} `,
				`volume_manager_total_volumes{plugin_name="kubernetes.io/csi:csi.drydock.dev",state="actual_state_of_world"} 2`,
				`csi_operations_seconds_count{driver_name="csi.drydock.dev",grpc_status_code="OK",method_name="/csi.v1.Node/NodePublishVolume",migrated="false"} 2`,
			} {
				if !strings.Contains(string(b), want) {
					t.Errorf("metrics lack %s:\n%s", want, b)
				}
			}
			must(t, u.remove(ctx, "p"))
			look := time.NewTicker(5 * time.Millisecond) // the kubelet hears of it at its own time
			defer look.Stop()
			for b, err = get("/metrics"); err == nil && strings.Contains(string(b), "kubelet_volume_stats_capacity"); b, err = get("/metrics") {
				<-look.C
			}
			must(t, err)
			must(t, c.Operate(ctx, "n1", Partition, 0))
			if _, err := get("/healthz"); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("through a partition: %v", err)
			}
		})
	}
}
