package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const examples = "../../examples"

// TestReleasedSidecarsTakeTheEmbeddedOnesPlace has the released provisioner and attacher do their work in the product's main job.
func TestReleasedSidecarsTakeTheEmbeddedOnesPlace(t *testing.T) {
	const csi = "github.com/kubernetes-csi/"
	provisioner := build(t, "csi-provisioner", ".", csi+"external-provisioner/v6/cmd/csi-provisioner")
	attacher := build(t, "csi-attacher", ".", csi+"external-attacher/v4/cmd/csi-attacher")
	logs := map[string]*watcher{}
	oneVolume(t, "sim", func(w *world) {
		for program, args := range map[string][]string{provisioner: {"--default-fstype=ext4"}, attacher: nil} {
			address := freeAddress(t)
			args = append(args, "--kubeconfig", filepath.Join(w.state, "kubeconfig"), "--csi-address", filepath.Join(w.state, "csi", w.status.Driver+".sock"),
				"--leader-election", "--leader-election-namespace=default", "--http-endpoint="+address)
			logs[program] = w.beside(t, program, append(args, "-v=4")...)
			logs[program].until(t, "uccessfully acquired lease")
			t.Cleanup(func() { healthy(t, filepath.Base(program), address) })
		}
	}, "DRYDOCK_WITHOUT=provisioner,attacher")
	for program, words := range map[string][]string{provisioner: {"uccessfully created PV", "Volume deleted"}, attacher: {"Fully attached", "Fully detached"}} {
		for _, word := range words {
			logs[program].until(t, word)
		}
	}
}

// TestOneVolumeFromClaimToPodAndBack is the product's main job, driven by kubectl alone.
func TestOneVolumeFromClaimToPodAndBack(t *testing.T) {
	for _, devices := range []string{"auto", "sim"} {
		t.Run(devices, func(t *testing.T) { oneVolume(t, devices, nil) })
	}
}

// oneVolume plays the job on devices of a kind. What is special about the cluster is set by settings, and before the first claim by prepare.
func oneVolume(t *testing.T, devices string, prepare func(*world), settings ...string) {
	keepsKernelTables(t)
	w := start(t, append(settings, "DRYDOCK_DEVICES="+devices)...)
	if prepare != nil {
		prepare(w)
	}
	if devices == "auto" && w.status.Devices != "loop" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must test real devices, and this machine cannot")
		}
		t.Log("real devices cannot be had here; they are not tested")
	}
	w.k(t, "apply", "-f", examples)
	watch := w.beside(t, w.kubectl, "get", "pods", "--watch", "--output-watch-events")
	w.k(t, "wait", "--for=condition=Ready", "pod/app", "--timeout=120s")
	w.k(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=120s")
	watch.until(t, "Running")

	marker := filepath.Join(w.published(t, "app", "data"), "marker")
	if err := os.WriteFile(marker, []byte("kept\n"), 0o644); err != nil {
		t.Fatalf("write through the published path: %v", err)
	}
	pv := w.k(t, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	node := w.k(t, "get", "pod", "app", "-o", "jsonpath={.spec.nodeName}")
	for _, want := range []struct {
		args  []string
		words []string
	}{
		{[]string{"get", "pods"}, []string{"NAME", "READY", "STATUS", "app", "1/1", "Running"}},
		{[]string{"get", "pods", "-o", "wide"}, []string{"NODE", node}},
		{[]string{"get", "pvc"}, []string{"STATUS", "VOLUME", "data", "Bound", pv, "1Gi", "RWO", "drydock"}},
		{[]string{"get", "pv", pv}, []string{"RECLAIM POLICY", "Delete", "Bound", "default/data"}},
		{[]string{"get", "volumeattachments"}, []string{"ATTACHER", w.status.Driver, pv, node, "true"}},
		{[]string{"get", "sc"}, []string{"drydock (default)", "WaitForFirstConsumer"}},
		{[]string{"get", "nodes"}, []string{"n1", "n2", "n3", "Ready"}},
		{[]string{"get", "csinodes"}, []string{"DRIVERS", "n1"}},
		{[]string{"get", "events"}, []string{"ProvisioningSucceeded", "SuccessfulAttachVolume"}},
		{[]string{"describe", "pvc", "data"}, []string{"Status:", "Bound", "Used By:", "app", "ProvisioningSucceeded"}},
		{[]string{"describe", "pod", "app"}, []string{"Node:", node, "ClaimName:", "data", "Running", "Scheduled"}},
		{[]string{"describe", "pv", pv}, []string{"Source:", "Driver:", w.status.Driver, "VolumeHandle:", "Node Affinity:"}},
		{[]string{"describe", "node", node}, []string{"Name:", node, "Conditions:", "Ready", "Non-terminated Pods:", "app"}},
		{[]string{"describe", "storageclass", "drydock"}, []string{"Provisioner:", w.status.Driver, "IsDefaultClass:"}},
	} {
		out := w.k(t, want.args...)
		for _, word := range want.words {
			if !strings.Contains(out, word) {
				t.Errorf("kubectl %s lacks %q:\n%s", strings.Join(want.args, " "), word, out)
			}
		}
	}

	w.k(t, "delete", "pod", "app")
	watch.until(t, "DELETED")
	other := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[node]
	w.kin(t, podOn(t, other), "create", "-f", "-")
	w.k(t, "wait", "--for=condition=Ready", "pod/app", "--timeout=120s")
	if got := w.k(t, "get", "pod", "app", "-o", "jsonpath={.spec.nodeName}"); got != other {
		t.Fatalf("the pod is on %s, not on %s", got, other)
	}
	marker = filepath.Join(w.published(t, "app", "data"), "marker")
	if got, err := os.ReadFile(marker); err != nil || string(got) != "kept\n" {
		t.Fatalf("on the other node the marker reads %q, %v", got, err)
	}
	w.run(t, w.drydock, "check")

	w.k(t, "delete", "-f", examples, "--timeout=120s")
	w.k(t, "wait", "--for=delete", "pv/"+pv, "--timeout=120s")
	for _, kind := range []string{"pods", "pvc", "pv", "volumeattachments"} {
		if out := w.k(t, "get", kind); !strings.Contains(out, "No resources found") {
			t.Errorf("%s are left:\n%s", kind, out)
		}
	}
	w.run(t, w.drydock, "check")
}

// podOn is the example's pod, pinned to a node.
func podOn(t *testing.T, node string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(examples, "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pinned := strings.Replace(string(b), "spec:\n", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+node+"}\n", 1)
	if pinned == string(b) {
		t.Fatal("the example's pod has no spec line to pin it at")
	}
	return pinned
}
