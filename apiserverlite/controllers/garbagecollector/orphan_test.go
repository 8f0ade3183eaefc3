package garbagecollector

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
)

// A dependent that no watch has shown yet is orphaned like the others: once its owner is gone it would be collected.
func TestOrphanBeforeItsWatchShowsIt(t *testing.T) {
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	deployments := served{gvr.GroupVersion().WithResource("deployments"), gvr.GroupVersion().WithKind("Deployment")}
	sets := served{gvr, gvr.GroupVersion().WithKind("ReplicaSet")}
	object := func(s served, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), OwnerReferences: owners}}
		o.APIVersion, o.Kind = s.kind.ToAPIVersionAndKind()
		return o
	}
	ref := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: types.UID(name)}
	}
	owner := object(deployments, "owner")
	now := metav1.Now()
	owner.DeletionTimestamp, owner.Finalizers = &now, []string{metav1.FinalizerOrphanDependents}
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme, owner,
		object(sets, "shown", ref("owner")), object(sets, "late", ref("other"), ref("owner")), object(sets, "foreign", ref("other")))
	c := &Controller{meta: client, graph: graph{}, known: []served{deployments, sets}}
	c.graph[owner.UID] = &node{uid: owner.UID, apiVersion: "apps/v1", kind: "Deployment", namespace: "default", name: "owner", resource: deployments.resource, dependents: map[types.UID]*node{}}

	if err := c.attemptToOrphan(t.Context(), owner.UID); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]types.UID{"shown": nil, "late": {"other"}, "foreign": {"other"}} {
		o, err := client.Resource(gvr).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []types.UID
		for _, r := range o.OwnerReferences {
			got = append(got, r.UID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is owned by %v, not by %v", name, got, want)
		}
	}
	o, err := client.Resource(deployments.resource).Namespace("default").Get(t.Context(), "owner", metav1.GetOptions{})
	if err != nil || len(o.Finalizers) > 0 {
		t.Errorf("the owner keeps its finalizers %v, %v", o, err)
	}
}
