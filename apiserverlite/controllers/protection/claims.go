package protection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// claims guards PersistentVolumeClaims.
type claims struct {
	*guard
	pods cache.Indexer
}

func newClaims(env control.Env) *claims {
	core := env.Informers.Core().V1()
	lister := core.PersistentVolumeClaims().Lister()
	c := &claims{
		guard: &guard{
			env:       env,
			finalizer: ClaimFinalizer,
			queue:     control.NewQueue[types.NamespacedName](env),
			get: func(k types.NamespacedName) (metav1.Object, error) {
				return lister.PersistentVolumeClaims(k.Namespace).Get(k.Name)
			},
			patch: func(ctx context.Context, k types.NamespacedName, body []byte) error {
				_, err := env.Client.CoreV1().PersistentVolumeClaims(k.Namespace).Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{})
				return err
			},
		},
		pods: core.Pods().Informer().GetIndexer(),
	}
	c.inUse = c.used
	control.IndexPods(core.Pods().Informer())
	control.Register(core.PersistentVolumeClaims().Informer(), control.On[*corev1.PersistentVolumeClaim]{
		Add:    func(o *corev1.PersistentVolumeClaim) { c.seen(o) },
		Update: func(_, o *corev1.PersistentVolumeClaim) { c.seen(o) },
	})
	control.Register(core.Pods().Informer(), control.On[*corev1.Pod]{
		Update: func(old, pod *corev1.Pod) {
			if old.UID != pod.UID {
				c.podChanged(old) // deleted and made anew between two looks
			}
		},
		Any: c.podChanged,
	})
	return c
}

// podChanged queues the claims of a pod, which may have stopped to use them.
func (c *claims) podChanged(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		name, _ := control.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		if o, err := c.get(types.NamespacedName{Namespace: pod.Namespace, Name: name}); err == nil && o.GetDeletionTimestamp() != nil {
			c.seen(o)
		}
	}
}

// used looks into the cache, and if no pod is there asks the API.
func (c *claims) used(ctx context.Context, o metav1.Object) (bool, error) {
	for _, pod := range control.Pods(c.pods, control.PodsByClaim, control.Key(o.GetNamespace(), o.GetName())) {
		if uses(pod, o) {
			return true, nil
		}
	}
	list, err := c.env.Client.CoreV1().Pods(o.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list the pods that may use claim %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	for i := range list.Items {
		if uses(&list.Items[i], o) {
			return true, nil
		}
	}
	return false, nil
}

// uses tells whether a pod keeps a claim from going. Its phase does not matter, a
// pod without a node does not count. A pod that owns the claim counts until it is
// being deleted at once.
func uses(pod *corev1.Pod, claim metav1.Object) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		name, isEphemeral := control.ClaimName(pod, &pod.Spec.Volumes[i])
		if name != claim.GetName() {
			continue
		}
		if !isEphemeral {
			return true
		}
		goingNow := pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
		if metav1.IsControlledBy(claim, pod) && !goingNow {
			return true
		}
	}
	return false
}
