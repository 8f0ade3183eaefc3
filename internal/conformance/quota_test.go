package conformance

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for k, v := range labelled(pairs...) {
		out[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	return out
}

// quota makes one, and waits until its use has been counted.
func (w *world) quota(name string, hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) {
	w.t.Helper()
	_, err := w.client.CoreV1().ResourceQuotas(w.ns).Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}}, metav1.CreateOptions{})
	w.must(err)
	await(w, core("resourcequotas"), w.ns, name, "to be counted", func(q *corev1.ResourceQuota) bool {
		return q != nil && len(q.Status.Hard) == len(hard) && len(q.Status.Used) == len(hard)
	})
}

// uses waits until a quota's use is as said.
func (w *world) uses(name string, pairs ...string) {
	w.t.Helper()
	await(w, core("resourcequotas"), w.ns, name, "to have used "+fmt.Sprint(pairs), func(q *corev1.ResourceQuota) bool {
		for k, v := range amounts(pairs...) {
			is := q.Status.Used[k]
			if is.Cmp(v) != 0 {
				return false
			}
		}
		return true
	})
}

// TestQuotaCountsEachKind while objects come, and go again.
func TestQuotaCountsEachKind(t *testing.T) {
	w := newWorld(t)
	class := w.unique("none")
	w.quota("q", amounts("resourcequotas=3", "services=5", "secrets=5", "configmaps=5", "persistentvolumeclaims=2", "requests.storage=5Gi", "count/replicasets.apps=2", "replicationcontrollers=2",
		class+".storageclass.storage.k8s.io/persistentvolumeclaims=2", "pods=0"))
	w.uses("q", "resourcequotas=1", "services=0", "secrets=0", "configmaps=1", "persistentvolumeclaims=0")
	_, err := w.client.CoreV1().Secrets(w.ns).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	w.must(err)
	maps{w}.make("m", "a")
	w.applied(replicaSets, "one", "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r}, spec: {replicas: 0, selector: {matchLabels: {app: r}}, template: "+
		"{metadata: {labels: {app: r}}, spec: {containers: [{name: c, image: i}]}}}}")
	_, err = w.client.CoreV1().ReplicationControllers(w.ns).Create(w.ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec: corev1.ReplicationControllerSpec{Replicas: new(int32), Template: ptr.To(podTemplate("rc", "i"))}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.CoreV1().Services(w.ns).Create(w.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	w.must(err)
	w.claim("c", claimSpec(class, "1Gi"))
	w.uses("q", "services=1", "secrets=1", "configmaps=2", "persistentvolumeclaims=1", "requests.storage=1Gi", "count/replicasets.apps=1", "replicationcontrollers=1", class+".storageclass.storage.k8s.io/persistentvolumeclaims=1")
	_, err = w.client.CoreV1().PersistentVolumeClaims(w.ns).Create(w.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Spec: claimSpec(class, "5Gi")}, metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "exceeded quota: q", "requested: requests.storage=5Gi, used: requests.storage=1Gi, limited: requests.storage=5Gi")
	w.removeBy(replicaSets, "r", metav1.DeletePropagationBackground)
	for _, o := range [][2]string{{"secrets", "s"}, {"configmaps", "m"}, {"services", "s"}, {"replicationcontrollers", "rc"}, {"persistentvolumeclaims", "c"}} {
		w.must(w.at(core(o[0]), w.ns).Delete(w.ctx, o[1], metav1.DeleteOptions{}))
	}
	w.uses("q", "services=0", "secrets=0", "configmaps=1", "persistentvolumeclaims=0", "requests.storage=0", "count/replicasets.apps=0", "replicationcontrollers=0")
}

func (w *world) sizedPod(name, cpu, memory string) *corev1.Pod {
	p := pod(name)
	p.Spec.SchedulerName = "nobody"
	if cpu != "" {
		r := amounts("cpu="+cpu, "memory="+memory)
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: r, Limits: r}
	}
	return p
}

func TestQuotaOfPods(t *testing.T) {
	w := newWorld(t)
	w.quota("q", amounts("pods=5", "requests.cpu=1", "requests.memory=500Mi"))
	pods := w.client.CoreV1().Pods(w.ns)
	w.createPod(w.sizedPod("fits", "500m", "252Mi"))
	w.uses("q", "pods=1", "requests.cpu=500m", "requests.memory=252Mi")
	_, err := pods.Create(w.ctx, w.sizedPod("exceeds", "600m", "100Mi"), metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1")
	_, err = pods.Create(w.ctx, w.sizedPod("says-nothing", "", ""), metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "failed quota: q: must specify requests.cpu", "requests.memory")
	_, err = pods.Patch(w.ctx, "fits", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"100m"}}}]}}`), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid)
	w.must(pods.Delete(w.ctx, "fits", metav1.DeleteOptions{}))
	w.uses("q", "pods=0", "requests.cpu=0", "requests.memory=0")
}

func TestQuotaScopes(t *testing.T) {
	w := newWorld(t)
	w.quota("best-effort", amounts("pods=5"), corev1.ResourceQuotaScopeBestEffort)
	w.quota("not-best-effort", amounts("pods=5"), corev1.ResourceQuotaScopeNotBestEffort)
	w.quota("terminating", amounts("pods=5"), corev1.ResourceQuotaScopeTerminating)
	w.quota("not-terminating", amounts("pods=5"), corev1.ResourceQuotaScopeNotTerminating)
	count := func(best, not, term, notTerm string) {
		t.Helper()
		for q, n := range map[string]string{"best-effort": best, "not-best-effort": not, "terminating": term, "not-terminating": notTerm} {
			w.uses(q, "pods="+n)
		}
	}
	w.createPod(w.sizedPod("best", "", ""))
	count("1", "0", "0", "1")
	bounded := w.sizedPod("bounded", "100m", "10Mi")
	bounded.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
	w.createPod(bounded)
	count("1", "1", "1", "1")
	for _, n := range []string{"best", "bounded"} {
		w.must(w.client.CoreV1().Pods(w.ns).Delete(w.ctx, n, metav1.DeleteOptions{}))
	}
	count("0", "0", "0", "0")
}

// TestQuotaScopesBySelector counts what scope selectors choose, and refuses what is too much of that alone.
func TestQuotaScopesBySelector(t *testing.T) {
	w := newWorld(t)
	class := w.unique("class")
	_, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Value: 10}, metav1.CreateOptions{})
	w.must(err)
	t.Cleanup(func() {
		_ = w.client.SchedulingV1().PriorityClasses().Delete(context.Background(), class, metav1.DeleteOptions{})
	})
	selected := func(name string, hard corev1.ResourceList, scope corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) {
		t.Helper()
		_, err := w.client.CoreV1().ResourceQuotas(w.ns).Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard,
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: scope, Operator: op, Values: values}}}}}, metav1.CreateOptions{})
		w.must(err)
		await(w, core("resourcequotas"), w.ns, name, "to be counted", func(q *corev1.ResourceQuota) bool { return q != nil && len(q.Status.Used) == len(hard) })
	}
	const priority = corev1.ResourceQuotaScopePriorityClass
	selected("in", amounts("pods=1"), priority, corev1.ScopeSelectorOpIn, class, "other")
	selected("not-in", amounts("pods=9"), priority, corev1.ScopeSelectorOpNotIn, class)
	selected("exists", amounts("pods=9"), priority, corev1.ScopeSelectorOpExists)
	selected("none", amounts("pods=9"), priority, corev1.ScopeSelectorOpDoesNotExist)
	selected("cross", amounts("pods=1"), corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ScopeSelectorOpExists)
	selected("best", amounts("pods=9"), corev1.ResourceQuotaScopeBestEffort, corev1.ScopeSelectorOpExists)
	selected("attributes", amounts("persistentvolumeclaims=1"), corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpIn, "gold")

	plain, high, near, room := pod("plain"), pod("high"), pod("near"), pod("room")
	high.Spec.PriorityClassName = class
	near.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1,
		PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", Namespaces: []string{"default"}, LabelSelector: &metav1.LabelSelector{}}}}}}
	room.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	for _, p := range []*corev1.Pod{plain, high, near, room} {
		w.createPod(p)
	}
	for q, n := range map[string]string{"in": "1", "not-in": "3", "exists": "1", "none": "3", "cross": "1", "best": "4"} {
		w.uses(q, "pods="+n)
	}
	for _, p := range []struct {
		*corev1.Pod
		quota string
	}{{high, "in"}, {near, "cross"}} {
		p.Name, p.ResourceVersion, p.UID = "more", "", ""
		_, err := w.client.CoreV1().Pods(w.ns).Create(w.ctx, p.Pod, metav1.CreateOptions{})
		w.refused(err, apierrors.IsForbidden, "exceeded quota: "+p.quota+", requested: pods=1, used: pods=1, limited: pods=1")
	}
	for i, class := range []string{"gold", "silver", "gold"} {
		spec := claimSpec("nobody", "1Gi")
		spec.VolumeAttributesClassName = &class
		_, err := w.client.CoreV1().PersistentVolumeClaims(w.ns).Create(w.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}, Spec: spec}, metav1.CreateOptions{})
		if i < 2 {
			w.must(err)
			w.uses("attributes", "persistentvolumeclaims=1")
			continue
		}
		w.refused(err, apierrors.IsForbidden, "exceeded quota: attributes")
	}
}

func TestQuotaIsChanged(t *testing.T) {
	w := newWorld(t)
	w.quota("q", amounts("configmaps=1"))
	client := w.client.CoreV1().ResourceQuotas(w.ns)
	_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
	_, err = client.Patch(w.ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":{"configmaps":"2"}}}`), metav1.PatchOptions{})
	w.must(err)
	await(w, core("resourcequotas"), w.ns, "q", "to have the new limit in its status", func(q *corev1.ResourceQuota) bool {
		n := q.Status.Hard[corev1.ResourceConfigMaps]
		return n.Value() == 2
	})
	maps{w}.make("m", "a")
	w.uses("q", "configmaps=2")
	q, err := client.Patch(w.ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":{"configmaps":"9"}},"status":{"used":{"configmaps":"7"}}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if used, hard := q.Status.Used[corev1.ResourceConfigMaps], q.Spec.Hard[corev1.ResourceConfigMaps]; used.Value() != 7 || hard.Value() != 2 {
		t.Errorf("status patched: %+v", q)
	}
	w.must(client.DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.gone(core("resourcequotas"), w.ns, "q")
	maps{w}.make("free", "a")
}

// TestLimitRangeFillsInAndBounds what containers ask for.
func TestLimitRangeFillsInAndBounds(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().LimitRanges(w.ns).Create(w.ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
		Min: amounts("cpu=50m", "memory=100Mi"), Max: amounts("cpu=500m", "memory=500Mi"), Default: amounts("cpu=400m", "memory=400Mi"), DefaultRequest: amounts("cpu=100m", "memory=200Mi")}}}}, metav1.CreateOptions{})
	w.must(err)
	p := w.createPod(w.sizedPod("p", "", ""))
	r := p.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "100m" || r.Requests.Memory().String() != "200Mi" || r.Limits.Cpu().String() != "400m" || r.Limits.Memory().String() != "400Mi" {
		t.Errorf("filled in: %+v", r)
	}
	_, err = w.client.CoreV1().Pods(w.ns).Create(w.ctx, w.sizedPod("small", "10m", "200Mi"), metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "minimum cpu usage per Container is 50m")
	_, err = w.client.CoreV1().Pods(w.ns).Create(w.ctx, w.sizedPod("large", "600m", "200Mi"), metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "maximum cpu usage per Container is 500m")
}
