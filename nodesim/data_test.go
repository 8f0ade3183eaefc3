package nodesim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMarker(t *testing.T) {
	for _, block := range []bool{false, true} {
		m := &marker{volume: "v", path: filepath.Join(t.TempDir(), "m"), block: block}
		if block {
			f, err := os.Create(m.path)
			if err = errors.Join(err, f.Truncate(4<<20), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.verify(); !errors.Is(err, errNoData) {
			t.Errorf("of a blank volume: %v", err)
		}
		// Until all of the first write is on disk, a crash leaves a volume that holds nothing.
		if err := m.write(0, func(*os.File) error { return errLost }); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		if _, err := m.verify(); !errors.Is(err, errNoData) {
			t.Errorf("after a first write that could not be synced: %v", err)
		}
		for n := range uint64(3) {
			if err := m.write(n, (*os.File).Sync); err != nil {
				t.Fatal(err)
			}
			if got, err := m.verify(); got != n+1 || err != nil {
				t.Errorf("after write %d: %d, %v", n+1, got, err)
			}
		}
		old := *m
		harm := func(at int64) {
			f, err := os.OpenFile(m.path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte("x"), m.offset()+at); err != nil {
				t.Fatal(err)
			}
		}
		harm(markerSlot + 5000) // write 3 lies in the second slot
		if n, err := m.verify(); n != 2 || !errors.Is(err, errLost) {
			t.Errorf("a torn write that was synced: %d, %v", n, err)
		}
		m.last = 0 // as another life, which does not know what was synced
		if n, err := m.verify(); n != 2 || err != nil {
			t.Errorf("a torn write: %d, %v", n, err)
		}
		harm(5000)
		if _, err := m.verify(); !errors.Is(err, errDamaged) {
			t.Errorf("two torn writes: %v", err)
		}
		if !block {
			os.Remove(m.path)
			if _, err := old.verify(); !errors.Is(err, errLost) {
				t.Errorf("a file that is gone: %v", err)
			}
		}
	}
}

// TestDataOfPods follows a pod's data through its own life, another pod's, and harm.
func TestDataOfPods(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	p := pod("p", "a")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Annotations = map[string]string{Data: "*", DataInterval: "1s"}
	w.createPod(p)
	w.waitRunning("p")
	w.waitEvent("DataWritten: vol-a: first write synced")
	file := filepath.Join(w.path(p, "vol-a"), markerFile)
	m := &marker{path: file}
	for n := uint64(1); n < 3; {
		advance(w, time.Second)
		w.pause()
		n, _ = m.verify()
	}
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.watchUntil("pod failed", "pods", func() bool { advance(w, time.Second); return w.podPhase("p") == v1.PodFailed })
	w.waitEvent("DataWrong: volume vol-a: data is damaged")
	got, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, "p", metav1.GetOptions{})
	w.must(got, err)
	s := got.Status.ContainerStatuses[0].State.Terminated
	if s == nil || s.Reason != reasonData || s.ExitCode != 1 || s.Message == "" {
		t.Errorf("container status %+v", got.Status.ContainerStatuses[0].State)
	}
	for _, c := range got.Status.Conditions {
		if c.Type == DataCondition && c.Status != v1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
	}
	w.forceDelete("p")
	w.checkClean()
}

// TestDataOfAnotherPod is found by the next pod that uses the volume.
func TestDataOfAnotherPod(t *testing.T) {
	w := newWorld(t)
	w.addVolume("a", "h1")
	w.startKubelet()
	first, second := pod("p", "a"), pod("q", "a")
	first.Annotations = map[string]string{Data: "vol-a"}
	second.Annotations = map[string]string{Data: "vol-a"}
	w.createPod(first)
	w.waitEvent("DataWritten: vol-a: first write synced")
	w.createPod(second)
	w.waitRunning("q")
	// The simulated driver of these tests has a directory for each pod: nothing is there, which only a reader minds.
	third := pod("r", "a")
	third.Annotations = map[string]string{Data: "vol-a"}
	third.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	w.createPod(third)
	w.waitEvent("DataWrong: volume vol-a: there is no data")
	for _, n := range []string{"p", "q", "r"} {
		w.forceDelete(n)
	}
	w.checkClean()
}
