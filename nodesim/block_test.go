package nodesim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim/volumemanager"
)

func (w *world) locked(handle string) bool {
	return slices.ContainsFunc(w.node.State(), func(v volumemanager.VolumeState) bool {
		return v.Name == uniqueName(handle) && slices.ContainsFunc(v.Pods, func(p volumemanager.PodMount) bool { return p.Locked })
	})
}

func TestBlockVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addDriver(func(d *storagev1.CSIDriver) {
		d.Spec.PodInfoOnMount = new(true)
		d.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "aud"}}
	})
	w.addVolume("c", "vol-1", asBlock, func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"noatime"} })
	w.startKubelet()
	p := blockPod("p", "c")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4711))}
	w.createPod(p)
	w.waitRunning("p")

	root := KubeletRoot(w.root)
	devices := "plugins/kubernetes.io/csi/volumeDevices"
	publish := filepath.Join(root, devices, "publish/pv-c/uid-p")
	w.guest.mu.Lock()
	s, r := w.guest.stages[0], w.guest.pubs[0]
	w.guest.mu.Unlock()
	if s.StagingTargetPath != filepath.Join(root, devices, "staging/pv-c") || s.VolumeCapability.GetBlock() == nil || r.StagingTargetPath != s.StagingTargetPath ||
		r.TargetPath != publish || !r.Readonly || r.VolumeCapability.GetMount() != nil {
		t.Errorf("stage %v publish %v", s, r)
	}
	if r.VolumeContext["csi.storage.k8s.io/pod.name"] != "p" || r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"] != "" {
		t.Errorf("a block volume gets pod info and no tokens: %v", r.VolumeContext)
	}
	link := filepath.Join(root, "pods/uid-p/volumeDevices/kubernetes.io~csi/pv-c")
	if to, err := os.Readlink(link); err != nil || to != publish {
		t.Errorf("link to %s %v", to, err)
	}
	bind := filepath.Join(root, devices, "pv-c/dev/uid-p")
	if not, err := w.mounter.IsLikelyNotMountPoint(bind); err != nil || not {
		t.Errorf("nothing is bound at %s: %v", bind, err)
	}
	if !w.locked("vol-1") {
		t.Error("the device is not kept open")
	}
	for _, path := range []string{"globalMapPath", "volumeMapPath"} {
		if e := w.waitEvent(`SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv-c" ` + path); e.Type != v1.EventTypeNormal {
			t.Errorf("event %+v", e)
		}
	}

	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	w.wantCalls("Stage vol-1", "Publish vol-1", "Unpublish vol-1", "Unstage vol-1", "Detach vol-1")
}

// TestFoundBlockDeviceThatIsRefused: a block device was staged when the kubelet died, and is refused by the driver when
// the next one stages it again. It is unstaged all the same once no pod wants it, and not detached before.
func TestFoundBlockDeviceThatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	w.addVolume("c", "vol-1", asBlock)
	w.guest.set(failing("Publish", codes.Internal, -1), nil)
	w.startKubelet()
	w.createPod(blockPod("p", "c"))
	w.waitEvent("FailedMapVolume: MapVolume.MapPodDevice failed")
	w.killKubelet()
	w.guest.set(failing("Stage", codes.Internal, -1), nil)
	w.startKubelet()
	w.waitEvent("told to fail Stage vol-1")
	w.deletePod("p")
	w.waitGone("p")
	w.waitCall("Detach vol-1", 1)
	calls := w.guest.log()
	if u := slices.Index(calls, "Unstage vol-1"); u < 0 || u > slices.Index(calls, "Detach vol-1") {
		t.Errorf("calls %v", calls)
	}
	w.checkClean()
}

// The way down: what the pod has goes in the contrary order of the way up, and each step is left standing by a failure of the one before.
func TestBlockTeardownOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	w.addVolume("c", "vol-1", asBlock)
	w.startKubelet()
	w.createPod(blockPod("p", "c"))
	w.waitRunning("p")
	busy, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "unmount", Action: lab.Fail, Code: "EBUSY"})
	w.must(busy, err)
	w.deletePod("p")
	w.must(nil, busy.WaitFired(w.ctx, 2))
	root := KubeletRoot(w.root)
	if _, err := os.Lstat(filepath.Join(root, "pods/uid-p/volumeDevices/kubernetes.io~csi/pv-c")); !os.IsNotExist(err) {
		t.Errorf("the link is removed before the bind: %v", err)
	}
	if n := w.guest.count("Unpublish vol-1"); n != 0 {
		t.Error("unpublished before the bind was removed")
	}
	if w.locked("vol-1") {
		t.Error("the device is kept open")
	}
	busy.Remove()
	w.guest.set(failing("Unpublish", codes.Internal, 1), nil)
	w.waitGone("p")
	w.checkClean()
}

// As long as a pod has the device, it is not unstaged.
func TestBlockReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1", asBlock)
	w.startKubelet()
	w.createPod(blockPod("p", "c"))
	w.createPod(blockPod("q", "c"))
	w.waitRunning("p", "q")
	w.deletePod("p")
	w.waitGone("p")
	if n := w.guest.count("Unstage vol-1"); n != 0 {
		t.Error("unstaged while another pod has it")
	}
	// Something left in the global map directory counts as a reference.
	stray := filepath.Join(KubeletRoot(w.root), "plugins/kubernetes.io/csi/volumeDevices/pv-c/dev/uid-other")
	w.must(nil, os.WriteFile(stray, nil, 0o600))
	w.deletePod("q")
	w.waitGone("q")
	w.eventually("an unmap that is refused", func() bool {
		return slices.ContainsFunc(w.node.State(), func(v volumemanager.VolumeState) bool {
			return slices.ContainsFunc(v.Operations, func(s string) bool { return strings.Contains(s, "is still referenced from other Pods") })
		})
	})
	if n := w.guest.count("Unstage vol-1"); n != 0 {
		t.Error("unstaged while it is referenced")
	}
	w.must(nil, os.Remove(stray))
	w.hurry()
	w.checkClean()
}

// What fails after the publish is torn down with the pod; a stale link of the time before a reboot is replaced.
func TestBlockMapFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	w.addVolume("c", "vol-1", asBlock)
	link := filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumeDevices/kubernetes.io~csi/pv-c")
	busy, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "mount", Action: lab.Fail, Code: "EIO"})
	w.must(busy, err)
	w.startKubelet()
	w.createPod(blockPod("p", "c"))
	w.waitEvent(`FailedMapVolume: MapVolume.MapBlockVolume failed for volume "pv-c" : `)
	w.waitState("uncertain", func(device, mount string) bool { return device == "GloballyMounted" && mount == "Uncertain" })
	w.must(nil, os.MkdirAll(filepath.Dir(link), 0o750))
	w.must(nil, os.Symlink("/nowhere", link))
	busy.Remove()
	w.waitRunning("p")
	if to, err := os.Readlink(link); err != nil || !strings.HasSuffix(to, "/publish/pv-c/uid-p") {
		t.Errorf("link to %s %v", to, err)
	}
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()

	t.Run("final error of the driver", func(t *testing.T) {
		w.guest.set(failing("Publish", codes.InvalidArgument, 1), nil)
		w.createPod(blockPod("q", "c"))
		w.waitEvent(`FailedMapVolume: MapVolume.MapPodDevice failed for volume "pv-c" : rpc error: code = InvalidArgument`)
		w.waitRunning("q")
		w.deletePod("q")
		w.waitGone("q")
		w.checkClean()
	})
}

// A driver without staging is told the staging path of a block volume all the same.
func TestBlockWithoutStaging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.guest.caps = nil
	w.guest.unstaged = true
	w.addVolume("c", "vol-1", asBlock)
	w.startKubelet()
	w.createPod(blockPod("p", "c"))
	w.waitRunning("p")
	w.guest.mu.Lock()
	r := w.guest.pubs[0]
	w.guest.mu.Unlock()
	if !strings.HasSuffix(r.StagingTargetPath, "/staging/pv-c") {
		t.Errorf("staging path %q", r.StagingTargetPath)
	}
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	w.wantCalls("Publish vol-1", "Unpublish vol-1", "Detach vol-1")
}

func TestVolumeOnTheWrongNodeIsRefused(t *testing.T) {
	t.Parallel()
	elsewhere := func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "region", Operator: v1.NodeSelectorOpIn, Values: []string{"ams3"}}}}}}}
	}
	for name, c := range map[string]struct {
		block bool
		want  string
	}{
		"filesystem": {false, `FailedMount: MountVolume.NodeAffinity check failed for volume "pv-c" : `},
		"block":      {true, `FailedMount: MapVolume.NodeAffinity check failed for volume "pv-c" : `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			change, p := elsewhere, pod("p", "c")
			if c.block {
				change = func(pv *v1.PersistentVolume) { elsewhere(pv); asBlock(pv) }
				p = blockPod("p", "c")
			}
			w.addVolume("c", "vol-1", change)
			w.startKubelet()
			w.createPod(p)
			w.waitEvent(c.want)
			if calls := w.guest.log(); len(calls) != 0 {
				t.Errorf("calls %v", calls)
			}
		})
	}
}

func TestMountOptionsNeedAPluginThatTakesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1", func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}
		pv.Spec.MountOptions = []string{"noatime"}
	})
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitEvent(`FailedMount: MountVolume.MountOptionSupport check failed for volume "pv-c" : Mount options are not supported for this volume type`)
}

// The kubelet leaves ownership alone where driver, volume or use say so.
func TestWhoAppliesTheGroup(t *testing.T) {
	t.Parallel()
	type caps = []csipb.NodeServiceCapability_RPC_Type
	for name, c := range map[string]struct {
		change   func(*v1.PersistentVolume)
		caps     caps
		readOnly bool
		want     bool
	}{
		"read-write once":        {want: true},
		"read-write once pod":    {change: modes(v1.ReadWriteOncePod), want: true},
		"read-write many":        {change: modes(v1.ReadWriteMany)},
		"many and once":          {change: modes(v1.ReadWriteMany, v1.ReadWriteOnce), want: true},
		"read-only use":          {readOnly: true},
		"the driver does itself": {caps: caps{csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t) // without a CSIDriver the policy is ReadWriteOnceWithFSType
			w.guest.caps = append(w.guest.caps, c.caps...)
			if c.change == nil {
				c.change = func(*v1.PersistentVolume) {}
			}
			w.addVolume("c", "vol-1", c.change)
			w.startKubelet()
			p := pod("p", "c")
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = c.readOnly
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
			w.createPod(p)
			w.waitRunning("p")
			fi, err := os.Stat(w.path(p, "vol-c"))
			w.must(fi, err)
			if got := fi.Mode()&os.ModeSetgid != 0; got != c.want {
				t.Errorf("mode %s, want it applied: %v", fi.Mode(), c.want)
			}
		})
	}
}

func modes(m ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = m }
}

// A volume that is published and cannot be given to its group may not be used, and is taken down with the pod.
func TestFailedOwnershipIsUncertain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	w.addVolume("c", "vol-1")
	bad, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "chown", Action: lab.Fail, Code: "EIO"})
	w.must(bad, err)
	w.startKubelet()
	p := pod("p", "c")
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
	w.createPod(p)
	w.waitEvent(`FailedMount: MountVolume.SetUp failed for volume "pv-c" : applyFSGroup failed for vol vol-1: `)
	w.waitState("uncertain", func(_, mount string) bool { return mount == "Uncertain" })
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	if w.guest.count("Unpublish vol-1") == 0 {
		t.Error("not unpublished")
	}
}

// A pod's fsGroup is slow: the pod is told.
func TestSlowGroupChangeIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	w.addVolume("c", "vol-1")
	slow, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindKernel, Op: "chown", Action: lab.Pause})
	w.must(slow, err)
	w.startKubelet()
	p := pod("p", "c")
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
	w.createPod(p)
	e := w.waitEvent("VolumePermissionChangeInProgress: Setting volume ownership for volume ")
	if e.Type != v1.EventTypeWarning || e.InvolvedObject.Name != "p" {
		t.Errorf("event %+v", e)
	}
	slow.Remove()
	w.waitRunning("p")
}

func TestVL12BlockVolumesComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1", asBlock)
	w.startKubelet()
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		w.createPod(blockPod(name, "c"))
		w.waitRunning(name)
		w.deletePod(name)
		w.waitGone(name)
	}
	w.checkClean()
	w.createPod(blockPod("q", "c"))
	w.waitRunning("q")
	w.killKubelet()
	w.startKubelet()
	w.waitState("mapped again", func(device, mount string) bool { return device == "GloballyMounted" && mount == "Mounted" })
	if !w.locked("vol-1") {
		t.Error("after a restart the device is not kept open")
	}
	w.deletePod("q")
	w.waitGone("q")
	w.checkClean()
}

func TestVL08SubPathsOfSeveralContainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	p := pod("p", "c")
	for i, sub := range []string{"a/b", "a/c", "d"} {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "vol-c", MountPath: "/" + sub, SubPath: sub})
		if i > 0 {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "side" + sub[len(sub)-1:], Image: "i",
				VolumeMounts: []v1.VolumeMount{{Name: "vol-c", MountPath: "/x", SubPath: sub}}})
		}
	}
	w.createPod(p)
	w.waitRunning("p")
	w.killKubelet()
	w.startKubelet()
	// Somebody deletes what a container sees.
	w.must(nil, os.RemoveAll(filepath.Join(w.path(p, "vol-c"), "a")))
	got, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	w.must(got, err)
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	calls := w.guest.log()
	if i, j := slices.Index(calls, "Unpublish vol-1"), slices.Index(calls, "Unstage vol-1"); i < 0 || j < i {
		t.Errorf("calls %v", calls)
	}
}
