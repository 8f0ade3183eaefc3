package nodesim

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"drydock.dev/drydock/nodesim/volumemanager"
)

const canExpand = csipb.NodeServiceCapability_RPC_EXPAND_VOLUME

// grow leaves claim and PV as a resizer does that has enlarged the volume and waits for the node.
func (w *world) grow(claim, size string) {
	w.t.Helper()
	pv, err := w.client.CoreV1().PersistentVolumes().Get(w.ctx, "pv-"+claim, metav1.GetOptions{})
	w.must(pv, err)
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	w.must(w.client.CoreV1().PersistentVolumes().Update(w.ctx, pv, metav1.UpdateOptions{}))
	w.changeClaim(claim, func(c *v1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
		c.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	})
}

func (w *world) changeClaim(name string, change func(*v1.PersistentVolumeClaim)) {
	w.t.Helper()
	c := w.claim(name)
	change(c)
	w.must(w.client.CoreV1().PersistentVolumeClaims(namespace).Update(w.ctx, c, metav1.UpdateOptions{}))
}

func (w *world) claim(name string) *v1.PersistentVolumeClaim {
	w.t.Helper()
	c, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Get(w.ctx, name, metav1.GetOptions{})
	w.must(c, err)
	return c
}

// sized waits for a claim's capacity, and wants no trace of the expansion on it but what was allocated.
func (w *world) sized(name, size string) {
	w.t.Helper()
	w.claimBecomes(name, func(s v1.PersistentVolumeClaimStatus) bool { return s.Capacity.Storage().String() == size })
	s := w.claim(name).Status
	if len(s.AllocatedResourceStatuses) != 0 || len(s.Conditions) != 0 || s.AllocatedResources.Storage().String() != size {
		w.t.Errorf("claim status %+v", s)
	}
}

// claimBecomes waits for a claim's status; the lab's time passes meanwhile, so that pods are synced anew.
func (w *world) claimBecomes(name string, ok func(v1.PersistentVolumeClaimStatus) bool) {
	w.t.Helper()
	w.eventually("claim "+name, func() bool { return ok(w.claim(name).Status) })
}

// eventually looks again and again while the lab's time passes.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for i := 0; !ok(); i++ {
		if w.ctx.Err() != nil {
			w.t.Fatalf("%s did not come about: %+v\n%s", what, w.claims(), w.describe())
		}
		if i%15 == 14 { // in small steps: a call may take two minutes, and a busy machine needs some time for it
			advance(w, 10*time.Second)
		}
		w.pause()
	}
}

func (w *world) claims() []v1.PersistentVolumeClaimStatus {
	l, _ := w.client.CoreV1().PersistentVolumeClaims(namespace).List(w.ctx, metav1.ListOptions{})
	var out []v1.PersistentVolumeClaimStatus
	for _, c := range l.Items {
		out = append(out, c.Status)
	}
	return out
}

func (w *world) eventOn(reason, kind string) {
	w.t.Helper()
	w.watchUntil(reason+" on "+kind, "events", func() bool {
		return slices.ContainsFunc(w.events(), func(e v1.Event) bool { return e.Reason == reason && e.InvolvedObject.Kind == kind })
	})
}

func newGrowingWorld(t *testing.T, caps ...csipb.NodeServiceCapability_RPC_Type) *world {
	t.Helper()
	w := newWorld(t)
	w.guest.caps = append(w.guest.caps, caps...)
	return w
}

// newUsedWorld has a driver that can expand, and a pod p that uses claim c, volume vol-1.
func newUsedWorld(t *testing.T) *world {
	t.Helper()
	w := newGrowingWorld(t, canExpand)
	w.addVolume("c", "vol-1")
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	return w
}

func TestExpandDuringMount(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t, canExpand)
	w.addVolume("c", "vol-1")
	w.grow("c", "2Gi")
	w.startKubelet()
	p := pod("p", "c")
	w.createPod(p)
	w.waitRunning("p")
	w.sized("c", "2Gi")
	w.guest.mu.Lock()
	r, s := w.guest.grown[0], w.guest.stages[0]
	w.guest.mu.Unlock()
	if r.VolumePath != w.path(p, "vol-c") || r.StagingTargetPath != s.StagingTargetPath || r.CapacityRange.RequiredBytes != 2<<30 || r.VolumeCapability.GetMount().GetFsType() != "ext4" {
		t.Errorf("request %+v", r)
	}
	w.eventOn("FileSystemResizeSuccessful", "Pod")
	w.eventOn("FileSystemResizeSuccessful", "PersistentVolumeClaim")
	w.wantCalls("Stage vol-1", "Publish vol-1", "Expand vol-1")
}

func TestExpandOnline(t *testing.T) {
	t.Parallel()
	for kind, block := range map[string]bool{"filesystem": false, "block": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newGrowingWorld(t, canExpand)
			change, thePod := func(*v1.PersistentVolume) {}, pod("p", "c")
			if block {
				change, thePod = asBlock, blockPod("p", "c")
			}
			w.addVolume("c", "vol-1", change)
			w.startKubelet()
			w.createPod(thePod)
			w.waitRunning("p")
			w.grow("c", "3Gi")
			w.sized("c", "3Gi")
			w.guest.mu.Lock()
			r, target := w.guest.grown[0], w.guest.pubs[0].TargetPath
			w.guest.mu.Unlock()
			if r.VolumePath != target || r.StagingTargetPath == "" || (r.VolumeCapability.GetBlock() != nil) != block {
				t.Errorf("request %+v, published at %s", r, target)
			}
			cut := slices.ContainsFunc(w.eventLines(), func(s string) bool { return strings.Contains(s, "DeadlineExceeded") })
			if n := w.guest.count("Expand vol-1"); n != 1 && !cut { // one that ran out of the time that is made to pass is done again
				t.Errorf("%d expansions", n)
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
}

// The size that is wanted is read with the pod's volumes, not before.
func TestExpandOnlyWhenThePodIsSynced(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t, canExpand)
	w.addVolume("c", "vol-1")
	var reads atomic.Int32 // of the claim
	w.client.PrependReactor("get", "persistentvolumeclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		reads.Add(1)
		return false, nil, nil
	})
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	for gib := 3; ; gib++ {
		size, read, expanded := fmt.Sprintf("%dGi", gib), reads.Load(), w.guest.count("Expand vol-1")
		w.grow("c", size)                 // reads it once
		w.node.life.volumes.NodeChanged() // a pass of the reconciler alone
		w.pause()
		n := w.guest.count("Expand vol-1") - expanded
		alone := reads.Load() == read+1
		if alone && n != 0 {
			t.Errorf("%d expansions before the pod was synced", n)
		}
		w.sized("c", size)
		if alone {
			return
		} // else the pod was synced meanwhile, for what was written of it when it came to run
		if gib > 50 {
			t.Fatal("the pod is synced all the time")
		}
	}
}

func TestExpandWaitsForTheController(t *testing.T) {
	t.Parallel()
	w := newUsedWorld(t)
	w.grow("c", "3Gi")
	w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
		c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimControllerResizeInProgress
	})
	w.eventually("a try that is not allowed", func() bool {
		return slices.ContainsFunc(w.node.State(), func(v volumemanager.VolumeState) bool {
			return slices.ContainsFunc(v.Operations, func(s string) bool { return strings.Contains(s, "volume_fs_resize") })
		})
	})
	if n := w.guest.count("Expand vol-1"); n != 0 {
		t.Errorf("%d expansions that the claim does not allow", n)
	}
	w.grow("c", "3Gi")
	w.sized("c", "3Gi")
	if slices.ContainsFunc(w.eventLines(), func(s string) bool {
		return strings.Contains(s, "VolumeResizeFailed") && !strings.Contains(s, "DeadlineExceeded") // time is made to pass fast
	}) {
		t.Errorf("waiting is no failure: %v", w.eventLines())
	}
}

func TestExpandFailures(t *testing.T) {
	t.Parallel()
	nodeError := func(s v1.PersistentVolumeClaimStatus) bool {
		return slices.ContainsFunc(s.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimNodeResizeError && c.Status == v1.ConditionTrue
		})
	}
	is := func(want v1.ClaimResourceStatus) func(v1.PersistentVolumeClaimStatus) bool {
		return func(s v1.PersistentVolumeClaimStatus) bool {
			return nodeError(s) && s.AllocatedResourceStatuses[v1.ResourceStorage] == want
		}
	}
	for name, c := range map[string]struct {
		code codes.Code
		want v1.ClaimResourceStatus
	}{
		"final":                          {codes.Internal, v1.PersistentVolumeClaimNodeResizeInProgress},
		"uncertain counts as final":      {codes.DeadlineExceeded, v1.PersistentVolumeClaimNodeResizeInProgress},
		"infeasible: invalid argument":   {codes.InvalidArgument, v1.PersistentVolumeClaimNodeResizeInfeasible},
		"infeasible: out of range":       {codes.OutOfRange, v1.PersistentVolumeClaimNodeResizeInfeasible},
		"infeasible: the volume is gone": {codes.NotFound, v1.PersistentVolumeClaimNodeResizeInfeasible},
	} {
		t.Run(name+", online", func(t *testing.T) {
			t.Parallel()
			w := newUsedWorld(t)
			w.guest.set(failing("Expand", c.code, -1), nil)
			w.grow("c", "3Gi")
			w.claimBecomes("c", is(c.want))
			w.waitEvent("VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume \"pv-c\" : Expander.NodeExpand failed to expand the volume")
			if s := w.claim("c").Status; s.Capacity.Storage().String() != "1Gi" {
				t.Errorf("claim %+v", s)
			}
		})
		t.Run(name+", during mount", func(t *testing.T) {
			t.Parallel()
			w := newGrowingWorld(t, canExpand)
			w.hurry()
			w.addVolume("c", "vol-1")
			w.grow("c", "3Gi")
			w.guest.set(failing("Expand", c.code, 1), nil)
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitEvent("FailedMount: MountVolume.Setup failed while expanding volume for volume \"pv-c\" : ")
			// The next try of an infeasible expansion does without it; of any other it expands.
			w.waitRunning("p")
			want, s := "3Gi", v1.PersistentVolumeClaimStatus{}
			if c.want == v1.PersistentVolumeClaimNodeResizeInfeasible {
				want = "1Gi"
			}
			if s = w.claim("c").Status; s.Capacity.Storage().String() != want {
				t.Errorf("claim %+v", s)
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()
		})
	}
	t.Run("in use: mounted as it is, and not tried again here", func(t *testing.T) {
		t.Parallel()
		w := newGrowingWorld(t, canExpand)
		w.addVolume("c", "vol-1")
		w.grow("c", "3Gi")
		w.guest.set(failing("Expand", codes.FailedPrecondition, -1), nil)
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitRunning("p")
		if s := w.claim("c").Status; !is(v1.PersistentVolumeClaimNodeResizeInProgress)(s) {
			t.Errorf("claim %+v", s)
		}
		advance(w, 10*time.Minute)
		w.waitState("synced again", func(string, string) bool { return true })
		if n := w.guest.count("Expand vol-1"); n != 1 {
			t.Errorf("%d expansions of a volume in use", n)
		}
		// Detached and attached again it is tried again.
		w.guest.set(nil, nil)
		w.deletePod("p")
		w.waitGone("p")
		w.waitDetached()
		w.createPod(pod("q", "c"))
		w.waitRunning("q")
		w.sized("c", "3Gi")
	})
	t.Run("the user has asked for another size since", func(t *testing.T) {
		t.Parallel()
		w := newUsedWorld(t)
		w.guest.set(failing("Expand", codes.Internal, -1), nil)
		w.grow("c", "3Gi")
		w.claimBecomes("c", nodeError)
		w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("2Gi")
		})
		w.claimBecomes("c", is(v1.PersistentVolumeClaimNodeResizeInfeasible))
	})
	t.Run("the driver is away", func(t *testing.T) {
		t.Parallel()
		w := newUsedWorld(t)
		w.waitTold(1, true)
		w.guest.stop()
		w.watchUntil("driver off the node", "nodes", func() bool { return w.nodeObject().Annotations["csi.volume.kubernetes.io/nodeid"] == "" })
		w.grow("c", "3Gi")
		w.eventually("a failure", func() bool {
			return slices.ContainsFunc(w.eventLines(), func(s string) bool { return strings.HasPrefix(s, "VolumeResizeFailed: ") })
		})
		if s := w.claim("c").Status; nodeError(s) {
			t.Errorf("a driver that is away is no failure of the expansion: %+v", s)
		}
		w.guest.start(t, KubeletRoot(w.root))
		w.sized("c", "3Gi")
	})
}

func TestExpandReadOnly(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t, canExpand)
	w.addVolume("c", "vol-1")
	w.grow("c", "3Gi")
	w.startKubelet()
	p := pod("p", "c")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.createPod(p)
	w.waitRunning("p")
	w.waitEvent(`FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv-c" requested read-only file system`)
	w.eventOn("FileSystemResizeFailed", "Pod")
	w.eventOn("FileSystemResizeFailed", "PersistentVolumeClaim")
	w.wantCalls("Stage vol-1", "Publish vol-1")
}

// A shared filesystem is expanded on each node, also after the claim has its size.
func TestExpandSharedVolumeAgainOnThisNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotated bool
		want      int
	}{"each node": {false, 1}, "the driver needs no nodes": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGrowingWorld(t, canExpand)
			w.addVolume("c", "vol-1", func(pv *v1.PersistentVolume) { pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany} })
			w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
			})
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitRunning("p")
			w.grow("c", "3Gi")
			w.changeClaim("c", func(pvc *v1.PersistentVolumeClaim) { // another node has been quicker
				pvc.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("3Gi")}
				pvc.Status.AllocatedResourceStatuses, pvc.Status.Conditions = nil, nil
				if c.annotated {
					metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, "volume.kubernetes.io/node-expansion-not-required", "true")
				}
			})
			w.eventually("the new size on record", func() bool {
				return slices.ContainsFunc(w.node.State(), func(v volumemanager.VolumeState) bool { return v.Size == 3<<30 })
			})
			if n := w.guest.count("Expand vol-1"); n != c.want {
				t.Errorf("%d expansions, want %d", n, c.want)
			}
		})
	}
}

func TestExpandWithoutTheDriversHelp(t *testing.T) {
	t.Parallel()
	t.Run("legacy resizer", func(t *testing.T) {
		t.Parallel()
		w := newGrowingWorld(t)
		w.addVolume("c", "vol-1")
		w.grow("c", "3Gi")
		w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
			c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		})
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitRunning("p")
	})
	t.Run("legacy resizer, able driver", func(t *testing.T) {
		t.Parallel()
		w := newGrowingWorld(t, canExpand)
		w.addVolume("c", "vol-1")
		w.grow("c", "3Gi")
		w.changeClaim("c", func(c *v1.PersistentVolumeClaim) {
			c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		})
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitRunning("p")
		if s := w.claim("c").Status; s.Capacity.Storage().String() != "3Gi" || len(s.Conditions) != 0 {
			t.Errorf("claim %+v", s)
		}
	})
	t.Run("the claim waits for a node whose driver cannot", func(t *testing.T) {
		t.Parallel()
		w := newGrowingWorld(t)
		w.addVolume("c", "vol-1")
		w.grow("c", "3Gi")
		w.startKubelet()
		w.createPod(pod("p", "c"))
		w.waitEvent(`FailedMount: MountVolume.Setup failed while expanding volume for volume "pv-c" : NodeExpand is not supported by the CSI driver blk.sim.example.com`)
		w.deletePod("p")
		w.waitGone("p")
		w.checkClean()
	})
}
