package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func (w *world) addBudget(name string, change func(*policyv1.PodDisruptionBudgetSpec)) {
	w.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	change(&b.Spec)
	_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, b, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) budget(name string, done func(policyv1.PodDisruptionBudgetStatus) bool) *policyv1.PodDisruptionBudget {
	w.t.Helper()
	c := w.client.PolicyV1().PodDisruptionBudgets("default")
	return until(w, "budget "+name, lister(c.List), c.Watch, func(b *policyv1.PodDisruptionBudget) bool {
		return b.Name == name && b.Status.ObservedGeneration == b.Generation && done(b.Status)
	})
}

// numbers waits for them: allowed, healthy, desired, expected.
func (w *world) numbers(name string, allowed, healthy, desired, expected int32) *policyv1.PodDisruptionBudget {
	w.t.Helper()
	return w.budget(name, func(s policyv1.PodDisruptionBudgetStatus) bool {
		return s.DisruptionsAllowed == allowed && s.CurrentHealthy == healthy && s.DesiredHealthy == desired && s.ExpectedPods == expected
	})
}

func (w *world) evict(pod string) error {
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod}}
	return w.client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace("default").Resource("pods").Name(pod).SubResource("eviction").
		MaxRetries(0).Body(e).Do(w.ctx).Error() // EvictV1 waits as long as the answer says
}

func (w *world) web() []string {
	w.t.Helper()
	l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "app=web"})
	w.check(err)
	var out []string
	for _, p := range l.Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p.Name)
		}
	}
	return out
}

func (w *world) addDeployment(replicas int32) {
	w.t.Helper()
	_, err := w.client.AppsV1().Deployments("default").Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}, metav1.CreateOptions{})
	w.check(err)
}

// refusedBy is the cause that an eviction is refused for.
func refusedBy(err error) string {
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsTooManyRequests(err) || status.Status().Details == nil {
		return ""
	}
	for _, c := range status.Status().Details.Causes {
		if c.Type == policyv1.DisruptionBudgetCause {
			return c.Message
		}
	}
	return ""
}

func TestBudgetLetsAsManyGoAsAreToSpare(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 20)
	stop := w.start(k.run)
	w.addBudget("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr.To(intstr.FromString("25%")) })
	b := w.numbers("b", 0, 0, 0, 0)
	if c := b.Status.Conditions; len(c) != 1 || c[0].Type != "DisruptionAllowed" || c[0].Status != "False" || c[0].Reason != "InsufficientPods" || c[0].ObservedGeneration != 1 {
		t.Errorf("conditions without pods: %+v", c)
	}
	w.event("b", "NoPods")
	w.addDeployment(4)
	b = w.numbers("b", 1, 4, 3, 4)
	if c := b.Status.Conditions[0]; c.Status != "True" || c.Reason != "SufficientPods" {
		t.Errorf("condition with pods: %+v", c)
	}
	stop() // nothing makes new pods, nothing reckons
	pods := w.web()
	w.check(w.evict(pods[0]))
	victim := w.pod(pods[0], func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if !slices.ContainsFunc(victim.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI" && c.Message == "Eviction API: evicting"
	}) {
		t.Errorf("an evicted pod is not told: %+v", victim.Status.Conditions)
	}
	b = w.budget("b", func(s policyv1.PodDisruptionBudgetStatus) bool { return s.DisruptionsAllowed == 0 })
	if _, is := b.Status.DisruptedPods[pods[0]]; !is || len(b.Status.DisruptedPods) != 1 || b.Status.Conditions[0].Reason != "InsufficientPods" {
		t.Errorf("after the eviction: %+v", b.Status)
	}
	if got := refusedBy(w.evict(pods[1])); got != "The disruption budget b does not allow evicting pods currently" {
		t.Errorf("second eviction: %q", got)
	}
	w.start(k.run) // the pod goes, another one comes
	b = w.numbers("b", 1, 4, 3, 4)
	if len(b.Status.DisruptedPods) > 0 {
		t.Errorf("still on their way: %v", b.Status.DisruptedPods)
	}
	w.check(w.evict(pods[1]))
}

// TestEvictionsOfAllPodsGoOneByOne, however many ask at once.
func TestEvictionsOfAllPodsGoOneByOne(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start((&kubelet{w: w}).run)
	w.addBudget("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromInt32(3)) })
	w.addDeployment(4)
	w.numbers("b", 1, 4, 3, 4)
	for _, p := range w.web() {
		for {
			err := w.evict(p)
			if err == nil {
				break
			}
			if refusedBy(err) == "" {
				t.Fatal(err)
			}
			w.budget("b", func(s policyv1.PodDisruptionBudgetStatus) bool { return s.DisruptionsAllowed > 0 })
		}
		ready := 0
		l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{LabelSelector: "app=web"})
		w.check(err)
		for _, p := range l.Items {
			if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
				ready++
			}
		}
		if ready < 3 {
			t.Fatalf("%d pods are left", ready)
		}
	}
	w.numbers("b", 1, 4, 3, 4)
}

func TestUnhealthyPodsAreEvictedByPolicy(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start() // pods are bound and do not run
	w.addDeployment(2)
	w.addBudget("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromInt32(1)) })
	w.numbers("b", 0, 0, 1, 2)
	run := func(name string, ready corev1.ConditionStatus) {
		t.Helper()
		w.pod(name, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
		_, err := w.client.CoreV1().Pods("default").Patch(w.ctx, name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"`+string(ready)+`"}]}}`), metav1.PatchOptions{}, "status")
		w.check(err)
	}
	pods := w.web()
	run(pods[0], corev1.ConditionFalse)
	run(pods[1], corev1.ConditionFalse)
	if got := refusedBy(w.evict(pods[0])); got != "The disruption budget b needs 1 healthy pods and has 0 currently" {
		t.Errorf("a sick pod of a sick application: %q", got)
	}
	run(pods[1], corev1.ConditionTrue)
	w.numbers("b", 0, 1, 1, 2)
	if got := refusedBy(w.evict(pods[1])); got == "" {
		t.Error("the only healthy pod went")
	}
	w.check(w.evict(pods[0]))       // IfHealthyBudget: as many are healthy as should be
	b := w.numbers("b", 0, 1, 1, 3) // its successor counts already
	if len(b.Status.DisruptedPods) > 0 {
		t.Errorf("a sick pod is counted as a disruption: %+v", b.Status)
	}
	run(pods[1], corev1.ConditionFalse)
	w.numbers("b", 0, 0, 1, 3)
	if got := refusedBy(w.evict(pods[1])); got == "" {
		t.Error("a sick pod of a sick application went")
	}
	_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Patch(w.ctx, "b", types.MergePatchType, []byte(`{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`), metav1.PatchOptions{})
	w.check(err)
	w.check(w.evict(pods[1]))
}

// TestPodThatDoesNotGoCountsAgain after two minutes, and is told that it stays.
func TestPodThatDoesNotGoCountsAgain(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	stop := w.start((&kubelet{w: w}).run)
	w.addBudget("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromInt32(1)) })
	w.addDeployment(2)
	w.numbers("b", 1, 2, 1, 2)
	stop()
	pods := w.web()
	now := metav1.NewTime(w.lab.Clock.Now()).UTC().Format(time.RFC3339) // as if the server had died between granting and deleting
	_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Patch(w.ctx, "b", types.MergePatchType, []byte(`{"status":{"disruptionsAllowed":0,"disruptedPods":{"`+pods[0]+`":"`+now+`"}}}`), metav1.PatchOptions{}, "status")
	w.check(err)
	_, err = w.client.CoreV1().Pods("default").Patch(w.ctx, pods[0], types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI","message":"Eviction API: evicting","lastTransitionTime":"`+now+`"}]}}`), metav1.PatchOptions{}, "status")
	w.check(err)
	w.start((&kubelet{w: w}).run)
	w.numbers("b", 0, 1, 1, 2)
	w.clock().Advance(2*time.Minute + time.Second)
	b := w.numbers("b", 1, 2, 1, 2)
	if len(b.Status.DisruptedPods) > 0 {
		t.Errorf("still on their way: %v", b.Status.DisruptedPods)
	}
	w.event(pods[0], "NotDeleted")
	w.pod(pods[0], func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionFalse && c.Reason == "" && c.Message == ""
		})
	})
}

func TestBudgetsThatCannotBeReckoned(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start((&kubelet{w: w}).run)
	w.addJob("work", func(s *batchv1.JobSpec) { s.Template.Labels = map[string]string{"app": "web"} })
	w.job("work", func(j *batchv1.Job) bool { return ptr.Deref(j.Status.Ready, 0) == 1 })
	w.addBudget("share", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromString("50%")) })
	c := w.client.PolicyV1().PodDisruptionBudgets("default")
	until(w, "budget that failed", lister(c.List), c.Watch, func(b *policyv1.PodDisruptionBudget) bool {
		s := b.Status
		return len(s.Conditions) == 1 && s.Conditions[0].Reason == "SyncFailed" && s.Conditions[0].Message == "jobs.batch does not implement the scale subresource" &&
			s.Conditions[0].Status == metav1.ConditionFalse && s.DisruptionsAllowed == 0
	})
	w.event("share", "CalculateExpectedPodCountFailed")
	if got := refusedBy(w.evict(w.web()[0])); got != "The disruption budget share is still being processed by the server." {
		t.Errorf("eviction: %q", got)
	}
}

// TestPodsOfNobody count where a number of them is asked for.
func TestPodsOfNobody(t *testing.T) {
	w := newWorld(t)
	w.addNode("n1", 20)
	w.start((&kubelet{w: w}).run)
	p := pod("alone")
	p.Labels = map[string]string{"app": "web"}
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	w.addBudget("share", func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr.To(intstr.FromInt32(1)) })
	w.event("share", "UnmanagedPods")
	w.numbers("share", 0, 1, 0, 0)
	if got := refusedBy(w.evict("alone")); !strings.HasPrefix(got, "The disruption budget share does not allow") {
		t.Errorf("eviction: %q", got)
	}
	w.addBudget("two", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromInt32(1)) })
	w.numbers("two", 0, 1, 1, 1)
	err = w.evict("alone")
	if err == nil || err.Error() != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support." {
		t.Errorf("eviction under two budgets: %v", err)
	}
	_, err = w.client.CoreV1().Pods("default").Patch(w.ctx, "alone", types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"again"}}}`), metav1.PatchOptions{})
	w.check(err)
	w.event("alone", "MultiplePodDisruptionBudgets")
}
