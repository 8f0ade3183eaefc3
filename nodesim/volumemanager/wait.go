package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// waitLimit bounds one wait of a pod's worker for its volumes.
const waitLimit = 2*time.Minute + 3*time.Second

type attachedVolume = v1.AttachedVolume

// LimitError says that a pod can't have its volumes because no more fit on the node.
type LimitError struct{ err error }

func (e *LimitError) Error() string {
	return "Node has reached its volume attachment limit, rejecting pod. " + e.err.Error()
}
func (e *LimitError) Unwrap() error { return e.err }

// WaitForAttachAndMount waits until every volume that a container of the pod uses is
// mounted. An error of processing the pod's volumes ends it at once; otherwise it ends
// after 2m3s, with an error for which IsTimeout is true.
func (m *Manager) WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error {
	expected := namesIn(pod)
	if len(expected) == 0 {
		return nil
	}
	m.reprocess(pod)
	err := m.wait(ctx, pod.UID, func() bool { return len(m.unmounted(pod.UID, expected)) == 0 })
	if err == nil {
		return nil
	}
	unmounted := m.unmounted(pod.UID, expected)
	if len(unmounted) == 0 {
		return nil
	}
	var unattached []string
	exhausted := false
	for _, w := range m.unattached(pod.UID) {
		unattached = append(unattached, w.Outer...)
		if a, _ := m.plugins.Attachable(w.Spec); a != nil && ctx.Err() == nil && a.Exhausted(ctx, w.Spec) {
			exhausted = true
		}
	}
	slices.Sort(unattached)
	err = fmt.Errorf("unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %w",
		unmounted, unattached, m.notDesired(pod.UID, expected), err)
	if exhausted {
		return &LimitError{err}
	}
	return err
}

// WaitForUnmount waits until nothing of the pod is or may be mounted, nor is being
// mounted, for 2m3s at most. Nothing will be mounted for the pod after it. While
// nothing may be unmounted nothing is known to be unmounted either.
func (m *Manager) WaitForUnmount(ctx context.Context, uid types.UID) error {
	m.touchPod(uid)
	err := m.wait(ctx, uid, func() bool { return m.ready() && !m.PossiblyMounted(uid) })
	if err == nil {
		return nil
	}
	mounted, uncertain := m.actual.podMounts(uid)
	left := append(mounted, uncertain...)
	if len(left) == 0 {
		return err
	}
	slices.Sort(left)
	var why []string
	for _, name := range left {
		why = append(why, m.pending.describe(name)...)
	}
	if len(why) > 0 {
		return fmt.Errorf("mounted volumes=%v: %w (%s)", left, err, strings.Join(why, "; "))
	}
	return fmt.Errorf("mounted volumes=%v: %w", left, err)
}

// wait blocks until done, a stored error of the pod, the limit, or the end of ctx.
func (m *Manager) wait(ctx context.Context, uid types.UID, done func() bool) error {
	over := func() (bool, error) {
		if errs := m.desired.popErrors(uid); len(errs) > 0 {
			return true, errors.New(strings.Join(errs, "; "))
		}
		return done(), nil
	}
	if over, err := over(); over { // as with most syncs of a pod
		return err
	}
	ctx, cancel := volumeplugin.WithTimeout(ctx, m.clock, waitLimit)
	defer cancel()
	bell, leave := m.waits.join(uid)
	defer leave()
	for {
		next := bell.next()
		if over, err := over(); over {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// namesIn are the pod's names for the volumes that its containers use, sorted.
func namesIn(pod *v1.Pod) []string {
	use := usesOf(pod)
	var out []string
	for _, v := range pod.Spec.Volumes {
		if use.mounts[v.Name] || use.devices[v.Name] {
			out = append(out, v.Name)
		}
	}
	slices.Sort(out)
	return out
}

// unmounted picks the names whose volume is not mounted for the pod; uncertain does not count.
func (m *Manager) unmounted(uid types.UID, expected []string) []string {
	left := slices.Clone(expected)
	for _, w := range m.desired.pod(uid) {
		if state, _, _ := m.actual.pair(w.Volume, uid); state == Mounted {
			left = slices.DeleteFunc(left, func(n string) bool { return slices.Contains(w.Outer, n) })
		}
	}
	return left
}

func (m *Manager) unattached(uid types.UID) []wanted {
	var out []wanted
	for _, w := range m.desired.pod(uid) {
		if _, ok := m.actual.get(w.Volume); !ok && w.Attachable {
			out = append(out, w)
		}
	}
	return out
}

func (m *Manager) notDesired(uid types.UID, expected []string) []string {
	left := slices.Clone(expected)
	for _, w := range m.desired.pod(uid) {
		left = slices.DeleteFunc(left, func(n string) bool { return slices.Contains(w.Outer, n) })
	}
	return left
}

// PossiblyMounted tells whether anything of the pod is, may be or may come to be mounted.
func (m *Manager) PossiblyMounted(uid types.UID) bool {
	if len(m.desired.pod(uid)) > 0 || m.pending.busy(uid) || m.damaged(uid) {
		return true
	}
	mounted, uncertain := m.actual.podMounts(uid)
	return len(mounted)+len(uncertain) > 0
}

// InUse is what node.status.volumesInUse should say: every attachable volume that is
// wanted or there, and every one that may be behind a directory that tells nothing. It is sorted.
func (m *Manager) InUse() []UniqueName {
	out := append(m.desired.attachables(), m.actual.attachables()...)
	out = append(out, m.mayBeDamaged(out)...)
	slices.Sort(out)
	return slices.Compact(out)
}

// MarkReported tells the manager what node.status.volumesInUse lists now.
func (m *Manager) MarkReported(names []UniqueName) { m.desired.markReported(names) }
