package nodesim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumemanager"
)

func TestDriverWithoutAttachment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addDriver(func(d *storagev1.CSIDriver) { no := false; d.Spec.AttachRequired = &no })
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	if in := w.nodeObject().Status.VolumesInUse; len(in) != 0 {
		t.Errorf("volumesInUse %v", in)
	}
	w.guest.mu.Lock()
	r := w.guest.stages[0]
	w.guest.mu.Unlock()
	if len(r.PublishContext) != 0 {
		t.Errorf("publish context %v", r.PublishContext)
	}
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	w.wantCalls("Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1")
}

func TestDriverWithoutStaging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.guest.caps = nil
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.guest.mu.Lock()
	if w.guest.pubs[0].StagingTargetPath != "" {
		t.Errorf("staging path %s", w.guest.pubs[0].StagingTargetPath)
	}
	w.guest.mu.Unlock()
	w.deletePod("p")
	w.waitGone("p")
	w.waitDetached()
	w.wantCalls("Publish vol-1", "Unpublish vol-1", "Detach vol-1")
	if left := w.leftovers(); !slices.ContainsFunc(left, func(s string) bool { return strings.HasSuffix(s, "/globalmount") }) {
		t.Errorf("the kubelet leaves the empty globalmount of such a driver; here is %v", left)
	}
	w.stopKubelet() // the next life removes it
	w.startKubelet()
	w.checkClean()
}

func TestWhatTheDriverIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	w.addDriver(func(d *storagev1.CSIDriver) {
		yes := true
		d.Spec.PodInfoOnMount = &yes
		d.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "aud"}}
	})
	for _, s := range []string{"stage", "publish"} {
		w.must(w.client.CoreV1().Secrets("kube-system").Create(w.ctx, &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: s}, Data: map[string][]byte{"for": []byte(s)}}, metav1.CreateOptions{}))
	}
	w.addVolume("c", "vol-1", func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		pv.Spec.MountOptions = []string{"noatime"}
		pv.Spec.CSI.VolumeAttributes = map[string]string{"attr": "1"}
		pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "kube-system", Name: "stage"}
		pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "kube-system", Name: "publish"}
	})
	w.startKubelet()
	p, group := pod("p", "c"), int64(4711)
	p.Spec.ServiceAccountName = "sa"
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.createPod(p)
	w.waitRunning("p")
	w.guest.mu.Lock()
	s, r := w.guest.stages[0], w.guest.pubs[0]
	w.guest.mu.Unlock()
	for _, c := range []*csipb.VolumeCapability{s.VolumeCapability, r.VolumeCapability} {
		if c.AccessMode.Mode != csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER || c.GetMount().FsType != "ext4" ||
			!slices.Equal(c.GetMount().MountFlags, []string{"noatime"}) || c.GetMount().VolumeMountGroup != "4711" {
			t.Errorf("capability %v", c)
		}
	}
	if s.Secrets["for"] != "stage" || r.Secrets["for"] != "publish" || s.PublishContext["device"] != "vol-1" || r.PublishContext["device"] != "vol-1" {
		t.Errorf("secrets %v %v, publish context %v", s.Secrets, r.Secrets, s.PublishContext)
	}
	if len(s.VolumeContext) != 1 || s.VolumeContext["attr"] != "1" {
		t.Errorf("stage context %v", s.VolumeContext)
	}
	for k, want := range map[string]string{"attr": "1", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.namespace": namespace,
		"csi.storage.k8s.io/pod.uid": "uid-p", "csi.storage.k8s.io/serviceAccount.name": "sa", "csi.storage.k8s.io/ephemeral": "false"} {
		if r.VolumeContext[k] != want {
			t.Errorf("publish context %s is %q, want %q", k, r.VolumeContext[k], want)
		}
	}
	if !strings.HasPrefix(r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"], `{"aud":{"token":"token-for-p"`) || !r.Readonly {
		t.Errorf("tokens %q readonly %v", r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"], r.Readonly)
	}
	if r.StagingTargetPath != s.StagingTargetPath || r.TargetPath != w.path(p, "vol-c") {
		t.Errorf("paths %s %s", r.StagingTargetPath, r.TargetPath)
	}
}

func TestGroupOwnership(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy storagev1.FSGroupPolicy
		fsType string
		change *v1.PodFSGroupChangePolicy
		want   bool
	}{
		"file":                    {storagev1.FileFSGroupPolicy, "", nil, true},
		"none":                    {storagev1.NoneFSGroupPolicy, "ext4", nil, false},
		"with fstype":             {storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", nil, true},
		"without fstype":          {storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "", nil, false},
		"on root mismatch, first": {storagev1.FileFSGroupPolicy, "", new(v1.FSGroupChangeOnRootMismatch), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.FSGroupPolicy = &c.policy })
			w.addVolume("c", "vol-1", func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = c.fsType })
			w.startKubelet()
			p, group := pod("p", "c"), int64(os.Getgid())
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: c.change}
			w.createPod(p)
			w.waitRunning("p")
			fi, err := os.Stat(w.path(p, "vol-c"))
			if err != nil {
				t.Fatal(err)
			}
			if got := fi.Mode()&os.ModeSetgid != 0 && fi.Mode().Perm()&0o770 == 0o770; got != c.want {
				t.Errorf("mode %s, want ownership applied: %v", fi.Mode(), c.want)
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.waitTold(1, true)

	// A second socket for a live driver is refused.
	second := newGuest(driverName, nodeName, w.mounter)
	second.serve(t, filepath.Join(KubeletRoot(w.root), "plugins_registry", "second-reg.sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, &registrar{g: second, endpoint: "/nowhere"})
	})
	if err := second.wait(w.ctx, func([]string) bool { return second.toldCount(false) > 0 }); err != nil {
		t.Fatal(err)
	}
	second.stop()

	// Without its socket the driver is off the node; its topology label stays, and mounts wait.
	w.guest.stop()
	w.watchUntil("driver off the node", "nodes", func() bool { return w.nodeObject().Annotations["csi.volume.kubernetes.io/nodeid"] == "" })
	if w.nodeObject().Labels["region"] != "nyc3" {
		t.Error("the topology label went with the driver")
	}
	cn, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
	if err != nil || len(cn.Spec.Drivers) != 0 {
		t.Errorf("CSINode %+v %v", cn, err)
	}
	w.createPod(pod("p", "c"))
	w.waitEvent("FailedMount: MountVolume.MountDevice failed for volume \"pv-c\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: " +
		"driver name blk.sim.example.com not found in the list of registered CSI drivers")
	w.guest.start(t, KubeletRoot(w.root))
	w.waitRunning("p")
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}

func (g *guest) toldCount(registered bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, s := range g.told {
		if s.PluginRegistered == registered {
			n++
		}
	}
	return n
}

func (w *world) waitTold(n int, registered bool) {
	w.t.Helper()
	if err := w.guest.wait(w.ctx, func([]string) bool { return w.guest.toldCount(registered) >= n }); err != nil {
		w.t.Fatal(err)
	}
}

// TestUnreadClaimAfterARestart: the first pass of a new kubelet counts also when a claim could not be
// read. Its volume looks unwanted then and is taken down under the running pod, and comes again with the claim.
func TestUnreadClaimAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	var broken atomic.Bool
	w.client.PrependReactor("get", "persistentvolumeclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		return broken.Load(), nil, apierrors.NewServiceUnavailable("told to fail")
	})
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.killKubelet()
	broken.Store(true)
	w.startKubelet()
	w.eventually("the volume is taken down", func() bool { return w.guest.count("Unpublish vol-1") > 0 })
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	if w.must(p, err); p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil {
		t.Errorf("pod status %+v", p.Status)
	}
	broken.Store(false)
	w.eventually("the volume is there again", func() bool { return w.guest.count("Publish vol-1") > 1 })
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}

// TestRestartLeavesRunningPodsAlone: nothing is unmounted or restarted, and volumesInUse never shrinks.
func TestRestartLeavesRunningPodsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	before, _ := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	w.killKubelet()
	// While the API shows no attachment, nothing may be confirmed, and the list must stand.
	h, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: "kubelet: after the Node is registered, before its CSINode is made", Action: lab.Pause})
	if err != nil {
		t.Fatal(err)
	}
	w.startKubelet()
	if err := h.WaitFired(w.ctx, 1); err != nil {
		t.Fatal(err)
	}
	if in := w.nodeObject().Status.VolumesInUse; !slices.Contains(in, uniqueName("vol-1")) {
		t.Errorf("volumesInUse %v", in)
	}
	h.Remove()
	w.waitState("mounted again", func(d, m string) bool {
		return d == string(volumemanager.DeviceGloballyMounted) && m == string(volumemanager.Mounted)
	})
	after, _ := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	if b, a := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; a.RestartCount != b.RestartCount || a.ContainerID != b.ContainerID {
		t.Errorf("container before %+v after %+v", b, a)
	}
	w.wantCalls("Stage vol-1", "Publish vol-1", "Stage vol-1", "Publish vol-1")
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}
