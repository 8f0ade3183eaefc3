package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// wanted is what a budget asks for.
type wanted struct {
	pods      int32 // how many there are to be
	healthy   int32 // and how many of them healthy at least
	unmanaged bool  // some pods have no owner, so that nobody knows how many there are to be
}

// expected reckons what a budget asks for. A number of pods that must stay needs no more than the pods; anything else is a part of what
// their owners want.
func (c *Controller) expected(ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (wanted, error) {
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	if most == nil && least == nil {
		return wanted{}, nil
	}
	if most == nil && least.Type == intstr.Int {
		return wanted{pods: int32(len(pods)), healthy: least.IntVal}, nil
	}
	w, err := c.scales(ctx, pods)
	if err != nil {
		return w, err
	}
	of := ptr.Deref(most, ptr.Deref(least, intstr.IntOrString{}))
	n, err := intstr.GetScaledValueFromIntOrPercent(&of, int(w.pods), true)
	if err != nil {
		return w, err
	}
	if w.healthy = int32(n); most != nil {
		w.healthy = max(0, w.pods-int32(n))
	}
	return w, nil
}

// scales adds up how many pods the owners of these want, each owner once.
func (c *Controller) scales(ctx context.Context, pods []*corev1.Pod) (wanted, error) {
	var w wanted
	// In one order: a message that named another pod each time would be a new status each time.
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	known := map[types.UID]bool{}   // owners of pods
	counted := map[types.UID]bool{} // those whose scale counts: two replica sets may have one deployment
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			w.unmanaged = true
			continue
		}
		if known[ref.UID] {
			continue
		}
		known[ref.UID] = true
		uid, n, err := c.scale(ctx, ref, p.Namespace)
		if err != nil {
			return w, err
		}
		if uid == "" {
			return w, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		if !counted[uid] {
			counted[uid] = true
			w.pods += n
		}
	}
	return w, nil
}

// scale is how many pods an owner wants, and who says so; nobody if the owner is gone.
func (c *Controller) scale(ctx context.Context, ref *metav1.OwnerReference, namespace string) (types.UID, int32, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, err
	}
	if gv.Group == appsv1.GroupName {
		switch ref.Kind {
		case "ReplicaSet":
			uid, n := c.scaleOfSet(ref, namespace)
			return uid, n, nil
		case "StatefulSet":
			s, err := c.stateful.StatefulSets(namespace).Get(ref.Name)
			if err != nil || s.UID != ref.UID {
				return "", 0, nil
			}
			return s.UID, ptr.Deref(s.Spec.Replicas, 1), nil
		}
	}
	return c.ask(ctx, gv.WithKind(ref.Kind), ref, namespace)
}

// scaleOfSet is a replica set's own, or that of its deployment, whose rollout has several.
func (c *Controller) scaleOfSet(ref *metav1.OwnerReference, namespace string) (types.UID, int32) {
	s, err := c.sets.ReplicaSets(namespace).Get(ref.Name)
	if err != nil || s.UID != ref.UID {
		return "", 0
	}
	if up := metav1.GetControllerOf(s); up != nil && up.Kind == "Deployment" {
		if d, err := c.deployments.Deployments(namespace).Get(up.Name); err == nil && d.UID == up.UID {
			return d.UID, ptr.Deref(d.Spec.Replicas, 1)
		}
	}
	return s.UID, ptr.Deref(s.Spec.Replicas, 1)
}

// ask reads the scale subresource of an owner of any kind.
func (c *Controller) ask(ctx context.Context, kind schema.GroupVersionKind, ref *metav1.OwnerReference, namespace string) (types.UID, int32, error) {
	list, err := c.env.Client.Discovery().ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		list = &metav1.APIResourceList{}
	} else if err != nil {
		return "", 0, err
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind && !slices.Contains([]byte(r.Name), '/') })
	if i < 0 {
		return "", 0, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	resource := list.APIResources[i].Name
	if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource+"/scale" }) {
		return "", 0, fmt.Errorf("%s does not implement the scale subresource", schema.GroupResource{Group: kind.Group, Resource: resource})
	}
	root := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		root = []string{"/api", kind.Version}
	}
	s := &autoscalingv1.Scale{}
	err = c.env.Client.CoreV1().RESTClient().Get().AbsPath(append(root, "namespaces", namespace, resource, ref.Name, "scale")...).Do(ctx).Into(s)
	if apierrors.IsNotFound(err) || err == nil && s.UID != ref.UID {
		return "", 0, nil
	} else if err != nil {
		return "", 0, err
	}
	return s.UID, s.Spec.Replicas, nil
}
