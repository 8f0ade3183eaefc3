package nodesim

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// scrape reads the kubelet's metrics.
func (w *world) scrape() string {
	r := httptest.NewRecorder()
	w.node.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	return r.Body.String()
}

// TestStorageMetrics reads what a kubelet counts of a volume's life, and after a restart anew.
func TestStorageMetrics(t *testing.T) {
	w := newWorld(t)
	w.hurry()
	w.addVolume("a", "h1")
	var once sync.Once
	w.guest.set(func(call string) (err error) {
		if strings.HasPrefix(call, "Stage") {
			once.Do(func() { err = status.Error(codes.Internal, "no") })
		}
		return err
	}, nil)
	w.startKubelet()
	w.waitTold(1, true) // so that no mount fails for lack of its driver
	p := pod("p", "a")
	group := int64(0)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
	w.createPod(p)
	w.waitRunning("p")
	const plugin = "kubernetes.io/csi:" + driverName
	contain := func(text string, lines ...string) {
		t.Helper()
		for _, want := range lines {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
	}
	operation := func(name, how, plugin string) string {
		return `storage_operation_duration_seconds_count{migrated="false",operation_name="` + name + `",status="` + how + `",volume_plugin="` + plugin + `"} 1` + "\n"
	}
	contain(w.scrape(), operation("verify_controller_attached_volume", "success", plugin),
		operation("volume_mount", "fail-unknown", plugin), operation("volume_mount", "success", plugin), operation("volume_mount", "success", "kubernetes.io/empty-dir"),
		operation("volume_apply_access_control", "success", plugin), operation("volume_apply_access_control", "success", "kubernetes.io/empty-dir"),
		`volume_operation_total_seconds_count{operation_name="overall_volume_mount",plugin_name="`+plugin+`"} 1`,
		`csi_operations_seconds_count{driver_name="`+driverName+`",grpc_status_code="Internal",method_name="/csi.v1.Node/NodeStageVolume",migrated="false"} 1`,
		`csi_operations_seconds_count{driver_name="`+driverName+`",grpc_status_code="OK",method_name="/csi.v1.Node/NodeStageVolume",migrated="false"} 1`,
		`csi_operations_seconds_count{driver_name="`+driverName+`",grpc_status_code="OK",method_name="/csi.v1.Node/NodeGetInfo",migrated="false"} 1`,
		`volume_manager_total_volumes{plugin_name="`+plugin+`",state="actual_state_of_world"} 1`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 1`,
		"reconstruct_volume_operations_total 0\n")

	w.killKubelet()
	w.startKubelet()
	w.deletePod("p")
	w.waitGone("p")
	w.waitDetached()
	contain(w.scrape(), "reconstruct_volume_operations_total 2\n", "reconstruct_volume_operations_errors_total 0\n",
		operation("volume_unmount", "success", plugin), operation("unmount_device", "success", plugin))
	w.checkClean()
}
