package nodesim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin/csi"
)

// The cases are those of cases.md, under their numbers.

// failing returns a hook that answers calls of a method with a code, the first n of them; n < 0 is all.
func failing(method string, code codes.Code, n int64) func(string) error {
	var done atomic.Int64
	return func(call string) error {
		if strings.HasPrefix(call, method+" ") && (n < 0 || done.Add(1) <= n) {
			return status.Errorf(code, "told to fail %s", call)
		}
		return nil
	}
}

func (w *world) waitCall(call string, times int) {
	w.t.Helper()
	err := w.guest.wait(w.ctx, func(calls []string) bool {
		n := 0
		for _, c := range calls {
			if c == call {
				n++
			}
		}
		return n >= times
	})
	if err != nil {
		w.t.Fatalf("%d times %s: %v", times, call, err)
	}
}

func (w *world) wantCalls(want ...string) {
	w.t.Helper()
	if got := w.guest.log(); !slices.Equal(got, want) {
		w.t.Errorf("calls %v\nwant  %v", got, want)
	}
}

// waitUncertain waits until the volume manager is not sure of the device of a volume.
func (w *world) waitState(what string, ok func(device, mount string) bool) {
	w.t.Helper()
	for {
		changed := w.node.changed()
		for _, v := range w.node.State() {
			mount := ""
			if len(v.Pods) > 0 {
				mount = string(v.Pods[0].State)
			}
			if ok(string(v.Device), mount) {
				return
			}
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			w.t.Fatalf("%s: %s", what, w.describe())
		}
	}
}

func TestVL01StageTimesOutThenPodGoes(t *testing.T) {
	t.Parallel()
	t.Run("a late answer is an uncertain device", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.guest.set(nil, failing("Stage", codes.DeadlineExceeded, -1))
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitState("device uncertain", func(d, _ string) bool { return d == "Uncertain" })
		w.deletePod("p")
		w.checkClean()
		calls := slices.Compact(w.guest.log())
		if want := []string{"Stage vol-1", "Unstage vol-1", "Detach vol-1"}; !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
	})
	t.Run("b final error needs no unstage", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.guest.set(failing("Stage", codes.InvalidArgument, -1), nil)
		w.startKubelet()
		w.createPod(pod("p", "c"))
		e := w.waitEvent("FailedMount: MountVolume.MountDevice failed for volume \"pv-c\" : rpc error: code = InvalidArgument desc = told to fail Stage vol-1")
		if e.InvolvedObject.Name != "p" {
			t.Errorf("event on %v", e.InvolvedObject)
		}
		w.deletePod("p")
		w.checkClean()
		if n := w.guest.count("Unstage vol-1"); n != 0 {
			t.Errorf("%d unstages of what was never staged", n)
		}
	})
	t.Run("c final error clears the uncertainty", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.guest.set(failing("Stage", codes.DeadlineExceeded, 1), nil)
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitState("device uncertain", func(d, _ string) bool { return d == "Uncertain" })
		w.guest.set(failing("Stage", codes.InvalidArgument, -1), nil)
		w.waitState("device not mounted", func(d, _ string) bool { return d == "NotMounted" })
		w.deletePod("p")
		w.checkClean()
		if n := w.guest.count("Unstage vol-1"); n != 0 {
			t.Errorf("%d unstages after a final error", n)
		}
	})
}

func TestVL02HalfDoneTearDownAndComeback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		code   codes.Code
	}{
		"a unpublish late":           {"Unpublish", codes.DeadlineExceeded},
		"b unstage late":             {"Unstage", codes.DeadlineExceeded},
		"c unstage device in use":    {"Unstage", codes.FailedPrecondition},
		"d unpublish internal":       {"Unpublish", codes.Internal},
		"e unstage invalid argument": {"Unstage", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("c", "vol-1")
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitRunning("p")
			w.guest.set(nil, failing(c.method, c.code, 1))
			w.deletePod("p")
			w.waitCall(c.method+" vol-1", 1)
			w.waitState("uncertain", func(d, m string) bool { return d == "Uncertain" || m == "Uncertain" })
			again := pod("p2", "c")
			w.createPod(again)
			w.waitRunning("p2")
			if not, err := w.mounter.IsLikelyNotMountPoint(w.path(again, "vol-c")); err != nil || not {
				t.Errorf("the new pod runs on a bare directory: %v", err)
			}
			if c.method == "Unstage" && w.guest.count("Stage vol-1") < 2 {
				t.Errorf("the device was not staged again: %v", w.guest.log())
			}
			if w.guest.count("Publish vol-1") < 2 {
				t.Errorf("the volume was not published again: %v", w.guest.log())
			}
			w.deletePod("p2")
			w.waitGone("p", "p2")
			w.checkClean()
		})
	}
}

func TestVL03PodStaysUntilItsVolumesAreDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.guest.set(failing("Unpublish", codes.Internal, -1), nil)
	w.deletePod("p")
	w.waitCall("Unpublish vol-1", 2)
	if w.podPhase("p") == "" {
		t.Error("the pod's object went before its volume")
	}
	advance(w, 3*time.Minute)
	e := w.waitEvent("FailedUnmount: Unable to unmount volumes: mounted volumes=[" + string(uniqueName("vol-1")) + "]")
	if !strings.Contains(e.Message, "UnmountVolume.TearDown failed") {
		t.Errorf("the event does not say why: %s", e.Message)
	}
	w.guest.set(nil, nil)
	advance(w, 3*time.Minute)
	w.waitGone("p")
	w.checkClean()
}

func TestVL06PodDeletedWhileKubeletWasDown(t *testing.T) {
	t.Parallel()
	data := func(w *world) string {
		return filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumes/kubernetes.io~csi/pv-c/vol_data.json")
	}
	for name, damage := range map[string]func(*world) error{
		"a intact":       func(*world) error { return nil },
		"b truncated":    func(w *world) error { return os.Truncate(data(w), 0) },
		"d removed":      func(w *world) error { return os.Remove(data(w)) },
		"e garbage":      func(w *world) error { return os.WriteFile(data(w), []byte("{\"driverName\":"), 0o600) },
		"f names nought": func(w *world) error { return os.WriteFile(data(w), []byte("{}"), 0o600) },
		"g staging truncated": func(w *world) error {
			return os.Truncate(filepath.Join(KubeletRoot(w.root), "plugins/kubernetes.io/csi", driverName, csi.StagingName("vol-1"), "vol_data.json"), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.addVolume("c", "vol-1")
			w.addVolume("d", "vol-2")
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.createPod(pod("other", "d"))
			w.waitRunning("p", "other")
			w.killKubelet()
			w.forceDelete("p")
			if err := damage(w); err != nil {
				t.Fatal(err)
			}
			w.startKubelet()
			w.waitCall("Detach vol-1", 1)
			if w.guest.count("Unpublish vol-1") == 0 || w.guest.count("Unstage vol-1") == 0 {
				t.Errorf("calls %v", w.guest.log())
			}
			w.deletePod("other")
			w.waitGone("other")
			w.checkClean()
			w.checkOrder()
		})
	}
	t.Run("c inline", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addDriver(func(d *storagev1.CSIDriver) {
			d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
		})
		w.startKubelet()
		p := inlinePod("p")
		p.UID = "6f1c2d3e-0000-4000-8000-000000000001"
		w.createPod(p)
		w.waitRunning("p")
		w.killKubelet()
		w.forceDelete("p")
		w.startKubelet()
		w.checkClean()
		const handle = "csi-b72a615138f402c7c49c2dc522c29fc29ce5d3328efaa58417343937deaa9c83"
		w.wantCalls("Publish "+handle, "Unpublish "+handle)
	})
	t.Run("h PV gone as well", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addDriver(func(d *storagev1.CSIDriver) {
			d.Spec.VolumeLifecycleModes = append(d.Spec.VolumeLifecycleModes, "Ephemeral")
		})
		w.startKubelet()
		w.createPod(inlinePod("p"))
		w.waitRunning("p")
		w.killKubelet()
		w.forceDelete("p")
		if err := os.Remove(filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumes/kubernetes.io~csi/scratch/vol_data.json")); err != nil {
			t.Fatal(err)
		}
		w.startKubelet()
		w.checkClean() // nobody knows the driver any more; the mount goes all the same
	})
}

func TestVL10SeveralPodsOneVolume(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *world {
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.startKubelet()
		for _, n := range []string{"p1", "p2", "p3"} {
			w.createPod(pod(n, "c"))
		}
		w.waitRunning("p1", "p2", "p3")
		if w.guest.count("Stage vol-1") != 1 || w.guest.count("Publish vol-1") != 3 {
			t.Errorf("calls %v", w.guest.log())
		}
		return w
	}
	end := func(w *world, pods ...string) {
		w.t.Helper()
		for _, n := range pods {
			w.deletePod(n)
		}
		w.waitGone(pods...)
		w.checkClean()
		if w.guest.count("Unstage vol-1") != 1 || w.guest.count("Detach vol-1") != 1 {
			w.t.Errorf("calls %v", w.guest.log())
		}
		if calls := w.guest.log(); calls[len(calls)-2] != "Unstage vol-1" {
			w.t.Errorf("unstage was not the last call: %v", calls)
		}
	}
	t.Run("a one goes", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.deletePod("p1")
		w.waitGone("p1")
		for _, n := range []string{"p2", "p3"} {
			if not, err := w.mounter.IsLikelyNotMountPoint(w.path(pod(n, "c"), "vol-c")); err != nil || not {
				t.Errorf("%s lost its volume: %v", n, err)
			}
		}
		end(w, "p2", "p3")
	})
	t.Run("b all go while the kubelet is down", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.killKubelet()
		for _, n := range []string{"p1", "p2", "p3"} {
			w.forceDelete(n)
		}
		w.startKubelet()
		end(w)
	})
	t.Run("c one goes and one comes", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		w.deletePod("p1")
		w.createPod(pod("p4", "c"))
		w.waitGone("p1")
		w.waitRunning("p4")
		end(w, "p2", "p3", "p4")
	})
	t.Run("d the replacement reuses the staged device", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.addVolume("c", "vol-1")
		w.startKubelet()
		w.createPod(pod("p1", "c"))
		w.waitRunning("p1")
		next := pod("p2", "c")
		next.UID = types.UID("uid-next")
		w.createPod(next)
		w.deletePod("p1")
		w.waitRunning("p2")
		if n := w.guest.count("Stage vol-1"); n != 1 {
			t.Errorf("staged %d times", n)
		}
		end(w, "p1", "p2")
	})
}

func TestSecondPodOfReadWriteOncePodIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1", func(pv *v1.PersistentVolume) {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	})
	w.startKubelet()
	w.createPod(pod("p1", "c"))
	w.waitRunning("p1")
	w.createPod(pod("p2", "c"))
	w.waitEvent(`FailedMount: MountVolume.SetUp failed for volume "pv-c" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`)
	w.deletePod("p1")
	w.waitGone("p1")
	w.waitRunning("p2")
	w.deletePod("p2")
	w.waitGone("p2")
	w.checkClean()
}

// changed closes at the next change of the volumes' state; nil while no kubelet runs.
func (n *Node) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return nil
	}
	return n.life.volumes.Changed()
}
