package garbagecollector

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// resource is one resource of the API.
type resource = schema.GroupVersionResource

// node is an object in the graph.
//
//	virtual --a watch shows it--> real --deletion with foregroundDeletion--> real, deletingDependents
//	virtual --a live read finds nothing--> removed, its dependents queued
type node struct {
	uid        types.UID
	apiVersion string
	kind       string
	namespace  string // of a virtual node: that of the dependent that named it
	name       string
	resource   resource // zero for a virtual node

	virtual            bool
	owners             []metav1.OwnerReference
	dependents         map[types.UID]*node
	beingDeleted       bool
	deletingDependents bool // deletion is in the foreground
}

// graph is all objects by UID. Guarded by Controller.mu.
type graph map[types.UID]*node

// blockers returns the dependents that a foreground deletion of n waits for.
func (n *node) blockers() []*node {
	var list []*node
	for _, d := range n.dependents {
		for _, r := range d.owners {
			if r.UID == n.uid && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion {
				list = append(list, d)
				break
			}
		}
	}
	return list
}

// seen takes in the state of an object that a watch showed.
func (c *Controller) seen(s served, o metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.graph[o.GetUID()]
	if n == nil {
		n = &node{uid: o.GetUID(), dependents: map[types.UID]*node{}}
		c.graph[n.uid] = n
	}
	n.virtual = false
	n.apiVersion, n.kind = s.kind.ToAPIVersionAndKind()
	n.namespace, n.name, n.resource = o.GetNamespace(), o.GetName(), s.resource
	c.setOwners(n, o.GetOwnerReferences())

	was := n.deletingDependents
	n.beingDeleted = o.GetDeletionTimestamp() != nil
	n.deletingDependents = n.beingDeleted && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
	if n.beingDeleted && slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		c.orphans.Add(n.uid)
	}
	if n.deletingDependents && !was {
		for uid := range n.dependents {
			c.deletes.Add(uid)
		}
		c.deletes.Add(n.uid)
	}
}

// setOwners replaces the owners of n and keeps the other ends of the edges.
func (c *Controller) setOwners(n *node, owners []metav1.OwnerReference) {
	for _, old := range n.owners {
		if slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return r.UID == old.UID }) {
			continue
		}
		c.unlink(n, old.UID)
	}
	for _, r := range owners {
		owner := c.graph[r.UID]
		if owner == nil {
			owner = &node{uid: r.UID, apiVersion: r.APIVersion, kind: r.Kind, namespace: n.namespace, name: r.Name,
				virtual: true, dependents: map[types.UID]*node{}}
			c.graph[r.UID] = owner
			c.deletes.Add(r.UID) // is it there at all?
		} else if owner.namespace != "" && owner.namespace != n.namespace {
			c.deletes.Add(n.uid) // not an owner from there
		}
		if owner.deletingDependents {
			c.deletes.Add(n.uid) // came late
			c.deletes.Add(owner.uid)
		}
		owner.dependents[n.uid] = n
	}
	n.owners = owners
}

// unlink takes n from an owner's dependents.
func (c *Controller) unlink(n *node, uid types.UID) {
	owner := c.graph[uid]
	if owner == nil {
		return
	}
	delete(owner.dependents, n.uid)
	switch {
	case owner.deletingDependents:
		c.deletes.Add(owner.uid)
	case owner.virtual && len(owner.dependents) == 0:
		delete(c.graph, uid)
	}
}

// gone removes an object and queues those that it owned.
func (c *Controller) gone(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.graph[uid]
	if n == nil {
		return
	}
	delete(c.graph, uid)
	for _, r := range n.owners {
		c.unlink(n, r.UID)
	}
	for d := range n.dependents {
		c.deletes.Add(d)
	}
}

// ref is how events name the object.
func (n *node) ref() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: n.apiVersion, Kind: n.kind, Namespace: n.namespace, Name: n.name, UID: n.uid}
}
