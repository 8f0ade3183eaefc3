package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/component-helpers/storage/volume"

	"drydock.dev/drydock/apiserverlite/controllers/control"
	"drydock.dev/drydock/internal/lab"
)

// bindTimeout is how long a pod's volumes may take to be bound.
const bindTimeout = 600 * time.Second

// bindCycle makes a plan true: volumes first, then the pod. It owns the plan's assumption.
func (s *Scheduler) bindCycle(ctx context.Context, p *plan, changed <-chan struct{}) {
	spanCtx, span := ctx, (*lab.Ender)(nil)
	v := s.firstVolume(p.pod)
	if v != "" {
		spanCtx, span = s.env.Lab.Timeline.Start(ctx, lab.SpanOptions{Op: "schedule", Volume: v, Node: p.node,
			Attrs: map[string]string{"pod": control.Key(p.pod.Namespace, p.pod.Name)}})
	}
	err := s.bindVolumes(spanCtx, p, changed)
	if err == nil {
		s.env.Point(pointVolumesBound, v)
		err = s.bindPod(spanCtx, p)
	}
	span.End("", err)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	delete(s.binding, p.pod.UID)
	if err != nil {
		s.assumed.forget(p.pod.UID)
		if s.setbacks[p.pod.UID] == nil {
			s.setbacks[p.pod.UID] = map[string]int{}
		}
		s.setbacks[p.pod.UID][p.node]++
	}
	s.mu.Unlock()
	if err == nil {
		s.queue.Forget(nameOf(p.pod))
		s.events.Eventf(p.pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", p.pod.Namespace, p.pod.Name, p.node)
		return
	}
	if _, gone := s.podLister.Pods(p.pod.Namespace).Get(p.pod.Name); gone != nil {
		s.mu.Lock()
		delete(s.setbacks, p.pod.UID)
		s.mu.Unlock()
		return
	}
	if !control.Routine(err) {
		s.events.Event(p.pod, corev1.EventTypeWarning, "FailedScheduling", err.Error())
		if err := s.setUnschedulable(ctx, p.pod, corev1.PodReasonSchedulerError, err.Error()); err != nil {
			s.env.Log.Warn().Err(err).Msg("pod condition")
		}
	}
	s.queue.AddRateLimited(nameOf(p.pod)) // looks at everything anew
	s.retryAll()                          // what it had assumed is free again
}

// firstVolume names the volume that a pod's scheduling is shown with: that of its first claim, if it has one.
func (s *Scheduler) firstVolume(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if name, _ := control.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			if c, err := s.claims.PersistentVolumeClaims(pod.Namespace).Get(name); err == nil {
				if c.Spec.VolumeName != "" {
					return c.Spec.VolumeName
				}
				return "pvc-" + string(c.UID)
			}
		}
	}
	return ""
}

// bindVolumes claims the static volumes, asks for the dynamic ones, and waits until
// the volume controller has bound them all.
func (s *Scheduler) bindVolumes(ctx context.Context, p *plan, changed <-chan struct{}) error {
	if len(p.static) == 0 && len(p.provision) == 0 {
		return nil
	}
	written := map[string]string{} // name of a volume or key of a claim -> resourceVersion written
	for _, b := range p.static {
		clone, dirty, err := volume.GetBindVolumeToClaim(b.volume, b.claim)
		if err != nil {
			return fmt.Errorf("running PreBind plugin %q: %w", "VolumeBinding", err)
		}
		if dirty {
			stored, err := s.client.CoreV1().PersistentVolumes().Update(ctx, clone, metav1.UpdateOptions{})
			if err != nil {
				return fmt.Errorf("running PreBind plugin %q: %w", "VolumeBinding", err)
			}
			written[b.volume.Name] = stored.ResourceVersion
		}
		s.env.Point(pointVolumeClaimed, b.volume.Name)
	}
	for _, claim := range p.provision {
		if claim.Annotations[volume.AnnSelectedNode] != p.node {
			clone := claim.DeepCopy()
			metav1.SetMetaDataAnnotation(&clone.ObjectMeta, volume.AnnSelectedNode, p.node)
			stored, err := s.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, clone, metav1.UpdateOptions{})
			if err != nil {
				return fmt.Errorf("running PreBind plugin %q: %w", "VolumeBinding", err)
			}
			written[control.Key(claim.Namespace, claim.Name)] = stored.ResourceVersion
		}
		s.env.Point(pointNodeSelected, "pvc-"+string(claim.UID))
	}
	t := s.env.Clock().NewTimer(bindTimeout)
	defer t.Stop()
	for {
		bound, err := s.volumesBound(p, written)
		if err != nil {
			return fmt.Errorf("running PreBind plugin %q: binding volumes: %w", "VolumeBinding", err)
		}
		if bound {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C():
			return fmt.Errorf("running PreBind plugin %q: binding volumes: context deadline exceeded", "VolumeBinding")
		case <-changed:
		}
	}
}

// volumesBound tells whether everything that bindVolumes asked for has come true. An
// error means that it cannot any more, and the pod needs another look.
func (s *Scheduler) volumesBound(p *plan, written map[string]string) (bool, error) {
	node, err := s.nodes.Get(p.node)
	if err != nil {
		return false, fmt.Errorf("get node %q: %w", p.node, err)
	}
	if _, err := s.podLister.Pods(p.pod.Namespace).Get(p.pod.Name); apierrors.IsNotFound(err) {
		return false, fmt.Errorf("pod does not exist any more: %w", err)
	}
	for _, b := range p.static {
		v, err := s.volumes.Get(b.volume.Name)
		if err != nil {
			return false, fmt.Errorf("check the binding of claim %s: %w", b.claim.Name, err)
		}
		claim, err := s.claims.PersistentVolumeClaims(b.claim.Namespace).Get(b.claim.Name)
		if err != nil {
			return false, fmt.Errorf("check the binding of claim %s: %w", b.claim.Name, err)
		}
		if older(v, written[v.Name]) {
			return false, nil
		}
		if err := volume.CheckNodeAffinity(v, node.Labels); err != nil {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, p.node, err)
		}
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
			return false, fmt.Errorf("ClaimRef got reset for pv %q", v.Name)
		}
		if !fullyBound(claim) {
			return false, nil
		}
	}
	for _, asked := range p.provision {
		claim, err := s.claims.PersistentVolumeClaims(asked.Namespace).Get(asked.Name)
		if err != nil {
			return false, fmt.Errorf("check the provisioning of claim %s: %w", asked.Name, err)
		}
		if older(claim, written[control.Key(asked.Namespace, asked.Name)]) {
			return false, nil
		}
		if claim.Annotations[volume.AnnSelectedNode] != p.node {
			return false, fmt.Errorf("provisioning failed for PVC %q", claim.Name)
		}
		if claim.Spec.VolumeName != "" {
			v, err := s.volumes.Get(claim.Spec.VolumeName)
			if err != nil {
				return false, nil // the watch of volumes is behind that of claims
			}
			if err := volume.CheckNodeAffinity(v, node.Labels); err != nil {
				return false, fmt.Errorf("pv %q node affinity doesn't match node %q: %w", v.Name, p.node, err)
			}
		}
		if !fullyBound(claim) {
			return false, nil
		}
	}
	return true, nil
}

// older tells whether the cache has not yet seen a write of ours.
func older(o metav1.Object, written string) bool {
	if written == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), written)
	return err == nil && c < 0
}

// bindPod posts the binding. When the answer got lost it looks whether the binding was done.
func (s *Scheduler) bindPod(ctx context.Context, p *plan) error {
	pods := s.client.CoreV1().Pods(p.pod.Namespace)
	err := pods.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.pod.Namespace, Name: p.pod.Name, UID: p.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: p.node},
	}, metav1.CreateOptions{})
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && (apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err) || apierrors.IsConflict(err)) {
		if pod, gerr := pods.Get(ctx, p.pod.Name, metav1.GetOptions{}); gerr == nil && pod.UID == p.pod.UID && pod.Spec.NodeName == p.node {
			return nil
		}
	}
	return fmt.Errorf("bind pod %s to %s: %w", nameOf(p.pod), p.node, err)
}
