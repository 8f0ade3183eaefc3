package controllers_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const toTwo = `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"two"}]}}}}`

// sizes waits until the replica sets have these sizes, by their image.
func (w *world) sizes(want map[string]int32) {
	w.t.Helper()
	c := w.client.AppsV1().ReplicaSets("default")
	have := map[string]int32{}
	until(w, "sizes of replica sets", lister(c.List), c.Watch, func(s *appsv1.ReplicaSet) bool {
		have[s.Spec.Template.Spec.Containers[0].Image] = *s.Spec.Replicas
		for image, n := range want {
			if have[image] != n {
				return false
			}
		}
		return true
	})
}

// TestDeploymentScaledWhileItMovesKeepsItsShares stops half way, where no new pod comes up, and doubles the size.
func TestDeploymentScaledWhileItMovesKeepsItsShares(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 10)
	k := &kubelet{w: w}
	nodes, stop := context.WithCancel(w.ctx)
	wait := w.play(nodes, k.run)
	defer func() { stop(); wait() }()
	w.start()
	c := w.client.AppsV1().Deployments("default")
	_, err := c.Create(w.ctx, deploymentOf(10), metav1.CreateOptions{})
	w.check(err)
	until(w, "deployment", lister(c.List), c.Watch, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 10 })
	stop()
	wait()
	_, err = c.Patch(w.ctx, "front", types.StrategicMergePatchType, []byte(toTwo), metav1.PatchOptions{})
	w.check(err)
	w.sizes(map[string]int32{"one": 8, "two": 5}) // 13 wanted; the two that are ending, which no node ends, do not count
	until(w, "deployment", lister(c.List), c.Watch, func(d *appsv1.Deployment) bool { return ptr.Deref(d.Status.TerminatingReplicas, 0) == 2 })
	_, err = c.Patch(w.ctx, "front", types.MergePatchType, []byte(`{"spec":{"replicas":20}}`), metav1.PatchOptions{})
	w.check(err)
	w.sizes(map[string]int32{"one": 15, "two": 10})
	_, err = c.Patch(w.ctx, "front", types.MergePatchType, []byte(`{"spec":{"replicas":10,"paused":true}}`), metav1.PatchOptions{})
	w.check(err)
	w.sizes(map[string]int32{"one": 8, "two": 5})
}

// TestDeploymentAdoptsAndReleases: a set that matches is taken, one that matches no longer is replaced.
func TestDeploymentAdoptsAndReleases(t *testing.T) {
	w := newWorld(t)
	w.start()
	sets, c := w.client.AppsV1().ReplicaSets("default"), w.client.AppsV1().Deployments("default")
	d := deploymentOf(2)
	_, err := sets.Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "found", Labels: d.Spec.Template.Labels},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: d.Spec.Selector, Template: workloadTemplate("one")}}, metav1.CreateOptions{})
	w.check(err)
	until(w, "the controllers to know of it", lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool { return s.Status.ObservedGeneration > 0 })
	d, err = c.Create(w.ctx, d, metav1.CreateOptions{})
	w.check(err)
	until(w, "adoption", lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool {
		return s.Name == "found" && metav1.IsControlledBy(s, d) && *s.Spec.Replicas == 2
	})
	l, err := sets.List(w.ctx, metav1.ListOptions{})
	w.check(err)
	if len(l.Items) != 1 {
		t.Errorf("%d sets", len(l.Items))
	}
	_, err = sets.Patch(w.ctx, "found", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{})
	w.check(err)
	until(w, "release", lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool { return s.Name == "found" && len(s.OwnerReferences) == 0 })
	until(w, "another set", lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool { return s.Name != "found" && metav1.IsControlledBy(s, d) })
}

func TestStatefulSetOnDeleteReplacesWhatIsDeleted(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.start(w.provisioner, w.attacher, k.run)
	s := statefulSet(2)
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	w.set(settled(2))
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	w.set(func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && s.Status.UpdateRevision != s.Status.CurrentRevision
	})
	old := w.pod("web-0", func(*corev1.Pod) bool { return true })
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "web-0", metav1.DeleteOptions{}))
	w.set(func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == 1 && s.Status.AvailableReplicas == 2
	})
	if p := w.pod("web-0", func(p *corev1.Pod) bool { return p.UID != old.UID }); p.Spec.Containers[0].Image != "two" {
		t.Errorf("web-0 runs %s", p.Spec.Containers[0].Image)
	}
	if p := w.pod("web-1", func(*corev1.Pod) bool { return true }); p.Spec.Containers[0].Image != "one" {
		t.Errorf("web-1 runs %s", p.Spec.Containers[0].Image)
	}
}

// TestStatefulSetMaxUnavailable replaces two at a time and never more.
func TestStatefulSetMaxUnavailable(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.start(w.provisioner, w.attacher, k.run)
	s := statefulSet(5)
	s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(2))}}
	made, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	if made.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
		t.Fatal("the API drops maxUnavailable")
	}
	w.set(settled(5))
	most := 0
	watching, cancel := context.WithCancel(w.ctx)
	wait := w.play(watching, func(ctx context.Context) {
		pods := w.client.CoreV1().Pods("default")
		up := map[string]bool{}
		full := false
		each(ctx, lister(pods.List), pods.Watch, func(o runtime.Object, gone bool) bool {
			p := o.(*corev1.Pod)
			up[p.Name] = !gone && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning
			n := 0
			for _, ok := range up {
				if ok {
					n++
				}
			}
			if full = full || n == 5; full {
				most = max(most, 5-n)
			}
			return false
		})
	})
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	w.set(func(s *appsv1.StatefulSet) bool { return settled(5)(s) && s.Status.ObservedGeneration == s.Generation })
	cancel()
	wait()
	if most != 2 {
		t.Errorf("%d were unavailable at once", most)
	}
}

// TestReplicaSetFollowsItsDeployment in what is no part of the template, and remembers which revisions it was.
func TestReplicaSetFollowsItsDeployment(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 10)
	w.start((&kubelet{w: w}).run)
	c, sets := w.client.AppsV1().Deployments("default"), w.client.AppsV1().ReplicaSets("default")
	_, err := c.Create(w.ctx, deploymentOf(1), metav1.CreateOptions{})
	w.check(err)
	change := func(patch string) {
		t.Helper()
		_, err := c.Patch(w.ctx, "front", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		w.check(err)
	}
	set := func(image string, done func(*appsv1.ReplicaSet) bool) {
		t.Helper()
		until(w, "replica set of "+image, lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool { return s.Spec.Template.Spec.Containers[0].Image == image && done(s) })
	}
	said := func(a string) func(*appsv1.ReplicaSet) bool {
		return func(s *appsv1.ReplicaSet) bool { return s.Annotations["kubernetes.io/change-cause"] == a }
	}
	set("one", said(""))
	change(`{"metadata":{"annotations":{"kubernetes.io/change-cause":"first"}},"spec":{"minReadySeconds":1}}`)
	set("one", func(s *appsv1.ReplicaSet) bool { return said("first")(s) && s.Spec.MinReadySeconds == 1 })
	change(toTwo)
	set("two", said("first"))
	change(`{"metadata":{"annotations":{"kubernetes.io/change-cause":"second"}}}`)
	set("two", said("second"))
	change(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"one"}]}}}}`)
	set("one", func(s *appsv1.ReplicaSet) bool {
		return s.Annotations["deployment.kubernetes.io/revision"] == "3" && s.Annotations["deployment.kubernetes.io/revision-history"] == "1" && said("second")(s)
	})
}
