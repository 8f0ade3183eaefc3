package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The wait after a failed pod, doubling with each failure since the last success.
const (
	firstWait = 10 * time.Second
	lastWait  = 10 * time.Minute
)

// failures are those of a job since its last success.
type failures struct {
	count int
	last  time.Time
}

// with adds pods that have ended since.
func (f failures) with(succeeded, failed []*corev1.Pod) failures {
	var success time.Time
	for _, p := range succeeded {
		if t := ended(p); t.After(success) {
			success = t
		}
	}
	if len(succeeded) > 0 {
		f = failures{}
	}
	for _, p := range failed {
		if t := ended(p); len(succeeded) == 0 || t.After(success) {
			f.count++
			if t.After(f.last) {
				f.last = t
			}
		}
	}
	return f
}

// left is how long no pod is made.
func (f failures) left(now time.Time) time.Duration {
	if f.count == 0 {
		return 0
	}
	wait := firstWait
	for range min(f.count-1, 10) {
		wait = min(wait*2, lastWait)
	}
	return max(0, wait-now.Sub(f.last))
}

// ended is when a pod came to its end, as well as its status tells.
func ended(p *corev1.Pod) time.Time {
	var last time.Time
	known := len(p.Status.ContainerStatuses) > 0
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			known = false
			break
		}
		if t := s.State.Terminated.FinishedAt.Time; t.After(last) {
			last = t
		}
	}
	if known {
		return last
	}
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero()
	})
	switch {
	case i >= 0:
		return p.Status.Conditions[i].LastTransitionTime.Time
	case p.DeletionTimestamp != nil:
		return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	return p.CreationTimestamp.Time
}

func (c *Controller) waiting(key types.NamespacedName) failures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits[key]
}

func (c *Controller) wait(key types.NamespacedName, f failures) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits[key] = f
}

// calm forgets the failures of a job that has ended.
func (c *Controller) calm(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waits, key)
}
