// Package workload is what the controllers share that make pods from a template: whose a pod is, how far
// it is, what a controller has written and not seen yet, and the history of templates.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// byOwner is an index of pods: the uid of the controlling owner, or "orphan/" and the namespace.
const byOwner = "owner"

// IndexPods adds the index by which Claim finds pods.
func IndexPods(informer cache.SharedIndexInformer) {
	control.Index(informer, byOwner, func(o interface{}) ([]string, error) {
		pod := o.(*corev1.Pod)
		if ref := metav1.GetControllerOf(pod); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{"orphan/" + pod.Namespace}, nil
	})
}

// Owner is an object that controls pods.
type Owner struct {
	Object   metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
}

// Ref is the reference by which pods know their owner.
func (o Owner) Ref() metav1.OwnerReference { return *metav1.NewControllerRef(o.Object, o.Kind) }

// Owns tells whether a pod's controlling owner is this one.
func (o Owner) Owns(obj metav1.Object) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && ref.UID == o.Object.GetUID()
}

// Claim returns the pods of an owner. Orphans that match are adopted, pods that match no longer are let go,
// unless the owner is being deleted.
func (o Owner) Claim(ctx context.Context, client kubernetes.Interface, index cache.Indexer) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, p := range control.Pods(index, byOwner, string(o.Object.GetUID())) {
		if p.Namespace != o.Object.GetNamespace() {
			continue
		}
		if o.Selector.Matches(labels.Set(p.Labels)) || o.Object.GetDeletionTimestamp() != nil {
			out = append(out, p)
			continue
		}
		if err := o.release(ctx, client, p); err != nil {
			return nil, err
		}
	}
	if o.Object.GetDeletionTimestamp() != nil {
		return out, nil
	}
	asked := false
	for _, p := range control.Pods(index, byOwner, "orphan/"+o.Object.GetNamespace()) {
		if p.DeletionTimestamp != nil || !o.Selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if !asked {
			asked = true
			if may, err := MayAdopt(ctx, client, o.Object, o.Kind); err != nil || !may {
				return out, err
			}
		}
		adopted, err := o.adopt(ctx, client, p)
		if err != nil {
			return nil, err
		}
		if adopted != nil {
			out = append(out, adopted)
		}
	}
	return out, nil
}

func (o Owner) adopt(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) (*corev1.Pod, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "ownerReferences": []metav1.OwnerReference{o.Ref()}}})
	if err != nil {
		return nil, err
	}
	out, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil, nil // gone, or somebody else's by now
	}
	if err != nil {
		return nil, fmt.Errorf("adopt pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return out, nil
}

func (o Owner) release(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	body := fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, p.UID, o.Object.GetUID())
	_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("release pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// FromTemplate makes a pod without a name.
func (o Owner) FromTemplate(t *corev1.PodTemplateSpec) *corev1.Pod {
	t = t.DeepCopy()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Object.GetNamespace(), Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
		OwnerReferences: []metav1.OwnerReference{o.Ref()}}, Spec: t.Spec}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	return p
}

// Ready tells whether a pod's Ready condition is True, and since when.
func Ready(p *corev1.Pod) (since time.Time, ready bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// Available tells whether a pod has been ready for long enough; if not yet, wait says how long it still takes.
func Available(p *corev1.Pod, minReady int32, now time.Time) (wait time.Duration, available bool) {
	since, ready := Ready(p)
	if !ready {
		return 0, false
	}
	left := since.Add(time.Duration(minReady) * time.Second).Sub(now)
	if minReady == 0 || left <= 0 {
		return 0, true
	}
	return left, false
}

// Ended tells whether a pod has run to its end.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// LeastFar orders pods by how far they are, the youngest first among equals: who goes first when there are too many.
func LeastFar(a, b *corev1.Pod) int {
	rank := func(p *corev1.Pod) int {
		n := 0
		if p.Spec.NodeName != "" {
			n += 4
		}
		if p.Status.Phase == corev1.PodRunning {
			n += 2
		}
		if _, ready := Ready(p); ready {
			n++
		}
		return n
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
}
