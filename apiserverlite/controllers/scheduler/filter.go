package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"

	schedhelper "k8s.io/component-helpers/scheduling/corev1"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// reason why a node was refused. Resolvable ones could be met if other pods left.
type reason struct {
	text       string
	resolvable bool
}

// needs is what a pod's claims ask of a node.
type needs struct {
	bound   []boundClaim
	delayed []*corev1.PersistentVolumeClaim
	// exclusive claims (ReadWriteOncePod) that another pod uses already.
	exclusive bool
}

// boundClaim is a claim with its volume; the volume is nil when it is gone.
type boundClaim struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// needs looks at the pod's claims. A reason means that no node can do, whichever it is.
func (s *Scheduler) needs(pod *corev1.Pod) (*needs, string) {
	n := &needs{}
	immediate := false
	for i := range pod.Spec.Volumes {
		name, isEphemeral := control.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := s.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		switch {
		case apierrors.IsNotFound(err) && isEphemeral:
			return nil, fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case err != nil:
			return nil, err.Error()
		case claim.Status.Phase == corev1.ClaimLost:
			return nil, fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
		case claim.DeletionTimestamp != nil:
			return nil, fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
		}
		if isEphemeral {
			if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
				return nil, err.Error()
			}
		}
		if exclusive(claim) && s.usedByOther(pod, claim) {
			n.exclusive = true
		}
		if fullyBound(claim) {
			v, _ := s.volumes.Get(claim.Spec.VolumeName)
			n.bound = append(n.bound, boundClaim{claim, v})
			continue
		}
		delayed, err := volume.IsDelayBindingMode(claim, s.classes)
		if err != nil {
			return nil, err.Error()
		}
		if delayed && claim.Spec.VolumeName == "" {
			n.delayed = append(n.delayed, claim)
		} else {
			immediate = true
		}
	}
	if immediate {
		return nil, "pod has unbound immediate PersistentVolumeClaims"
	}
	return n, ""
}

// fullyBound tells whether the volume controller has completed the claim's binding. The
// phase is its last write, and what the kubelet asks for: a pod that is on its node earlier
// fails there and waits for its next sync. Upstream's scheduler looks once a second and rarely sees the gap.
func fullyBound(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && metav1.HasAnnotation(c.ObjectMeta, volume.AnnBindCompleted) && c.Status.Phase == corev1.ClaimBound
}

func exclusive(c *corev1.PersistentVolumeClaim) bool {
	for _, m := range c.Spec.AccessModes {
		if m == corev1.ReadWriteOncePod {
			return true
		}
	}
	return false
}

// usedByOther tells whether another pod with a node, or about to have one, uses the claim.
func (s *Scheduler) usedByOther(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	for _, o := range control.Pods(s.pods, control.PodsByClaim, control.Key(claim.Namespace, claim.Name)) {
		if o.UID != pod.UID && !ended(o) && (o.Spec.NodeName != "" || s.assumed.has(o.UID)) {
			return true
		}
	}
	return false
}

// filter asks one node. It returns a candidate, or the reasons of the first rule that refused.
func (s *Scheduler) filter(pod *corev1.Pod, n *needs, node *corev1.Node) (*candidate, []reason) {
	if node.Spec.Unschedulable && !tolerates(pod, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}) {
		return nil, []reason{{text: "node(s) were unschedulable"}}
	}
	if !control.IsReady(node) && !tolerates(pod, &corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}) {
		return nil, []reason{{text: "node(s) were not ready"}}
	}
	if _, bad := schedhelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true); bad {
		return nil, []reason{{text: "node(s) had untolerated taint(s)"}}
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return nil, []reason{{text: "node(s) didn't match Pod's node affinity/selector"}}
	}
	pods := s.podsOn(node.Name)
	if max, ok := node.Status.Allocatable[corev1.ResourcePods]; ok && int64(len(pods)+1) > max.Value() {
		return nil, []reason{{text: "Too many pods", resolvable: true}}
	}
	if n.exclusive {
		return nil, []reason{{text: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod", resolvable: true}}
	}
	room, fits := s.countVolumes(pod, node.Name, pods)
	if !fits {
		return nil, []reason{{text: "node(s) exceed max volume count", resolvable: true}}
	}
	p := &plan{pod: pod, node: node.Name, volumes: room.names}
	if why := s.findVolumes(p, n, node); len(why) > 0 {
		return nil, why
	}
	c := &candidate{node: node, plan: p, setbacks: s.setbacks[pod.UID][node.Name], missing: room.missing, pods: len(pods), free: room.free}
	c.preferred = preference(pod, node)
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(pod, t) {
			c.avoided++
		}
	}
	return c, nil
}

func tolerates(pod *corev1.Pod, t *corev1.Taint) bool {
	return schedhelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, t, true)
}

// preference sums up the weights of the pod's preferred terms that the node meets.
func preference(pod *corev1.Pod, node *corev1.Node) int64 {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return 0
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return 0
	}
	return terms.Score(node)
}

// podsOn returns the pods that are on a node or assumed to be, without those that ended.
func (s *Scheduler) podsOn(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range control.Pods(s.pods, control.PodsByNode, node) {
		if !ended(p) {
			pods = append(pods, p)
		}
	}
	return append(pods, s.assumed.on(node)...)
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
