package nodesim

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/internal/lab"
)

// TestKillAtEveryPoint kills the kubelet at each named point it reaches, once, starts
// another on the same root, and wants the end it would have come to without.
func TestKillAtEveryPoint(t *testing.T) {
	kinds := map[string]func(*world) *v1.Pod{
		"filesystem": func(w *world) *v1.Pod {
			w.addVolume("c", "vol-1")
			p, group := pod("p", "c"), int64(os.Getgid())
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			return p
		},
		"block": func(w *world) *v1.Pod {
			w.addVolume("c", "vol-1", asBlock)
			return blockPod("p", "c")
		},
		"growing": func(w *world) *v1.Pod {
			w.guest.caps = append(w.guest.caps, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
			w.addVolume("c", "vol-1")
			w.grow("c", "2Gi")
			p := pod("p", "c")
			p.Spec.Containers[0].VolumeMounts[0].SubPath = "a/b"
			return p
		},
		"flex": func(w *world) *v1.Pod {
			w.installFlex("example.com~disk", `{"attach": true}`)
			w.addVolume("c", "vol-1", asFlex("example.com/disk"))
			w.grow("c", "2Gi")
			p := pod("p", "c")
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
			return p
		},
		"local": localPod,
		"inline": func(w *world) *v1.Pod {
			w.addDriver(func(d *storagev1.CSIDriver) {
				d.Spec.VolumeLifecycleModes = append(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral)
			})
			return inlinePod("p")
		},
		"ephemeral": func(w *world) *v1.Pod { return w.ephemeralPod("p", "vol-1") },
	}
	var mu sync.Mutex
	reached := map[string]bool{}
	t.Cleanup(func() { // after the parallel tests
		for _, p := range Points() {
			// The one is reached only when damaged files are repaired.
			if !t.Failed() && !reached[p.Name] && !strings.Contains(p.Name, "repairing") {
				t.Errorf("no volume of any kind reached the point %q", p.Name)
			}
		}
	})
	for kind, setUp := range kinds {
		for _, p := range Points() {
			t.Run(kind+"/"+p.Name, func(t *testing.T) {
				t.Parallel() // they wait for pauses most of the time
				w := newWorld(t)
				w.hurryBy(15)             // faster, and on a busy machine no driver registers in time
				if kind == "filesystem" { // so that its ownership is walked
					w.addDriver(func(d *storagev1.CSIDriver) { file := storagev1.FileFSGroupPolicy; d.Spec.FSGroupPolicy = &file })
				}
				thePod := setUp(w)
				h, err := w.lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
				if err != nil {
					t.Fatal(err)
				}
				w.startKubelet()
				w.createPod(thePod)
				w.reach("pod running", func() bool { return w.podPhase("p") == v1.PodRunning })
				w.deletePod("p")
				w.reach("pod gone", func() bool { return w.podPhase("p") == "" })
				w.reachClean()
				if h.Fired() > 0 {
					mu.Lock()
					defer mu.Unlock()
					reached[p.Name] = true
				}
				w.checkOrder()
			})
		}
	}
}

// reach waits for a state of the pods; a kubelet that is killed meanwhile is started again.
func (w *world) reach(what string, ok func() bool) {
	w.t.Helper()
	for {
		stop := make(chan struct{})
		halt := context.AfterFunc(w.comp.Context(), func() { close(stop) })
		halt2 := context.AfterFunc(w.ctx, func() { w.comp.Kill() })
		err := w.tryUntil("pods", ok, stop)
		halt()
		halt2()
		if err == nil {
			return
		}
		if w.ctx.Err() != nil {
			w.t.Fatalf("%s: %v\n%s", what, err, w.describe())
		}
		w.killKubelet()
		w.startKubelet()
	}
}

// reachClean waits until nothing is left, and starts a killed kubelet again meanwhile.
func (w *world) reachClean() {
	w.t.Helper()
	clean := func() bool {
		n := w.nodeObject()
		return len(n.Status.VolumesInUse) == 0 && len(n.Status.VolumesAttached) == 0 && len(w.leftovers()) == 0
	}
	for !clean() {
		if w.comp.Killed() {
			w.killKubelet()
			w.startKubelet()
		}
		if w.ctx.Err() != nil {
			w.t.Fatalf("left behind:\n%s\n%s", strings.Join(w.leftovers(), "\n"), w.describe())
		}
		w.pause()
	}
}

// checkOrder wants every publish between stage and unstage.
func (w *world) checkOrder() {
	w.t.Helper()
	staged, published := map[string]bool{}, map[string]int{}
	for _, c := range w.guest.log() {
		method, volume, _ := strings.Cut(c, " ")
		switch method {
		case "Stage":
			staged[volume] = true
		case "Publish":
			if !staged[volume] && !strings.HasPrefix(volume, "csi-") {
				w.t.Errorf("publish before stage: %v", w.guest.log())
			}
			published[volume]++
		case "Unpublish":
			published[volume] = 0
		case "Unstage":
			if published[volume] > 0 {
				w.t.Errorf("unstage before unpublish: %v", w.guest.log())
			}
			staged[volume] = false
		}
	}
}

func asBlock(pv *v1.PersistentVolume) {
	mode := v1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &mode
	pv.Spec.CSI.FSType = ""
}

func blockPod(name string, claims ...string) *v1.Pod {
	p := pod(name, claims...)
	c := &p.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: m.Name, DevicePath: "/dev/x" + m.Name})
	}
	c.VolumeMounts = nil
	return p
}

func inlinePod(name string) *v1.Pod {
	p := pod(name)
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	return p
}

// ephemeralPod has a claim of its own, made as the ephemeral volume controller and the provisioner leave it.
func (w *world) ephemeralPod(name, handle string) *v1.Pod {
	w.t.Helper()
	claim := name + "-own"
	w.addVolume(claim, handle)
	w.changeClaim(claim, func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
	})
	p := pod(name)
	p.Spec.Volumes = []v1.Volume{{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "own", MountPath: "/own"}}
	return p
}

// addDriver makes the CSIDriver object, with the defaults of the API.
func (w *world) addDriver(change func(*storagev1.CSIDriver)) {
	w.t.Helper()
	yes, no, policy := true, false, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: &yes, PodInfoOnMount: &no, FSGroupPolicy: &policy, RequiresRepublish: &no,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}
	change(d)
	w.must(w.client.StorageV1().CSIDrivers().Create(w.ctx, d, metav1.CreateOptions{}))
}

// localPod uses every kind of volume that needs no driver.
func localPod(w *world) *v1.Pod {
	w.t.Helper()
	w.must(w.client.CoreV1().ConfigMaps(namespace).Create(w.ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cm"}, Data: map[string]string{"a": "1", "b": "2"}}, metav1.CreateOptions{}))
	w.must(w.client.CoreV1().Secrets(namespace).Create(w.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sec"}, Data: map[string][]byte{"key": []byte("s3")}}, metav1.CreateOptions{}))
	p := pod("p")
	fields := []v1.DownwardAPIVolumeFile{{Path: "meta/name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	kind := v1.HostPathDirectoryOrCreate
	p.Spec.Volumes = []v1.Volume{
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "mem", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "cfg", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}},
		{Name: "sec", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "sec"}}},
		{Name: "dwn", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields}}},
		{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data", Type: &kind}}},
		{Name: "kube-api-access-x", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "a", Path: "ca.crt"}}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: fields}},
		}}}},
	}
	for _, v := range p.Spec.Volumes {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}
