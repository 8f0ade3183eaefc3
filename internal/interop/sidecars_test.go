package interop

import (
	"path/filepath"
	"strings"
	"testing"
)

const guestYAML = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: guest}
provisioner: guest.csi.test
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: visitor}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: guest
  resources: {requests: {storage: 2Gi}}
`

// TestReleasedSidecarsServeAGuest runs the released csi-provisioner and csi-attacher as
// processes of their own, with leader election, for a driver that drydock knows nothing of.
func TestReleasedSidecarsServeAGuest(t *testing.T) {
	provisioner := build(t, "csi-provisioner", ".", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner")
	attacher := build(t, "csi-attacher", ".", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher")
	w := start(t)
	socket := filepath.Join(filepath.Dir(w.state), "guest.sock")
	g := serveGuest(t, socket)
	kubeconfig := filepath.Join(w.state, "kubeconfig")
	for _, program := range []string{provisioner, attacher} {
		log := w.beside(t, program, "--kubeconfig", kubeconfig, "--csi-address", socket, "--leader-election", "--leader-election-namespace=default", "-v=4")
		log.until(t, "uccessfully acquired lease")
	}
	if out := w.k(t, "get", "leases"); !strings.Contains(out, "guest-csi-test") {
		t.Errorf("no lease of the provisioner:\n%s", out)
	}

	w.kin(t, guestYAML, "apply", "-f", "-")
	w.k(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/visitor", "--timeout=120s")
	pv := w.k(t, "get", "pvc", "visitor", "-o", "jsonpath={.spec.volumeName}")
	if got := w.k(t, "get", "pv", pv, "-o", "jsonpath={.spec.csi.driver} {.spec.capacity.storage}"); got != guestName+" 2Gi" {
		t.Fatalf("the volume is %q", got)
	}

	// The guest has no node half here, so it is attached by hand: a CSINode entry, and a VolumeAttachment.
	w.k(t, "patch", "csinode", "n1", "--type=json", "-p", `[{"op":"add","path":"/spec/drivers/-","value":{"name":"guest.csi.test","nodeID":"machine-7","topologyKeys":[]}}]`)
	w.kin(t, `apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: by-hand}
spec: {attacher: guest.csi.test, nodeName: n1, source: {persistentVolumeName: `+pv+`}}
`, "create", "-f", "-")
	w.k(t, "wait", "--for=jsonpath={.status.attached}=true", "volumeattachment/by-hand", "--timeout=120s")
	if got := w.k(t, "get", "volumeattachment", "by-hand", "-o", "jsonpath={.status.attachmentMetadata.disk}"); got != "sdz" {
		t.Errorf("publish context: %q", got)
	}
	if s := g.state(); s[pv] != "machine-7" {
		t.Fatalf("the guest's volumes: %v", s)
	}

	w.k(t, "delete", "volumeattachment", "by-hand", "--timeout=120s")
	w.k(t, "delete", "pvc", "visitor", "--timeout=120s")
	w.k(t, "wait", "--for=delete", "pv/"+pv, "--timeout=120s")
	if s := g.state(); len(s) != 0 {
		t.Fatalf("the guest still has %v", s)
	}
}
