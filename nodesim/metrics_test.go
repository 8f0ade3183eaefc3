package nodesim

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// scrape reads the kubelet's metrics.
func (w *world) scrape() string {
	r := httptest.NewRecorder()
	w.node.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	return r.Body.String()
}

// scrapes reads them once, and misses what is not in them.
func (w *world) scrapes(parts ...string) {
	w.t.Helper()
	text := w.scrape()
	for _, want := range parts {
		if !strings.Contains(text, want) {
			w.t.Errorf("no %s", want)
		}
	}
}

// scrapeUntil reads them until they are as told; nothing announces them.
func (w *world) scrapeUntil(what string, ok func(text string) bool) {
	w.t.Helper()
	for !ok(w.scrape()) {
		if w.ctx.Err() != nil {
			w.t.Fatalf("%s: it is not so in\n%s", what, w.scrape())
		}
		w.pause()
	}
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
	operation := func(name, how, plugin string) string {
		return `storage_operation_duration_seconds_count{migrated="false",operation_name="` + name + `",status="` + how + `",volume_plugin="` + plugin + `"} 1` + "\n"
	}
	w.scrapes(operation("verify_controller_attached_volume", "success", plugin),
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
	w.scrapes("reconstruct_volume_operations_total 2\n", "reconstruct_volume_operations_errors_total 0\n",
		operation("volume_unmount", "success", plugin), operation("unmount_device", "success", plugin))
	w.checkClean()
}

// TestPluginGauges: a socket counts as wanted while it is there, and as registered once its driver is.
func TestPluginGauges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startKubelet()
	w.waitTold(1, true)
	dir := filepath.Join(KubeletRoot(w.root), "plugins_registry")
	line := func(socket, state string) string {
		return `plugin_manager_total_plugins{socket_path="` + filepath.Join(dir, socket) + `",state="` + state + `"} 1` + "\n"
	}
	driver := driverName + "-reg.sock"
	w.scrapes(line(driver, "actual_state_of_world"), line(driver, "desired_state_of_world"))
	// Nobody answers at this one.
	dumb, err := net.Listen("unix", filepath.Join(dir, "dumb.sock"))
	w.must(dumb, err)
	w.scrapeUntil("one is wanted, and not registered", func(text string) bool {
		return strings.Contains(text, line("dumb.sock", "desired_state_of_world")) && !strings.Contains(text, line("dumb.sock", "actual_state_of_world"))
	})
	w.must(nil, dumb.Close())
	w.guest.stop()
	w.scrapeUntil("no plugin", func(text string) bool { return !strings.Contains(text, "plugin_manager_total_plugins") })
}

// TestOrphanGauges: directories of pods that nobody knows, and those that cannot be removed.
func TestOrphanGauges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	stray := filepath.Join(KubeletRoot(w.root), "pods", "nobodys", "volumes", "stray")
	w.must(nil, os.MkdirAll(filepath.Dir(stray), 0o750))
	w.must(nil, os.WriteFile(stray, nil, 0o600))
	w.startKubelet()
	are := func(found, left string) func(string) bool {
		return func(text string) bool {
			return strings.Contains(text, "kubelet_orphan_pod_cleaned_volumes "+found+"\n") && strings.Contains(text, "kubelet_orphan_pod_cleaned_volumes_errors "+left+"\n")
		}
	}
	w.scrapeUntil("one cannot be removed", are("1", "1"))
	w.must(nil, os.Remove(stray))
	w.scrapeUntil("none is left", are("0", "0"))
	w.checkClean()
}

// TestSELinuxGauges: what mixes labels is counted, as an error where the node mounts such volumes with a label, else as a warning.
func TestSELinuxGauges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.selinux = volumeplugin.SELinuxOncePod
	w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.SELinuxMount = new(true) })
	w.addVolume("pod", "vol-1", modes(v1.ReadWriteOncePod))
	w.addVolume("many", "vol-2", modes(v1.ReadWriteOnce, v1.ReadWriteMany))
	w.startKubelet()
	w.createPod(labelled("p", "s0:c1,c2", "pod", "many"))
	w.waitRunning("p")
	const plugin = `,volume_plugin="kubernetes.io/csi/` + driverName + `"} `
	w.scrapes(`volume_manager_selinux_volumes_admitted_total{access_mode="RWOP"`+plugin+"1\n", `volume_manager_selinux_volumes_admitted_total{access_mode="RWX"`+plugin+"1\n")
	w.createPod(labelled("other", "s0:c3", "many"))
	w.waitRunning("other")
	w.scrapes(`volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWX"` + plugin + "1\n")
	w.createPod(labelled("refused", "s0:c3", "pod"))
	w.waitEvent(`conflicting SELinux labels of volume pv-pod`)
	w.scrapes(`volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP"` + plugin)

	w.addVolume("alone", "vol-3", modes(v1.ReadWriteOncePod))
	torn := labelled("torn", "s0:c1,c2", "alone")
	side := torn.Spec.Containers[0].DeepCopy()
	side.Name, side.SecurityContext = "side", &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c5", User: "them_u"}}
	torn.Spec.Containers = append(torn.Spec.Containers, *side)
	w.createPod(torn)
	w.waitEvent("multiple SELinux labels found: " + label1 + ",them_u:object_r:container_file_t:s0:c5")
	w.scrapes(`volume_manager_selinux_pod_context_mismatch_errors_total{access_mode="RWOP"} `)
	mild := torn.DeepCopy()
	mild.Name, mild.UID = "mild", "uid-mild"
	mild.Spec.Volumes[0].VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	w.createPod(mild)
	w.waitRunning("mild")
	w.scrapes(`volume_manager_selinux_pod_context_mismatch_warnings_total{access_mode="inline"} `)
}
