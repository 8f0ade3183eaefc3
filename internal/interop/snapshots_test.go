package interop

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

const snapshotYAML = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: guest}
provisioner: guest.csi.test
allowVolumeExpansion: true
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: guest}
driver: guest.csi.test
deletionPolicy: Delete
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: visitor}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: guest
  resources: {requests: {storage: 2Gi}}
`

const takeYAML = `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: taken}
spec: {volumeSnapshotClassName: guest, source: {persistentVolumeClaimName: visitor}}
`

const restoreYAML = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: restored}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: guest
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: taken}
  resources: {requests: {storage: 3Gi}}
`

// TestReleasedResizerAndSnapshotterServeAGuest runs the released sidecars, with leader election, against an API
// with controllers and nothing else, so that no embedded one can do their work: a claim grows, a snapshot
// is taken, and a volume made from it.
func TestReleasedResizerAndSnapshotterServeAGuest(t *testing.T) {
	const csi = "github.com/kubernetes-csi/"
	packages := map[string]string{
		"csi-provisioner":     csi + "external-provisioner/v6/cmd/csi-provisioner",
		"csi-resizer":         csi + "external-resizer/v2/cmd/csi-resizer",
		"csi-snapshotter":     csi + "external-snapshotter/v8/cmd/csi-snapshotter",
		"snapshot-controller": csi + "external-snapshotter/v8/cmd/snapshot-controller",
	}
	w := start(t, "DRYDOCK_API_ONLY=true", "DRYDOCK_CONTROLLERS=true")
	if out := w.k(t, "get", "nodes"); !strings.Contains(out, "No resources found") {
		t.Fatalf("there is more than the API and controllers:\n%s", out)
	}
	socket := filepath.Join(filepath.Dir(w.state), "guest.sock")
	g := serveGuest(t, socket)
	health := map[string]string{}
	for name, pkg := range packages {
		address := freeAddress(t)
		args := []string{"--kubeconfig", filepath.Join(w.state, "kubeconfig"), "--leader-election", "--leader-election-namespace=default", "--http-endpoint=" + address, "-v=4"}
		if name != "snapshot-controller" {
			args = append(args, "--csi-address", socket)
		}
		w.beside(t, build(t, name, ".", pkg), args...).until(t, "uccessfully acquired lease")
		health[name] = address
	}

	w.kin(t, snapshotYAML, "apply", "-f", "-")
	w.k(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/visitor", "--timeout=120s")
	pv := w.k(t, "get", "pvc", "visitor", "-o", "jsonpath={.spec.volumeName}")

	w.k(t, "patch", "pvc", "visitor", "-p", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
	w.k(t, "wait", "--for=jsonpath={.status.capacity.storage}=3Gi", "pvc/visitor", "--timeout=120s")
	if got := w.k(t, "get", "pv", pv, "-o", "jsonpath={.spec.capacity.storage}"); got != "3Gi" {
		t.Errorf("the volume is of %s", got)
	}
	if size, _, _ := g.contents(pv); size != 3<<30 {
		t.Errorf("the guest's volume is of %d bytes", size)
	}

	w.kin(t, takeYAML, "create", "-f", "-")
	w.k(t, "wait", "--for=jsonpath={.status.readyToUse}=true", "volumesnapshot/taken", "--timeout=120s")
	content := w.k(t, "get", "volumesnapshot", "taken", "-o", "jsonpath={.status.boundVolumeSnapshotContentName}")
	handle := w.k(t, "get", "volumesnapshotcontent", content, "-o", "jsonpath={.status.snapshotHandle}")
	if got := w.k(t, "get", "volumesnapshot", "taken", "-o", "jsonpath={.status.restoreSize}"); got != "3Gi" {
		t.Errorf("restore size: %s", got)
	}
	w.kin(t, restoreYAML, "create", "-f", "-")
	w.k(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/restored", "--timeout=120s")
	copied := w.k(t, "get", "pvc", "restored", "-o", "jsonpath={.spec.volumeName}")
	if _, from, _ := g.contents(copied); from != handle || handle == "" {
		t.Errorf("the guest made the restored volume from %q, the snapshot is %q", from, handle)
	}

	for name, address := range health {
		healthy(t, name, address)
	}

	w.k(t, "delete", "volumesnapshot", "taken", "--timeout=120s")
	w.k(t, "wait", "--for=delete", "volumesnapshotcontent/"+content, "--timeout=120s")
	w.k(t, "delete", "pvc", "visitor", "restored", "--timeout=120s")
	w.k(t, "wait", "--for=delete", "pv/"+pv, "pv/"+copied, "--timeout=120s")
	if _, _, n := g.contents(pv); n != 0 || len(g.state()) != 0 {
		t.Errorf("the guest still has %d snapshots and the volumes %v", n, g.state())
	}
	for _, kind := range []string{"volumesnapshots", "volumesnapshotcontents", "pvc", "pv"} {
		if out := w.k(t, "get", kind); !strings.Contains(out, "No resources found") {
			t.Errorf("%s are left:\n%s", kind, out)
		}
	}
}

// healthy asks a sidecar that leads.
func healthy(t *testing.T, name, address string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/healthz/leader-election")
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("%s is not healthy: %s %s %v", name, resp.Status, body, err)
	}
}

// freeAddress is a loopback address that nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr())
}
