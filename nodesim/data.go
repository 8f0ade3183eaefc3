package nodesim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which a pod has data in its volumes.
const (
	// Data names the volumes, with commas, or * for all that come from claims: when the
	// containers start, data that is there is verified, and then written anew and synced.
	Data = "drydock.dev/data"
	// DataInterval, "1s", makes them go on verifying, writing and syncing for as long as they run.
	DataInterval = "drydock.dev/data-interval"
)

// DataCondition is a condition of pods with Data: whether all data was as it should be.
const DataCondition v1.PodConditionType = "drydock.dev/DataIntact"

// reasonData ends a container whose data is wrong.
const reasonData = "DataError"

// podData is what one pod does with the data in its volumes while its containers run.
type podData struct {
	w       *worker
	pod     *v1.Pod
	markers []*marker
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex
	rounds int   // guarded by mu: that went well
	err    error // guarded by mu: of the round that did not
}

// wantsData tells whether a pod has data in its volumes.
func wantsData(pod *v1.Pod) bool { return pod.Annotations[Data] != "" }

// beginData finds the pod's volumes and makes the first round.
func (w *worker) beginData(ctx context.Context, pod *v1.Pod) *podData {
	d := &podData{w: w, pod: pod, cancel: func() {}}
	if d.err = d.find(ctx); d.err != nil {
		return d
	}
	if d.round(ctx); d.err != nil {
		return d
	}
	every := duration(pod, DataInterval)
	if every == 0 {
		return d
	}
	ctx, d.cancel = context.WithCancel(ctx)
	d.done.Go(func() {
		for w.life.sleep(ctx, nil, every) {
			if d.round(ctx); d.failure() != nil {
				wake(w.e.wake)
				return
			}
		}
	})
	return d
}

// end stops the rounds and waits for the one under way. A nil podData does nothing.
func (d *podData) end() {
	if d != nil {
		d.cancel()
		d.done.Wait()
	}
}

func (d *podData) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// find lists the markers.
func (d *podData) find(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, n := range strings.Split(d.pod.Annotations[Data], ",") {
		wanted[strings.TrimSpace(n)] = true
	}
	for i := range d.pod.Spec.Volumes {
		v := &d.pod.Spec.Volumes[i]
		claim := claimName(d.pod, v)
		if !wanted[v.Name] && !(wanted["*"] && claim != "") {
			continue
		}
		delete(wanted, v.Name)
		inner := ""
		if claim != "" {
			c, err := d.w.client.CoreV1().PersistentVolumeClaims(d.pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("find the data in volume %s: %w", v.Name, err)
			}
			inner = c.Spec.VolumeName
		}
		path, err := PodVolumePath(d.w.c.Root, d.pod, v.Name, inner)
		if err != nil {
			return err
		}
		m := &marker{volume: v.Name, path: path, block: usesBlock(d.pod, v.Name), readOnly: readOnly(d.pod, v)}
		if !m.block {
			m.path = filepath.Join(path, markerFile)
		}
		d.markers = append(d.markers, m)
	}
	delete(wanted, "*")
	for n := range wanted {
		return fmt.Errorf("annotation %s names volume %q, which the pod does not have", Data, n)
	}
	return nil
}

// claimName is the claim behind a volume, or empty.
func claimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// readOnly tells whether no container may write to a volume.
func readOnly(pod *v1.Pod, v *v1.Volume) bool {
	if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly || v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly {
		return true
	}
	writer := false
	for _, c := range pod.Spec.Containers {
		for _, m := range c.VolumeMounts {
			writer = writer || m.Name == v.Name && !m.ReadOnly
		}
		for _, x := range c.VolumeDevices {
			writer = writer || x.Name == v.Name
		}
	}
	return !writer
}

// round verifies and writes in every volume, and tells by an event what came of the first round and of one that failed.
func (d *podData) round(ctx context.Context) {
	var said []string
	var errs []error
	for _, m := range d.markers {
		word, err := d.visit(ctx, m)
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", m.volume, err))
		}
		said = append(said, m.volume+": "+word)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = errors.Join(errs...); ctx.Err() != nil {
		d.err = nil // the pod ends
		return
	}
	if d.err != nil {
		d.w.recorder.Event(d.pod, v1.EventTypeWarning, "DataWrong", d.err.Error())
		return
	}
	if d.rounds++; d.rounds == 1 {
		d.w.recorder.Event(d.pod, v1.EventTypeNormal, "DataWritten", strings.Join(said, "; "))
	}
}

// visit is a round in one volume.
func (d *podData) visit(ctx context.Context, m *marker) (string, error) {
	var n uint64
	err := d.w.host.Kernel(ctx, "read", m.volume, func() (err error) {
		n, err = m.verify()
		if errors.Is(err, errNoData) && !m.readOnly {
			return nil
		}
		return err
	})
	if err != nil || m.readOnly {
		return fmt.Sprintf("write %d verified", n), err
	}
	err = d.w.host.Kernel(ctx, "write", m.volume, func() error {
		return m.write(n, func(f *os.File) error { return d.w.host.Kernel(ctx, "fsync", m.volume, f.Sync) })
	})
	if n == 0 {
		return "first write synced", err
	}
	return fmt.Sprintf("write %d verified, write %d synced", n, n+1), err
}

// condition of the pod, at the time now; false if the pod has no data.
func (d *podData) condition(now time.Time, generation int64) (v1.PodCondition, bool) {
	if d == nil {
		return v1.PodCondition{}, false
	}
	c := v1.PodCondition{Type: DataCondition, Status: v1.ConditionTrue, Reason: "Verified", LastTransitionTime: metav1.NewTime(now), ObservedGeneration: generation}
	if err := d.failure(); err != nil {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonData, err.Error()
	}
	return c, true
}
