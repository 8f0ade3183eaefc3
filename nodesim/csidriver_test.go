package nodesim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

func TestRequiresRepublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.RequiresRepublish = new(true) })
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	before := w.guest.count("Publish vol-1")
	w.node.life.volumes.NodeChanged() // a pass of the reconciler is no reason
	w.eventually("published again with the pod's sync", func() bool { return w.guest.count("Publish vol-1") > before })
	if n := w.guest.count("Stage vol-1"); n != 1 {
		t.Errorf("staged %d times", n)
	}
	// A refresh that fails leaves the mount as it is, also after a final error.
	w.guest.set(failing("Publish", codes.InvalidArgument, -1), nil)
	n := w.guest.count("Publish vol-1")
	w.eventually("a refresh that fails", func() bool { return w.guest.count("Publish vol-1") > n })
	w.waitEvent("FailedMount: MountVolume.SetUp failed")
	w.waitState("still mounted", func(device, mount string) bool { return device == "GloballyMounted" && mount == "Mounted" })
	if w.podPhase("p") != v1.PodRunning {
		t.Errorf("phase %s", w.podPhase("p"))
	}
	if _, err := os.Stat(filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumes/kubernetes.io~csi/pv-c/vol_data.json")); err != nil {
		t.Errorf("the data file went with a failed refresh: %v", err)
	}
	w.guest.set(nil, nil)
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
}

func TestTokensInSecrets(t *testing.T) {
	t.Parallel()
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	for name, inSecrets := range map[string]bool{"in the volume context": false, "in secrets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addDriver(func(d *storagev1.CSIDriver) {
				d.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: ""}, {Audience: "vault"}}
				d.Spec.ServiceAccountTokenInSecrets = &inSecrets
			})
			w.addVolume("c", "vol-1")
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitRunning("p")
			w.guest.mu.Lock()
			r, s := w.guest.pubs[0], w.guest.stages[0]
			w.guest.mu.Unlock()
			got, other := r.VolumeContext[key], r.Secrets[key]
			if inSecrets {
				got, other = other, got
			}
			tokens := map[string]struct {
				Token               string      `json:"token"`
				ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
			}{}
			if err := json.Unmarshal([]byte(got), &tokens); err != nil || tokens[""].Token != "token-for-p" || tokens["vault"].Token != "token-for-p" || other != "" {
				t.Errorf("tokens %q %v, and %q where none belong", got, err, other)
			}
			if s.VolumeContext[key]+s.Secrets[key] != "" {
				t.Error("tokens are for NodePublish only")
			}
		})
	}
}

// How many volumes fit is asked for as often as the CSIDriver says, and else never.
func TestCountOfVolumesIsRefreshed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addDriver(func(d *storagev1.CSIDriver) {})
	w.startKubelet()
	w.waitTold(1, true)
	count := func() int32 {
		cn, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
		if err != nil || len(cn.Spec.Drivers) != 1 || cn.Spec.Drivers[0].Allocatable == nil {
			return -1
		}
		return *cn.Spec.Drivers[0].Allocatable.Count
	}
	if n := count(); n != 7 {
		t.Fatalf("count %d", n)
	}
	w.guest.fits(9)
	for range 40 { // in steps that the end of the registration survives
		advance(w, 2*time.Second)
		w.node.life.csi.DriversChanged()
		w.pause()
	}
	// A registration that ran out of the lab's time is made anew, and asks as well; until then there is no count.
	if n := count(); n == 9 && w.guest.toldCount(true) == 1 {
		t.Errorf("count %d, though nobody asked for it to be refreshed", n)
	}
	d, err := w.client.StorageV1().CSIDrivers().Get(w.ctx, driverName, metav1.GetOptions{})
	w.must(d, err)
	d.Spec.NodeAllocatableUpdatePeriodSeconds = new(int64(30))
	w.must(w.client.StorageV1().CSIDrivers().Update(w.ctx, d, metav1.UpdateOptions{}))
	w.eventually("the count of the driver", func() bool { return count() == 9 })
}

// An attachment that failed for lack of room ends the pod, if the CSIDriver lets the count be refreshed.
func TestNoRoomRejectsThePod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		period *int64
		want   v1.PodPhase
	}{"refreshed": {new(int64(30)), v1.PodFailed}, "not refreshed": {nil, v1.PodPending}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.NodeAllocatableUpdatePeriodSeconds = c.period })
			w.addVolume("c", "vol-1")
			w.full.Store(true)
			w.guest.fits(9)
			w.startKubelet()
			w.waitTold(1, true)
			w.guest.fits(3)
			w.createPod(pod("p", "c"))
			w.eventually("the end of the wait", func() bool {
				return w.podPhase("p") == c.want && w.node.life.volumes != nil && (c.period == nil || w.podPhase("p") == v1.PodFailed)
			})
			p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
			w.must(p, err)
			if c.period != nil && p.Status.Reason != "VolumeAttachmentLimitExceeded" {
				t.Errorf("status %+v", p.Status)
			}
			if c.period == nil {
				return
			}
			w.eventually("the new count", func() bool { // the call that asks for it may run out of time
				cn, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{})
				w.must(cn, err)
				return *cn.Spec.Drivers[0].Allocatable.Count == 3
			})
		})
	}
}

func labelled(name, level string, claims ...string) *v1.Pod {
	p := pod(name, claims...)
	p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	return p
}

const label1 = "system_u:object_r:container_file_t:s0:c1,c2"

func TestSELinuxMount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode    volumeplugin.SELinuxMode
		driver  bool
		access  v1.PersistentVolumeAccessMode
		change  func(*v1.Pod)
		labeled bool
	}{
		"once, all":             {volumeplugin.SELinuxAll, true, v1.ReadWriteOnce, nil, true},
		"once pod":              {volumeplugin.SELinuxOncePod, true, v1.ReadWriteOncePod, nil, true},
		"once":                  {volumeplugin.SELinuxOncePod, true, v1.ReadWriteOnce, nil, false},
		"the driver says no":    {volumeplugin.SELinuxAll, false, v1.ReadWriteOnce, nil, false},
		"the node has none":     {volumeplugin.SELinuxOff, true, v1.ReadWriteOncePod, nil, false},
		"the pod walks instead": {volumeplugin.SELinuxAll, true, v1.ReadWriteOnce, func(p *v1.Pod) { p.Spec.SecurityContext.SELinuxChangePolicy = new(v1.SELinuxChangePolicyRecursive) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.selinux = c.mode
			w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.SELinuxMount = &c.driver })
			w.addVolume("c", "vol-1", modes(c.access), func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"noatime"} })
			w.startKubelet()
			p := labelled("p", "s0:c1,c2", "c")
			if c.change != nil {
				c.change(p)
			}
			w.createPod(p)
			w.waitRunning("p")
			want := []string{"noatime"}
			if c.labeled {
				want = append(want, `context="`+label1+`"`)
			}
			w.guest.mu.Lock()
			caps := []*csipb.VolumeCapability{w.guest.stages[0].VolumeCapability, w.guest.pubs[0].VolumeCapability}
			w.guest.mu.Unlock()
			for _, got := range caps {
				if !slices.Equal(got.GetMount().GetMountFlags(), want) {
					t.Errorf("flags %q, want %q", got.GetMount().GetMountFlags(), want)
				}
			}
			for _, dir := range []string{"pods/uid-p/volumes/kubernetes.io~csi/pv-c", "plugins/kubernetes.io/csi/" + driverName + "/*"} {
				files, _ := filepath.Glob(filepath.Join(KubeletRoot(w.root), dir, "vol_data.json"))
				if len(files) != 1 {
					t.Fatalf("%s: %v", dir, files)
				}
				if b, err := os.ReadFile(files[0]); err != nil || strings.Contains(string(b), `"seLinuxMountContext":"`+label1+`"`) != c.labeled {
					t.Errorf("%s: %s %v", files[0], b, err)
				}
			}
		})
	}
}

// A volume mounted with one label goes down as a whole before it comes up with another.
func TestSELinuxLabelsDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.selinux = volumeplugin.SELinuxAll
	w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.SELinuxMount = new(true) })
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(labelled("p", "s0:c1,c2", "c"))
	w.waitRunning("p")
	w.createPod(labelled("same", "s0:c1,c2", "c"))
	w.waitRunning("same")
	w.createPod(labelled("other", "s0:c3,c4", "c"))
	w.waitEvent(`conflicting SELinux labels of volume pv-c: "` + label1 + `" and "system_u:object_r:container_file_t:s0:c3,c4"`)
	// The label survives a restart of the kubelet.
	w.killKubelet()
	w.startKubelet()
	w.waitState("mounted again", func(device, mount string) bool { return device == "GloballyMounted" && mount == "Mounted" })
	w.deletePod("same")
	w.deletePod("p")
	w.waitGone("same", "p")
	w.hurry()
	w.waitRunning("other")
	calls := w.guest.log()
	i := slices.Index(calls, "Unstage vol-1")
	if i < 0 || !slices.Contains(calls[i:], "Stage vol-1") {
		t.Errorf("the device was not taken down between the labels: %v", calls)
	}
}

// Containers of one pod that disagree cannot share the volume.
func TestSELinuxContainersDisagree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.selinux = volumeplugin.SELinuxAll
	w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.SELinuxMount = new(true) })
	w.addVolume("c", "vol-1")
	w.startKubelet()
	p := labelled("p", "s0:c1,c2", "c")
	side := p.Spec.Containers[0].DeepCopy()
	side.Name, side.SecurityContext = "side", &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c5"}}
	p.Spec.Containers = append(p.Spec.Containers, *side)
	w.createPod(p)
	w.waitEvent("multiple SELinux labels found: " + label1 + ",system_u:object_r:container_file_t:s0:c5")
}
