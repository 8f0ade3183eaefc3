package conformance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var (
	configMaps  = core("configmaps")
	replicaSets = in("apps", "v1", "replicasets")
)

func unowned(o *unstructured.Unstructured) bool { return o != nil && len(o.GetOwnerReferences()) == 0 }

func TestDependentsGoInTheBackground(t *testing.T) {
	w := newWorld(t)
	owner := w.owned("owner", nil)
	child := w.owned("child", nil, owner)
	w.owned("grandchild", nil, child)
	w.removeBy(configMaps, "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, w.ns, "owner")
	w.gone(configMaps, w.ns, "child")
	w.gone(configMaps, w.ns, "grandchild")
}

func TestDependentsAreOrphaned(t *testing.T) {
	w := newWorld(t)
	w.owned("child", nil, w.owned("owner", nil))
	w.removeBy(configMaps, "owner", metav1.DeletePropagationOrphan)
	w.gone(configMaps, w.ns, "owner")
	await(w, configMaps, w.ns, "child", "to be orphaned", unowned)
}

func TestOwnerWaitsForItsDependents(t *testing.T) {
	w := newWorld(t)
	w.owned("child", []string{"conformance.test/hold"}, w.owned("owner", nil))
	w.removeBy(configMaps, "owner", metav1.DeletePropagationForeground)
	await(w, configMaps, w.ns, "child", "to be deleted, and held", func(o *unstructured.Unstructured) bool { return o != nil && o.GetDeletionTimestamp() != nil })
	owner, err := w.at(configMaps, w.ns).Get(w.ctx, "owner", metav1.GetOptions{})
	w.must(err)
	if owner.GetDeletionTimestamp() == nil || !same(owner.GetFinalizers(), []string{metav1.FinalizerDeleteDependents}) {
		t.Errorf("the owner: %v", owner)
	}
	_, err = w.at(configMaps, w.ns).Patch(w.ctx, "child", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.must(err)
	w.gone(configMaps, w.ns, "child")
	w.gone(configMaps, w.ns, "owner")
}

// TestDependentWithAnotherOwnerStays without the owner that waited for it.
func TestDependentWithAnotherOwnerStays(t *testing.T) {
	w := newWorld(t)
	going, staying := w.owned("going", nil), w.owned("staying", nil)
	w.owned("alone", nil, going)
	w.owned("shared", nil, going, staying)
	w.removeBy(configMaps, "going", metav1.DeletePropagationForeground)
	w.gone(configMaps, w.ns, "going")
	w.gone(configMaps, w.ns, "alone")
	await(w, configMaps, w.ns, "shared", "to keep one owner", func(o *unstructured.Unstructured) bool {
		return o != nil && o.GetDeletionTimestamp() == nil && len(o.GetOwnerReferences()) == 1 && o.GetOwnerReferences()[0].UID == staying.GetUID()
	})
}

func TestCircleOfOwnersGoes(t *testing.T) {
	w := newWorld(t)
	a := w.owned("a", nil)
	b := w.owned("b", nil, a)
	c := w.owned("c", nil, b)
	a.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: c.GetUID(), BlockOwnerDeletion: new(bool)}})
	_, err := w.at(configMaps, w.ns).Update(w.ctx, a, metav1.UpdateOptions{})
	w.must(err)
	w.removeBy(configMaps, "a", metav1.DeletePropagationForeground)
	for _, n := range []string{"a", "b", "c"} {
		w.gone(configMaps, w.ns, n)
	}
}

func TestDependentOfNobodyGoes(t *testing.T) {
	w := newWorld(t)
	ghost := w.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: ghost, uid: 00000000-0000-0000-0000-000000000001}}")
	w.owned("child", nil, ghost)
	w.gone(configMaps, w.ns, "child")
}

// TestDeploymentGoesWithItsReplicaSetAndPods, or leaves them.
func TestDeploymentGoesWithItsReplicaSetAndPods(t *testing.T) {
	for _, p := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			w.deploy("d", 2)
			rs := w.only(replicaSets)
			w.removeBy(deployments, "d", p)
			w.gone(deployments, w.ns, "d")
			if p != metav1.DeletePropagationOrphan {
				w.gone(replicaSets, w.ns, rs.GetName())
				w.until("no pod is left", core("pods"), func(l []unstructured.Unstructured) bool { return len(l) == 0 })
				return
			}
			await(w, replicaSets, w.ns, rs.GetName(), "to be orphaned", unowned)
			w.removeBy(replicaSets, rs.GetName(), metav1.DeletePropagationOrphan)
			w.gone(replicaSets, w.ns, rs.GetName())
			w.until("the pods are orphans", core("pods"), func(l []unstructured.Unstructured) bool {
				return len(l) == 2 && unowned(&l[0]) && unowned(&l[1])
			})
		})
	}
}

func TestCustomObjectsHaveDependents(t *testing.T) {
	for _, p := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		t.Run(string(p), func(t *testing.T) {
			w := newWorld(t)
			w.define(w.definition(structural, ""))
			owner, err := w.launch("owner", "spec: {size: 1}")
			w.must(err)
			child := w.boat("child", "spec: {size: 1}")
			child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "Boat", Name: "owner", UID: owner.GetUID()}})
			_, err = w.at(w.boats(), w.ns).Create(w.ctx, child, metav1.CreateOptions{})
			w.must(err)
			w.removeBy(w.boats(), "owner", p)
			w.gone(w.boats(), w.ns, "owner")
			if p == metav1.DeletePropagationOrphan {
				await(w, w.boats(), w.ns, "child", "to be orphaned", unowned)
			} else {
				w.gone(w.boats(), w.ns, "child")
			}
		})
	}
}
