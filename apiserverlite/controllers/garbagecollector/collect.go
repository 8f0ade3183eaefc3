package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// errForeignScope marks a cluster-scoped object with a namespaced owner.
var errForeignScope = errors.New("cluster-scoped object has a namespaced owner")

// attemptToDelete looks at one node: an owner that may not exist, an owner that waits
// for its dependents, or a dependent that may have lost its owners.
func (c *Controller) attemptToDelete(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	n := c.graph[uid]
	if n == nil || n.beingDeleted && !n.deletingDependents {
		c.mu.Unlock()
		return nil
	}
	v := *n // what is read below stays as it was; owners and the identity are never changed in place
	hasDependents := len(n.dependents) > 0
	c.mu.Unlock()

	live, client, err := c.live(ctx, &v)
	switch {
	case errors.Is(err, errForeignScope):
		return nil
	case apierrors.IsNotFound(err) || err == nil && live.UID != uid:
		c.gone(uid)
		return nil
	case err != nil:
		return err
	}
	if v.virtual {
		return nil // it exists; its watch will show it
	}
	if v.deletingDependents {
		return c.finishForeground(ctx, uid, live, client)
	}
	if len(live.OwnerReferences) == 0 || live.DeletionTimestamp != nil {
		return nil
	}
	kinds, err := c.classify(ctx, &v, live.OwnerReferences)
	if errors.Is(err, errForeignScope) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case len(kinds.solid) > 0:
		if len(kinds.solid) == len(live.OwnerReferences) {
			return nil
		}
		return c.setOwnersOf(ctx, client, live, kinds.solid)
	case kinds.waiting > 0 && hasDependents:
		return c.remove(ctx, client, live, metav1.DeletePropagationForeground)
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		return c.remove(ctx, client, live, metav1.DeletePropagationOrphan)
	case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		return c.remove(ctx, client, live, metav1.DeletePropagationForeground)
	}
	return c.remove(ctx, client, live, metav1.DeletePropagationBackground)
}

// live reads a node's object.
func (c *Controller) live(ctx context.Context, n *node) (*metav1.PartialObjectMetadata, metadata.ResourceInterface, error) {
	if !n.virtual {
		client := c.scoped(n.resource, n.namespace)
		o, err := client.Get(ctx, n.name, metav1.GetOptions{})
		if err == nil {
			o.Kind = n.kind // of the metadata it is PartialObjectMetadata
		}
		return o, client, err
	}
	return c.owner(ctx, n.namespace, metav1.OwnerReference{APIVersion: n.apiVersion, Kind: n.kind, Name: n.name})
}

// owner reads the object that a reference in that namespace names.
func (c *Controller) owner(ctx context.Context, namespace string, r metav1.OwnerReference) (*metav1.PartialObjectMetadata, metadata.ResourceInterface, error) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return nil, nil, fmt.Errorf("find the kind of owner %s %s: %w", r.Kind, r.Name, err)
	}
	m, err := c.mapper.RESTMapping(gv.WithKind(r.Kind).GroupKind(), gv.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("find the kind of owner %s %s: %w", r.Kind, r.Name, err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	} else if namespace == "" {
		return nil, nil, errForeignScope
	}
	client := c.scoped(m.Resource, namespace)
	o, err := client.Get(ctx, r.Name, metav1.GetOptions{})
	return o, client, err
}

func (c *Controller) scoped(res resource, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return c.meta.Resource(res)
	}
	return c.meta.Resource(res).Namespace(namespace)
}

// owners of one object, by what they are good for. Those that are neither solid nor waiting dangle.
type owners struct {
	solid   []metav1.OwnerReference
	waiting int // deleting in the foreground: waits for its dependents
}

func (c *Controller) classify(ctx context.Context, n *node, refs []metav1.OwnerReference) (owners, error) {
	var o owners
	for _, r := range refs {
		owner, _, err := c.owner(ctx, n.namespace, r)
		switch {
		case errors.Is(err, errForeignScope):
			c.events.Eventf(n.ref(), corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, name: %s, uid: %s] does not exist in namespace %q", r.APIVersion, r.Kind, r.Name, r.UID, n.namespace)
			return o, err
		case apierrors.IsNotFound(err) || err == nil && owner.UID != r.UID:
			c.mu.Lock()
			real := c.graph[r.UID]
			foreign := real != nil && !real.virtual
			c.mu.Unlock()
			if foreign {
				c.events.Eventf(n.ref(), corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, name: %s, uid: %s] does not exist in namespace %q", r.APIVersion, r.Kind, r.Name, r.UID, n.namespace)
			}
		case err != nil:
			return o, err
		case owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents):
			o.waiting++
		default:
			o.solid = append(o.solid, r)
		}
	}
	return o, nil
}

// finishForeground lets an owner go once nothing blocks it, or sees to those that do.
func (c *Controller) finishForeground(ctx context.Context, uid types.UID, live *metav1.PartialObjectMetadata, client metadata.ResourceInterface) error {
	c.mu.Lock()
	var blockers []*node
	if n := c.graph[uid]; n != nil {
		blockers = n.blockers()
	}
	for _, b := range blockers {
		if !b.deletingDependents {
			c.deletes.Add(b.uid)
		}
	}
	c.mu.Unlock()
	if len(blockers) > 0 {
		return nil // the last of them brings the owner back
	}
	c.env.Point(pointForeground, "")
	return c.dropFinalizer(ctx, client, live, metav1.FinalizerDeleteDependents)
}

func (c *Controller) remove(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	err := client.Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}, PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s, whose owners are gone: %w", o.Kind, nameOf(o), err)
	}
	return nil
}

// setOwnersOf writes the owner references that stay.
func (c *Controller) setOwnersOf(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, refs []metav1.OwnerReference) error {
	return c.patch(ctx, client, o, map[string]any{"ownerReferences": refs})
}

func (c *Controller) dropFinalizer(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, finalizer string) error {
	if !slices.Contains(o.Finalizers, finalizer) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, client, o, map[string]any{"finalizers": rest})
}

// patch changes metadata under the resourceVersion that was looked at.
func (c *Controller) patch(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["resourceVersion"], fields["uid"] = o.ResourceVersion, o.UID
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	if _, err := client.Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch the metadata of %s %s: %w", o.Kind, nameOf(o), err)
	}
	return nil
}

func nameOf(o *metav1.PartialObjectMetadata) string {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}.String()
}

// attemptToOrphan takes an owner that is being deleted off its dependents, then lets it go.
func (c *Controller) attemptToOrphan(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	n := c.graph[uid]
	if n == nil || n.virtual {
		c.mu.Unlock()
		return nil
	}
	owner := *n
	c.mu.Unlock()
	if err := c.orphanDependents(ctx, &owner); err != nil {
		return err
	}
	client := c.scoped(owner.resource, owner.namespace)
	live, err := client.Get(ctx, owner.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.UID != uid {
		return nil
	} else if err != nil {
		return err
	}
	live.Kind = owner.kind
	return c.dropFinalizer(ctx, client, live, metav1.FinalizerOrphanDependents)
}

// orphanDependents takes the owner off whatever names it now. It lists them, for each
// watch has its own pace: one that has fallen behind, or has to begin anew, leaves gaps in the
// graph, and a dependent that is not found here is collected as soon as its owner is gone.
func (c *Controller) orphanDependents(ctx context.Context, owner *node) error {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	for _, s := range known {
		list, err := c.scoped(s.resource, owner.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue // not there any more, or not in namespaces
		} else if err != nil {
			return fmt.Errorf("list the %s that %s %s/%s owns: %w", s.resource.Resource, owner.kind, owner.namespace, owner.name, err)
		}
		for i := range list.Items {
			live := &list.Items[i]
			live.Kind = s.kind.Kind
			rest := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == owner.uid })
			if len(rest) == len(live.OwnerReferences) {
				continue
			}
			if err := c.setOwnersOf(ctx, c.scoped(s.resource, live.Namespace), live, rest); err != nil {
				return err
			}
			c.env.Point(pointOrphaned, "")
		}
	}
	return nil
}
