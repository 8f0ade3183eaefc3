package nodesim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"drydock.dev/drydock/nodesim/volumemanager"
)

// Pauses of a pod's worker, each up to half as long again.
const (
	pauseResync = time.Minute
	pauseError  = 10 * time.Second
	resyncBeat  = time.Second // on which resyncs fall
)

// podSeen takes a pod from the informer.
func (l *life) podSeen(p *v1.Pod) {
	e, isNew, relevant := l.pods.seen(p)
	if isNew {
		w := &worker{life: l, e: e, uid: p.UID, log: l.log.With().Str("pod", p.Namespace+"/"+p.Name).Logger()}
		l.workers.Go(func() { w.run(l.ctx) })
	}
	if relevant {
		wake(e.wake)
		l.volumes.PodChanged(p.UID)
	}
}

// podGone takes from the informer that a pod's object is gone. Its volumes are taken down all the same.
func (l *life) podGone(p *v1.Pod) {
	if e := l.pods.gone(p.UID); e != nil {
		wake(e.wake)
		l.volumes.PodChanged(p.UID)
	}
}

// worker carries one pod from its first sight to its end.
type worker struct {
	*life
	e       *entry
	uid     types.UID
	log     logger
	runtime containers
	dataRun time.Time     // the start of the containers that data belongs to
	data    *podData      // nil while the containers do nothing with data
	written *v1.PodStatus // what the API was last told, or had at first
}

func (w *worker) run(ctx context.Context) {
	w.runtime.restore(w.pods.view(w.e).pod, w.bootID, w.clock.Now())
	defer func() { w.data.end() }()
	for ctx.Err() == nil {
		v := w.pods.view(w.e)
		var pause time.Duration
		switch v.phase {
		case syncing:
			pause = w.sync(ctx, v.pod)
		case terminating:
			w.stopContainers(ctx, v)
			continue
		case terminated:
			pause = w.takeDown(ctx, v)
		case finished:
			if w.finish(ctx, v) {
				return
			}
			pause = pauseResync
		}
		if w.pods.view(w.e).phase == v.phase {
			w.sleep(ctx, w.e.wake, pause)
		}
	}
}

// sync brings the pod's volumes and containers up. It returns when it is to be done again.
func (w *worker) sync(ctx context.Context, pod *v1.Pod) time.Duration {
	for _, dir := range []string{w.layout.PodVolumes(w.uid), w.layout.PodPlugin(w.uid, "", "")} { // the pod's own is above both
		if err := os.MkdirAll(dir, 0o750); err != nil {
			w.log.Error().Err(err).Msg("make pod directory")
			return jittered(pauseError)
		}
	}
	w.point(pointPodDirs)
	if w.expire(pod) {
		return 0
	}
	told := w.tellAside(ctx, pod)
	err := w.awaitVolumes(ctx, pod)
	<-told
	var limit *volumemanager.LimitError
	switch {
	case w.pods.view(w.e).phase != syncing || ctx.Err() != nil:
		return 0
	case errors.As(err, &limit):
		w.runtime.reject("VolumeAttachmentLimitExceeded", limit.Error())
		w.tell(ctx, pod)
		w.advanceTo(terminating)
		return 0
	case err != nil:
		if !volumemanager.IsTimeout(err) {
			w.recorder.Event(pod, v1.EventTypeWarning, "FailedMount", fmt.Sprintf("Unable to attach or mount volumes: %v", err))
		}
		w.log.Warn().Err(err).Msg("volumes are not up")
		return jittered(pauseError)
	}
	w.point(pointVolumesUp)
	if err := w.prepareMounts(ctx, pod); err != nil {
		w.log.Warn().Err(err).Msg("containers cannot start")
		w.tell(ctx, pod)
		return jittered(pauseError)
	}
	again := w.act(ctx, pod)
	if w.expire(pod) {
		return 0
	}
	if !w.tell(ctx, pod) {
		return jittered(pauseError)
	}
	w.point(pointRunning)
	if w.runtime.over(pod) {
		w.advanceTo(terminating)
		return 0
	}
	if again == 0 || again > pauseResync {
		again = max(together(w.clock.Now(), jittered(pauseResync)), pauseResync)
	}
	if len(w.runtime.held) > 0 {
		again = min(again, jittered(pauseError))
	}
	if left, limited := activeFor(pod, w.startTime(pod), w.clock.Now()); limited {
		again = min(again, left)
	}
	return again
}

// expire ends a pod that was active for too long, and tells whether it did.
func (w *worker) expire(pod *v1.Pod) bool {
	left, limited := activeFor(pod, w.startTime(pod), w.clock.Now())
	if !limited || left > 0 || w.runtime.over(pod) {
		return false
	}
	w.runtime.expired = true
	w.recorder.Event(pod, v1.EventTypeNormal, reasonDeadline, textDeadline)
	w.advanceTo(terminating)
	return true
}

// startTime is when the pod became this kubelet's, or now.
func (w *worker) startTime(pod *v1.Pod) time.Time {
	switch {
	case w.written != nil && w.written.StartTime != nil:
		return w.written.StartTime.Time
	case pod.Status.StartTime != nil:
		return pod.Status.StartTime.Time
	}
	return w.clock.Now()
}

// act moves the containers on as far as the time allows, with the data that they have. It returns how long until the next step.
func (w *worker) act(ctx context.Context, pod *v1.Pod) time.Duration {
	again := w.runtime.advance(pod, w.clock.Now())
	w.tellNews(pod)
	if w.runtime.state != running {
		w.data.end()
		return again
	}
	if !wantsData(pod) {
		return again
	}
	if w.data == nil || w.dataRun != w.runtime.started {
		w.data.end()
		w.data, w.dataRun = w.beginData(ctx, pod), w.runtime.started
	}
	if err := w.data.failure(); err != nil {
		w.data.end()
		w.runtime.fail(w.clock.Now(), reasonData, err.Error())
		again = w.runtime.advance(pod, w.clock.Now())
		w.tellNews(pod)
	}
	return again
}

// awaitVolumes waits for the pod's volumes; the pod's end ends the wait.
func (w *worker) awaitVolumes(ctx context.Context, pod *v1.Pod) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.pods.onStop(w.e, cancel)
	defer w.pods.onStop(w.e, nil)
	return w.volumes.WaitForAttachAndMount(ctx, pod)
}

func (w *worker) advanceTo(p phase) {
	w.pods.setPhase(w.e, p)
	w.volumes.PodChanged(w.uid)
}

// stopContainers ends the containers and says so: only then may the volumes go, and
// may the controller forget that the pod uses them.
func (w *worker) stopContainers(ctx context.Context, v view) {
	w.data.end()
	left := w.runtime.stop(v, w.clock.Now())
	w.tellNews(v.pod)
	if left > 0 {
		w.sleep(ctx, w.e.wake, left)
		return
	}
	if v.assigned && !w.insist(ctx, "write that the pod's containers ended", func() error { return w.write(ctx, v.pod) }) {
		return
	}
	w.point(pointStopped)
	w.advanceTo(terminated)
}

// takeDown waits until nothing of the pod is mounted, then lets the object go.
func (w *worker) takeDown(ctx context.Context, v view) time.Duration {
	err := w.volumes.WaitForUnmount(ctx, w.uid)
	if err == nil {
		err = w.nothingMounted()
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0
		}
		w.log.Warn().Err(err).Msg("volumes are not down")
		if v.assigned {
			w.recorder.Event(v.pod, v1.EventTypeWarning, "FailedUnmount", fmt.Sprintf("Unable to unmount volumes: %v", err))
		}
		return jittered(pauseError)
	}
	w.point(pointVolumesDown)
	w.advanceTo(finished)
	return 0
}

// finish deletes the object of a pod that is to be deleted. It returns true once the pod is gone.
func (w *worker) finish(ctx context.Context, v view) bool {
	if v.assigned && v.pod.DeletionTimestamp == nil {
		return false // it ended by itself; the object stays until somebody deletes it
	}
	if v.assigned {
		zero := int64(0)
		ok := w.insist(ctx, "delete pod object", func() error {
			err := w.client.CoreV1().Pods(v.pod.Namespace).Delete(ctx, v.pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &w.uid}})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
		if !ok {
			return false
		}
		w.point(pointPodDeleted)
	}
	// The informer may still show the object for a moment; a pod that stays, for a finalizer, is met again.
	if _, there := w.pods.Get(w.uid); there {
		return false
	}
	w.ips.free(w.uid)
	w.pods.remove(w.uid)
	w.volumes.PodChanged(w.uid)
	wake(w.house)
	return true
}
