package conformance

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// TestPodIsSubmittedAndRemoved: a watch sees it come, run, get its deletion time and go.
func TestPodIsSubmittedAndRemoved(t *testing.T) {
	w := newWorld(t)
	pods := w.client.CoreV1().Pods(w.ns)
	stream, err := pods.Watch(w.ctx, metav1.ListOptions{LabelSelector: "app=p"})
	w.must(err)
	defer stream.Stop()
	p := pod("p", "app=p")
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	made := w.createPod(p)
	if made.Status.Phase != corev1.PodPending || made.Status.QOSClass != corev1.PodQOSBestEffort || made.Generation != 1 {
		t.Errorf("created: %+v", made)
	}
	up := w.running("p")
	if up.Status.HostIP == "" || up.Status.PodIP == "" || up.Status.StartTime == nil || up.Spec.NodeName == "" || up.Status.Phase != corev1.PodRunning {
		t.Errorf("running: %+v", up.Status)
	}
	w.must(pods.Delete(w.ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}))
	var seen []watch.EventType
	marked := false
	for len(seen) == 0 || seen[len(seen)-1] != watch.Deleted {
		e := <-stream.ResultChan()
		o, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("watch: %+v", e)
		}
		marked = marked || e.Type == watch.Modified && o.DeletionTimestamp != nil && o.DeletionGracePeriodSeconds != nil
		seen = append(seen, e.Type)
	}
	if seen[0] != watch.Added || !marked {
		t.Errorf("seen: %v, with a deletion time: %v", seen, marked)
	}
}

func TestPodIsUpdated(t *testing.T) {
	w := newWorld(t)
	pods := w.client.CoreV1().Pods(w.ns)
	w.createPod(pod("p"))
	p := w.running("p")
	got, err := pods.Patch(w.ctx, "p", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"time":"now"}},"spec":{"activeDeadlineSeconds":3600,"containers":[{"name":"c","image":"i:2"}]}}`), metav1.PatchOptions{})
	w.must(err)
	if got.Labels["time"] != "now" || *got.Spec.ActiveDeadlineSeconds != 3600 || got.Spec.Containers[0].Image != "i:2" || got.Generation != p.Generation+1 {
		t.Errorf("updated: %+v", got)
	}
	_, err = pods.Patch(w.ctx, "p", types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":7200}}`), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid, "must be less than or equal to previous value")
	await(w, core("pods"), w.ns, "p", "to be observed in its new generation", func(p *corev1.Pod) bool { return p != nil && p.Status.ObservedGeneration == got.Generation })
}

func TestPodStatusIsPatched(t *testing.T) {
	w := newWorld(t)
	p := pod("p")
	p.Spec.SchedulerName = "nobody"
	p.Generation = 100 // is the server's to give
	if made := w.createPod(p); made.Generation != 1 {
		t.Errorf("generation %d", made.Generation)
	}
	got, err := w.client.CoreV1().Pods(w.ns).Patch(w.ctx, "p", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"x":"y"}},"spec":{"activeDeadlineSeconds":5},"status":{"message":"m","reason":"r","conditions":[{"type":"example.com/gate","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if got.Status.Message != "m" || got.Status.Reason != "r" || len(got.Status.Conditions) != 1 || got.Spec.ActiveDeadlineSeconds != nil {
		t.Errorf("patched: %+v", got)
	}
}

func TestPodQualityOfService(t *testing.T) {
	w := newWorld(t)
	p := w.createPod(w.sizedPod("guaranteed", "100m", "100Mi"))
	half := w.sizedPod("burstable", "100m", "100Mi")
	half.Spec.Containers[0].Resources.Limits = nil
	b := w.createPod(half)
	if p.Status.QOSClass != corev1.PodQOSGuaranteed || b.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("classes: %s %s", p.Status.QOSClass, b.Status.QOSClass)
	}
}

// TestEphemeralContainersAreAdded by their subresource alone, and stay.
func TestEphemeralContainersAreAdded(t *testing.T) {
	w := newWorld(t)
	pods := w.client.CoreV1().Pods(w.ns)
	w.createPod(pod("p"))
	w.running("p")
	add := func(name string) []byte {
		return []byte(`{"spec":{"ephemeralContainers":[{"name":"` + name + `","image":"i:1","targetContainerName":"c"}]}}`)
	}
	_, err := pods.Patch(w.ctx, "p", types.StrategicMergePatchType, add("sneaked"), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid)
	_, err = pods.Patch(w.ctx, "p", types.StrategicMergePatchType, add("one"), metav1.PatchOptions{}, "ephemeralcontainers")
	w.must(err)
	p, err := pods.Get(w.ctx, "p", metav1.GetOptions{})
	w.must(err)
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "two", Image: "i:1"}})
	p, err = pods.UpdateEphemeralContainers(w.ctx, "p", p, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // the kubelet wrote its status meanwhile
		p, err = pods.Patch(w.ctx, "p", types.StrategicMergePatchType, add("two"), metav1.PatchOptions{}, "ephemeralcontainers")
	}
	w.must(err)
	if len(p.Spec.EphemeralContainers) != 2 || p.Spec.EphemeralContainers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("containers: %+v", p.Spec.EphemeralContainers)
	}
	_, err = pods.Patch(w.ctx, "p", types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/ephemeralContainers/0"}]`), metav1.PatchOptions{}, "ephemeralcontainers")
	w.refused(err, apierrors.IsInvalid, "may not be removed")
}

// TestPodIsResized by its subresource alone, within its class of service.
func TestPodIsResized(t *testing.T) {
	w := newWorld(t)
	pods := w.client.CoreV1().Pods(w.ns)
	w.createPod(w.sizedPod("p", "100m", "100Mi")) // on no node: drydock's do not resize
	resize := func(cpu string) []byte {
		return []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"` + cpu + `"},"limits":{"cpu":"` + cpu + `"}}}]}}`)
	}
	_, err := pods.Patch(w.ctx, "p", types.StrategicMergePatchType, resize("200m"), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid)
	got, err := pods.Patch(w.ctx, "p", types.StrategicMergePatchType, resize("200m"), metav1.PatchOptions{}, "resize")
	w.must(err)
	if got.Spec.Containers[0].Resources.Requests.Cpu().String() != "200m" || got.Generation < 2 {
		t.Errorf("resized: %+v", got.Spec.Containers[0].Resources)
	}
	_, err = pods.Patch(w.ctx, "p", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"50m"}}}]}}`), metav1.PatchOptions{}, "resize")
	w.refused(err, apierrors.IsInvalid, "Pod QOS Class may not change")
	got, err = pods.Patch(w.ctx, "p", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"i:9"}]}}`), metav1.PatchOptions{}, "resize")
	if err == nil && got.Spec.Containers[0].Image == "i:9" {
		t.Error("the resize changed the image")
	}
}

func TestPodsAreRemovedTogether(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c"} {
		w.createPod(pod(n, "type=test"))
	}
	w.createPod(pod("other"))
	w.must(w.client.CoreV1().Pods(w.ns).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "type=test"}))
	for _, n := range []string{"a", "b", "c"} {
		w.gone(core("pods"), w.ns, n)
	}
	w.running("other")
}

// TestBudgetHoldsEvictions until there are more healthy pods than it asks for.
func TestBudgetHoldsEvictions(t *testing.T) {
	w := newWorld(t)
	w.deploy("d", 2)
	budgets := w.client.PolicyV1().PodDisruptionBudgets(w.ns)
	min := intstr.FromInt32(2)
	_, err := budgets.Create(w.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &min, Selector: selects("d")}}, metav1.CreateOptions{})
	w.must(err)
	allows := func(n int32) {
		t.Helper()
		await(w, policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), w.ns, "b", fmt.Sprintf("to allow %d", n), func(b *policyv1.PodDisruptionBudget) bool {
			return b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed == n && b.Status.CurrentHealthy == 2+n && b.Status.DesiredHealthy == 2
		})
	}
	pods, err := w.client.CoreV1().Pods(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	victim := pods.Items[0].Name
	evict := func() error {
		return w.client.CoreV1().Pods(w.ns).EvictV1(w.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: victim, Namespace: w.ns}})
	}
	allows(0)
	w.refused(evict(), apierrors.IsTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget.")
	_, err = w.client.AppsV1().Deployments(w.ns).Patch(w.ctx, "d", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
	w.must(err)
	allows(1)
	w.must(evict())
	w.gone(core("pods"), w.ns, victim)
}
