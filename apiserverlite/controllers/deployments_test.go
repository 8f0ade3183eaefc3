package controllers_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// front is what the tests do with the deployment of that name.
type front struct{ *world }

func (f front) change(patch string) {
	f.t.Helper()
	_, err := f.client.AppsV1().Deployments("default").Patch(f.ctx, "front", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	f.check(err)
}

func (f front) is(what string, done func(*appsv1.Deployment) bool) *appsv1.Deployment {
	f.t.Helper()
	c := f.client.AppsV1().Deployments("default")
	return until(f.world, what, lister(c.List), c.Watch, func(d *appsv1.Deployment) bool { return d.Name == "front" && done(d) })
}

// arrived waits until all of n pods are of the template and available.
func (f front) arrived(n int32) *appsv1.Deployment {
	f.t.Helper()
	return f.is("the deployment to arrive", func(d *appsv1.Deployment) bool {
		st := d.Status
		return st.ObservedGeneration == d.Generation && st.UpdatedReplicas == n && st.Replicas == n && st.AvailableReplicas == n && says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")(d)
	})
}

func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool {
		return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == kind && c.Status == status && c.Reason == reason
		})
	}
}

func (f front) set(image string, done func(*appsv1.ReplicaSet) bool) *appsv1.ReplicaSet {
	f.t.Helper()
	sets := f.client.AppsV1().ReplicaSets("default")
	return until(f.world, "replica set of "+image, lister(sets.List), sets.Watch, func(s *appsv1.ReplicaSet) bool { return s.Spec.Template.Spec.Containers[0].Image == image && done(s) })
}

func newFront(t *testing.T, d *appsv1.Deployment) front {
	w := newWorld(t)
	w.addNode("n1", 10)
	w.start((&kubelet{w: w}).run)
	_, err := w.client.AppsV1().Deployments("default").Create(w.ctx, d, metav1.CreateOptions{})
	w.check(err)
	return front{w}
}

// TestPausedDeploymentIsKeptUp: it does not move, but is scaled, passes its annotations on and forgets old sets.
func TestPausedDeploymentIsKeptUp(t *testing.T) {
	f := newFront(t, deploymentOf(1))
	if d := f.arrived(1); d.Generation != 1 || d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		t.Errorf("the revision made a generation of its own: %d %v", d.Generation, d.Annotations)
	}
	if s := f.set("one", func(*appsv1.ReplicaSet) bool { return true }); s.Generation != 1 || *s.Spec.Replicas != 1 || s.Annotations["deployment.kubernetes.io/desired-replicas"] != "1" {
		t.Errorf("the set was not made in its size: %+v", s.ObjectMeta)
	}
	f.change(toTwo)
	f.arrived(1)
	f.change(`{"metadata":{"annotations":{"kubernetes.io/change-cause":"held"}},"spec":{"paused":true,"replicas":2}}`)
	f.is("the pause", says(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused"))
	f.set("two", func(s *appsv1.ReplicaSet) bool {
		return s.Annotations["kubernetes.io/change-cause"] == "held" && s.Status.AvailableReplicas == 2
	})
	f.change(`{"spec":{"revisionHistoryLimit":0}}`)
	sets := f.client.AppsV1().ReplicaSets("default")
	f.none("the old set", sets.Watch, func() (string, error) {
		l, err := sets.List(f.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 1 {
			return "", err
		}
		return "one of two", nil
	})
	f.change(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"three"}]}}}}`)
	f.is("the change to be seen", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 0
	})
	f.change(`{"spec":{"paused":false}}`)
	f.arrived(2)
	f.set("three", func(s *appsv1.ReplicaSet) bool { return s.Status.AvailableReplicas == 2 })
}

// TestDeploymentThatHasArrivedStaysSo, whatever becomes of its pods.
func TestDeploymentThatHasArrivedStaysSo(t *testing.T) {
	f := newFront(t, deploymentOf(2))
	f.arrived(2)
	pods := f.client.CoreV1().Pods("default")
	l, err := pods.List(f.ctx, metav1.ListOptions{})
	f.check(err)
	seen, err := f.client.AppsV1().Deployments("default").Watch(f.ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
	f.check(err)
	defer seen.Stop()
	f.check(pods.Delete(f.ctx, l.Items[0].Name, metav1.DeleteOptions{}))
	less := false
	for e := range seen.ResultChan() {
		d := e.Object.(*appsv1.Deployment)
		if !says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")(d) {
			t.Errorf("conditions: %+v", d.Status.Conditions)
		}
		less = less || d.Status.AvailableReplicas < 2
		if less && d.Status.AvailableReplicas == 2 {
			return
		}
	}
	t.Error("the pod did not come back")
}

// TestDeploymentSaysWhyItsPodsAreMissing: what keeps its set from making pods is its condition too.
func TestDeploymentSaysWhyItsPodsAreMissing(t *testing.T) {
	d := deploymentOf(1)
	d.Spec.Template.Spec.ServiceAccountName = "nobody"
	f := newFront(t, d)
	f.is("the failure", says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate"))
	_, err := f.client.CoreV1().ServiceAccounts("default").Create(f.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{})
	f.check(err)
	d = f.arrived(1)
	if slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == appsv1.DeploymentReplicaFailure }) {
		t.Errorf("it still says so: %+v", d.Status.Conditions)
	}
}

// TestRecreateWaitsForPodsThatEnd: a pod that is about to end is still there.
func TestRecreateWaitsForPodsThatEnd(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 10)
	w.start()
	d := deploymentOf(1)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	_, err := w.client.AppsV1().Deployments("default").Create(w.ctx, d, metav1.CreateOptions{})
	w.check(err)
	f, pods := front{w}, w.client.CoreV1().Pods("default")
	p := until(w, "pod", lister(pods.List), pods.Watch, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	f.change(toTwo)
	f.set("one", func(s *appsv1.ReplicaSet) bool {
		return s.Status.Replicas == 0 && ptr.Deref(s.Status.TerminatingReplicas, 0) == 1
	})
	f.is("the pod that ends", func(d *appsv1.Deployment) bool { return ptr.Deref(d.Status.TerminatingReplicas, 0) == 1 })
	sets, err := w.client.AppsV1().ReplicaSets("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	if len(sets.Items) != 1 {
		t.Errorf("%d sets while the old pod ends", len(sets.Items))
	}
	if err := pods.Delete(w.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	f.set("two", func(s *appsv1.ReplicaSet) bool { return s.Status.Replicas == 1 })
}

// TestRollbackOfOldClients is asked for by an annotation.
func TestRollbackOfOldClients(t *testing.T) {
	f := newFront(t, deploymentOf(1))
	f.change(`{"metadata":{"annotations":{"kubernetes.io/change-cause":"first"}}}`)
	f.set("one", func(s *appsv1.ReplicaSet) bool { return s.Annotations["kubernetes.io/change-cause"] == "first" })
	f.arrived(1)
	f.change(toTwo)
	f.change(`{"metadata":{"annotations":{"kubernetes.io/change-cause":"second"}}}`)
	f.set("two", func(s *appsv1.ReplicaSet) bool { return s.Annotations["kubernetes.io/change-cause"] == "second" })
	f.arrived(1)
	f.change(`{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"9"}}}`)
	f.event("front", "DeploymentRollbackRevisionNotFound")
	f.change(`{"metadata":{"annotations":{"deprecated.deployment.rollback.to":"0"}}}`)
	f.event("front", "DeploymentRollback")
	d := f.arrived(1)
	_, asked := d.Annotations["deprecated.deployment.rollback.to"]
	if d.Spec.Template.Spec.Containers[0].Image != "one" || d.Annotations["kubernetes.io/change-cause"] != "first" || asked || d.Spec.Template.Labels["pod-template-hash"] != "" {
		t.Errorf("rolled back to %v %v", d.Spec.Template, d.Annotations)
	}
	f.set("one", func(s *appsv1.ReplicaSet) bool { return s.Annotations["deployment.kubernetes.io/revision"] == "3" })
}
