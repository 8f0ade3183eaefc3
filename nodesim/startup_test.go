package nodesim

import (
	"errors"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

// TestEndingPodKeepsItsVolumesAtStart: a pod that was ending when the kubelet went may still run containers. The next
// kubelet brings its volumes up again, and takes them down only when the containers have ended.
func TestEndingPodKeepsItsVolumesAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	p.Annotations = map[string]string{StopDelay: "20s"}
	w.createPod(p)
	w.waitRunning("p")
	w.deletePod("p")
	w.waitEvent("Killing: Stopping container app")
	w.killKubelet()
	w.startKubelet()
	w.waitCall("Publish h1", 2)
	w.waitState("up again", func(device, mount string) bool { return device == "GloballyMounted" && mount == "Mounted" })
	if n := w.guest.count("Unpublish h1"); n > 0 {
		t.Errorf("unpublished under running containers: %v", w.guest.log())
	}
	advance(w, 40*time.Second)
	w.waitGone("p")
	w.checkClean()
	w.checkOrder()
}

// TestPauseAfterAFailedSync: a pod that could not be synced is synced again after ten seconds, and up to half as much more.
func TestPauseAfterAFailedSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurryBy(10)
	var mu sync.Mutex
	var read []time.Time // by lookups of the claim
	done := make(chan struct{})
	w.client.PrependReactor("get", "persistentvolumeclaims", func(ktesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if read = append(read, w.lab.Clock.Now()); len(read) == 5 {
			close(done)
		}
		return true, nil, errors.New("no")
	})
	w.startKubelet()
	w.createPod(pod("p", "a"))
	select {
	case <-done:
	case <-w.ctx.Done():
		t.Fatalf("it was looked up %d times", len(read))
	}
	mu.Lock()
	defer mu.Unlock()
	// The first may come before the worker's first sync, and each a while after the sync that it is for has begun.
	if all := read[4].Sub(read[1]); all < 8*time.Second {
		t.Errorf("three more lookups within %s: %v", all, read)
	}
}

// TestNotReadyBeforeCSINode: a node is not ready until its CSINode is there.
func TestNotReadyBeforeCSINode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hurry()
	var mu sync.Mutex
	broken := true
	w.client.PrependReactor("create", "csinodes", func(ktesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			return true, nil, errors.New("not now")
		}
		return false, nil, nil
	})
	ready := func() v1.NodeCondition {
		for _, c := range w.nodeObject().Status.Conditions {
			if c.Type == v1.NodeReady {
				return c
			}
		}
		return v1.NodeCondition{}
	}
	w.startKubelet()
	w.watchUntil("node", "nodes", func() bool { return ready().Status != "" })
	if c := ready(); c.Status != v1.ConditionFalse || c.Message != "kubelet is starting: CSINode is not yet initialized" {
		t.Errorf("condition %+v", c)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	w.watchUntil("ready", "nodes", func() bool { return ready().Status == v1.ConditionTrue })
	if _, err := w.client.StorageV1().CSINodes().Get(w.ctx, nodeName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
