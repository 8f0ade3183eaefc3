package nodesim

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// A call of the driver that does not end is given up after two minutes, and is uncertain then.
func TestADriversCallTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.addVolume("c", "vol-1")
	hang, entered := make(chan struct{}), make(chan struct{}, 100)
	w.guest.set(func(call string) error {
		if strings.HasPrefix(call, "Stage") {
			entered <- struct{}{}
			<-hang
		}
		return nil
	}, nil)
	w.startKubelet()
	w.waitTold(1, true)
	w.createPod(pod("p", "c"))
	<-entered
	advance(w, 80*time.Second) // real time passes as well, more of it on a busy machine
	w.pause()
	for _, e := range w.eventLines() {
		if strings.Contains(e, "MountDevice failed") {
			t.Errorf("given up before two minutes: %s", e)
		}
	}
	advance(w, 41*time.Second)
	w.waitEvent("FailedMount: MountVolume.MountDevice failed for volume \"pv-c\" : rpc error: code = DeadlineExceeded")
	w.waitState("uncertain", func(device, _ string) bool { return device == "Uncertain" })
	close(hang)
	w.hurry()
	w.waitRunning("p")
}

// TestNodeGetInfoTimesOut: a driver that does not say who the node is within two minutes is
// refused and forgotten, and asked again.
func TestNodeGetInfoTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang, entered := make(chan struct{}), make(chan struct{}, 100)
	w.guest.who = func() error { // no kubelet has asked yet
		entered <- struct{}{}
		<-hang
		return nil
	}
	w.startKubelet()
	<-entered
	advance(w, 80*time.Second) // real time passes as well, more of it on a busy machine
	w.pause()
	if n := w.guest.toldCount(false); n > 0 {
		t.Errorf("given up before two minutes: %v", w.guest.told)
	}
	advance(w, 41*time.Second)
	w.waitTold(1, false)
	if s := w.guest.told[0].Error; !strings.Contains(s, "plugin registration failed with err: rpc error: code = DeadlineExceeded") {
		t.Errorf("the driver is told %q", s)
	}
	if id := w.nodeObject().Annotations["csi.volume.kubernetes.io/nodeid"]; id != "" {
		t.Errorf("the node has the id %s", id)
	}
	close(hang) // half a second later it is asked again
	w.waitTold(1, true)
}

func TestLifecycleModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		modes  []storagev1.VolumeLifecycleMode // nil: there is no CSIDriver
		inline bool
		want   string
	}{
		"inline without a CSIDriver":          {nil, true, `volume mode "Ephemeral" not supported by driver blk.sim.example.com (no CSIDriver object)`},
		"inline with a persistent driver":     {[]storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}, true, `volume mode "Ephemeral" not supported by driver blk.sim.example.com (only supports ["Persistent"])`},
		"persistent with an ephemeral driver": {[]storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, false, `volume mode "Persistent" not supported by driver blk.sim.example.com (only supports ["Ephemeral"])`},
		"persistent without a CSIDriver":      {nil, false, ""},
		"both":                                {[]storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.modes != nil {
				w.addDriver(func(d *storagev1.CSIDriver) { d.Spec.VolumeLifecycleModes = c.modes })
			}
			var p *v1.Pod
			if c.inline {
				p = inlinePod("p")
			} else {
				w.addVolume("c", "vol-1")
				p = pod("p", "c")
			}
			w.startKubelet()
			w.createPod(p)
			if c.want == "" {
				w.waitRunning("p")
				return
			}
			w.waitEvent(c.want)
			if w.podPhase("p") == v1.PodRunning {
				t.Error("the pod runs")
			}
		})
	}
}
