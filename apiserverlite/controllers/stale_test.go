package controllers_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// TestStaleCaches has each controller work from caches that are behind, or makes a change that is easily taken for no
// news, and looks whether it comes right when everything was seen. Nothing else happens meanwhile that could save it.
// TestStaleCachesModel does so at random.
func TestStaleCaches(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*still)
	}{
		{"a quota's own status is seen late", staleQuota},
		{"a pod leaves a quota's scope", quotaScope},
		{"the scheduler's own verdict is seen late", staleVerdict},
		{"a node goes while a pod waits", verdictOfFewerNodes},
		{"an owner is scaled and no pod follows", budgetOfScaledOwner},
		{"an orphan comes that a daemon set adopts", daemonSetAdopts},
		{"a stateful set's own revision is seen late", staleRevision},
		{"a foreign pod stands in a stateful set's place", podInTheWay},
		{"a claim of a stateful set goes", claimOfSetGoes},
		{"what a pod was before it was deleted is seen late", staleRemoval},
		{"time is advanced while a pod that was made is not seen", timeJumps},
		{"a pod tolerates a taint for less long", shorterToleration},
		{"a forged root certificate comes before its predecessor's end is seen", forgedRootCertificate},
		{"a node is made again", nodeMadeAgain},
		{"a node's use of a volume is seen late", staleUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.play(newStill(t)) })
		})
	}
}

func (w *still) addQuota(spec corev1.ResourceQuotaSpec) {
	w.t.Helper()
	_, err := w.client.CoreV1().ResourceQuotas("default").Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: spec}, metav1.CreateOptions{})
	w.check(err)
}

// used looks what of a quota is used when all is quiet.
func (w *still) used(name corev1.ResourceName, want string) {
	w.t.Helper()
	w.settle()
	q, err := w.client.CoreV1().ResourceQuotas("default").Get(w.ctx, "q", metav1.GetOptions{})
	w.check(err)
	if got := q.Status.Used[name]; got.String() != want {
		w.t.Errorf("used of %s: %s, not %s", name, got.String(), want)
	}
}

func staleQuota(w *still) {
	w.addQuota(corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.storage": resource.MustParse("2Gi")}})
	w.addClaim("one", "nobody")
	w.used("requests.storage", "1Gi")
	w.held.Hold("resourcequotas")
	w.addClaim("two", "nobody")
	w.used("requests.storage", "2Gi")
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "two", metav1.DeleteOptions{}))
	w.used("requests.storage", "2Gi")
	w.held.LetGo()
	w.used("requests.storage", "1Gi")
}

func quotaScope(w *still) {
	w.addQuota(corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}})
	w.addPod("p")
	w.used("pods", "1")
	w.patchPod("p", `{"spec":{"activeDeadlineSeconds":3600}}`)
	w.used("pods", "0")
}

func (w *still) patchPod(name, body string, subresources ...string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods("default").Patch(w.ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	w.check(err)
}

// verdict is what a pod says why it waits, when all is quiet.
func (w *still) verdict(pod string) string {
	w.t.Helper()
	w.settle()
	p, err := w.client.CoreV1().Pods("default").Get(w.ctx, pod, metav1.GetOptions{})
	w.check(err)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

func staleVerdict(w *still) {
	w.addNode("n1", 1)
	w.addPod("p", "missing")
	one := w.verdict("p")
	w.held.Hold("pods")
	w.addClass("late", storagev1.VolumeBindingImmediate)
	w.addClaim("missing", "late")
	if two := w.verdict("p"); one == "" || two == one {
		w.t.Fatalf("verdicts: %q, %q", one, two)
	}
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "missing", metav1.DeleteOptions{}))
	w.settle()
	w.held.LetGo()
	if last := w.verdict("p"); last != one {
		w.t.Errorf("the pod says %q, not %q", last, one)
	}
}

func verdictOfFewerNodes(w *still) {
	w.addNode("n1", 1)
	one := func() string { w.addPod("p", "missing"); return w.verdict("p") }()
	w.addNode("n2", 1)
	if two := w.verdict("p"); two == one {
		w.t.Fatalf("verdict: %q", two)
	}
	w.check(w.client.CoreV1().Nodes().Delete(w.ctx, "n2", metav1.DeleteOptions{}))
	if last := w.verdict("p"); last != one {
		w.t.Errorf("the pod says %q, not %q", last, one)
	}
}

func budgetOfScaledOwner(w *still) {
	w.addQuota(corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}})
	w.addBudget("b", func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.FromString("50%")) })
	expected := func(want int32) {
		w.t.Helper()
		w.settle()
		b, err := w.client.PolicyV1().PodDisruptionBudgets("default").Get(w.ctx, "b", metav1.GetOptions{})
		w.check(err)
		if b.Status.ExpectedPods != want {
			w.t.Errorf("%d pods are expected, not %d", b.Status.ExpectedPods, want)
		}
	}
	w.addDeployment(2)
	expected(2)
	_, err := w.client.AppsV1().Deployments("default").Patch(w.ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{})
	w.check(err)
	expected(6)
}

func daemonSetAdopts(w *still) {
	w.addNode("n1", 1)
	_, err := w.client.AppsV1().DaemonSets("default").Create(w.ctx, daemonSet(), metav1.CreateOptions{})
	w.check(err)
	w.settle()
	p := pod("orphan")
	p.Labels, p.Spec.NodeName = map[string]string{"app": "agent"}, "n1"
	_, err = w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	w.settle()
	l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	for i := range l.Items {
		if p := &l.Items[i]; metav1.GetControllerOf(p) == nil {
			w.t.Errorf("%s has no owner", p.Name)
		}
	}
}

func staleRevision(w *still) {
	sets := w.client.AppsV1().StatefulSets("default")
	s := statefulSet(1)
	s.Spec.VolumeClaimTemplates, s.Spec.Template.Spec.Containers[0].VolumeMounts = nil, nil
	_, err := sets.Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	image := func(name string) (revision string) {
		w.t.Helper()
		_, err := sets.Patch(w.ctx, "web", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"`+name+`"}]}}}}`), metav1.PatchOptions{})
		w.check(err)
		w.settle()
		s, err := sets.Get(w.ctx, "web", metav1.GetOptions{})
		w.check(err)
		return s.Status.UpdateRevision
	}
	w.settle()
	image("two")
	w.held.Hold("controllerrevisions")
	one, two := image("one"), image("two")
	w.held.LetGo()
	w.settle()
	number := func(name string) int64 {
		r, err := w.client.AppsV1().ControllerRevisions("default").Get(w.ctx, name, metav1.GetOptions{})
		w.check(err)
		return r.Revision
	}
	if number(two) <= number(one) {
		w.t.Errorf("the newest revision has number %d, the one before %d", number(two), number(one))
	}
}

func podInTheWay(w *still) {
	foreign := pod("web-0")
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, foreign, metav1.CreateOptions{})
	w.check(err)
	_, err = w.client.AppsV1().StatefulSets("default").Create(w.ctx, statefulSet(1), metav1.CreateOptions{})
	w.check(err)
	w.settle()
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "web-0", metav1.DeleteOptions{}))
	w.settle()
	p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "web-0", metav1.GetOptions{})
	if err != nil || metav1.GetControllerOf(p) == nil {
		w.t.Errorf("the set's own pod: %v, %v", p, err)
	}
}

func claimOfSetGoes(w *still) {
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, statefulSet(1), metav1.CreateOptions{})
	w.check(err)
	w.settle()
	claims := w.client.CoreV1().PersistentVolumeClaims("default")
	was, err := claims.Get(w.ctx, "data-web-0", metav1.GetOptions{})
	w.check(err)
	w.check(claims.Delete(w.ctx, "data-web-0", metav1.DeleteOptions{}))
	w.settle()
	if now, err := claims.Get(w.ctx, "data-web-0", metav1.GetOptions{}); err != nil || now.UID == was.UID {
		w.t.Errorf("the claim is not made again: %v", err)
	}
}

// staleRemoval scales down by one, and then shows how the pod that went and another were before: on that picture the
// other one would have to go as well.
func staleRemoval(w *still) {
	w.addNode("n1", 1)
	sets := w.client.AppsV1().ReplicaSets("default")
	_, err := sets.Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "crowd"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}, metav1.CreateOptions{})
	w.check(err)
	w.settle()
	pods := w.web()
	ready := func(name string, status corev1.ConditionStatus) {
		w.patchPod(name, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"`+string(status)+`"}]}}`, "status")
		w.settle()
	}
	ready(pods[0], corev1.ConditionFalse)
	ready(pods[1], corev1.ConditionTrue)
	ready(pods[2], corev1.ConditionTrue)
	w.held.Hold("pods")
	ready(pods[0], corev1.ConditionTrue)
	ready(pods[1], corev1.ConditionFalse)
	_, err = sets.Patch(w.ctx, "crowd", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	w.check(err)
	for range 2 {
		w.settle()
		w.held.Step("pods")
	}
	w.settle()
	if left := w.web(); !slices.Equal(left, pods[1:]) {
		w.t.Errorf("of %v there are %v left", pods, left)
	}
	w.held.LetGo()
	w.settle()
	if left := w.web(); !slices.Equal(left, pods[1:]) {
		w.t.Errorf("of %v there are %v left at last", pods, left)
	}
}

func timeJumps(w *still) {
	w.held.Hold("pods")
	sets := w.client.AppsV1().ReplicaSets("default")
	_, err := sets.Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "crowd"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}, metav1.CreateOptions{})
	w.check(err)
	w.settle()
	w.clock().Advance(time.Hour)
	w.settle()
	if pods := w.web(); len(pods) != 2 {
		w.t.Errorf("%d pods for two", len(pods))
	}
	w.held.LetGo()
	w.settle()
	if pods := w.web(); len(pods) != 2 {
		w.t.Errorf("%d pods for two at last", len(pods))
	}
}

func shorterToleration(w *still) {
	w.addNode("n1", 1)
	p := pod("p")
	p.Spec.Tolerations = []corev1.Toleration{{Key: "out", Operator: corev1.TolerationOpExists}}
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	w.settle()
	_, err = w.client.CoreV1().Nodes().Patch(w.ctx, "n1", types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"out","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	w.check(err)
	w.settle()
	w.patchPod("p", `{"spec":{"tolerations":[{"key":"out","operator":"Exists"},{"key":"out","operator":"Exists","effect":"NoExecute","tolerationSeconds":10}]}}`)
	time.Sleep(20 * time.Second)
	w.settle()
	if p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "p", metav1.GetOptions{}); err == nil && p.DeletionTimestamp == nil {
		w.t.Error("the pod stays on the node beyond its time")
	}
}

func forgedRootCertificate(w *still) {
	const name = "kube-root-ca.crt"
	configs := w.client.CoreV1().ConfigMaps("default")
	w.held.Hold("configmaps")
	w.check(configs.Delete(w.ctx, name, metav1.DeleteOptions{}))
	w.settle()
	_, err := configs.Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"ca.crt": "forged"}}, metav1.CreateOptions{})
	w.check(err)
	w.settle()
	w.held.Step("configmaps") // the end of the first
	w.settle()
	w.held.LetGo()
	w.settle()
	m, err := configs.Get(w.ctx, name, metav1.GetOptions{})
	w.check(err)
	if m.Data["ca.crt"] != "" {
		w.t.Errorf("the root certificate is %q", m.Data["ca.crt"])
	}
}

func nodeMadeAgain(w *still) {
	stop := w.plays(w.provisioner, w.attacher)
	defer stop()
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.addNode("n1", 2)
	w.addClaim("a", "fast")
	w.addPod("p", "a")
	attached := func() []corev1.AttachedVolume {
		w.settle()
		n, err := w.client.CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
		w.check(err)
		return n.Status.VolumesAttached
	}
	if len(attached()) != 1 {
		w.t.Fatal("the volume is not attached")
	}
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
	w.check(err)
	w.check(w.client.CoreV1().Nodes().Delete(w.ctx, "n1", metav1.DeleteOptions{}))
	w.settle()
	n.ResourceVersion, n.UID, n.Status.VolumesAttached = "", "", nil
	_, err = w.client.CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{})
	w.check(err)
	if list := attached(); len(list) != 1 {
		w.t.Errorf("the new node is told of %v", list)
	}
}

// staleUse deletes a pod by force whose volume the node uses, which the controller has not seen: no other node may get it.
func staleUse(w *still) {
	defer w.plays(w.provisioner, w.attacher)()
	w.addNode("n1", 2)
	w.addNode("n2", 2)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	c := w.addClaim("data", "fast")
	w.settle()
	w.addPodOn("first", "n1", "data")
	w.settle()
	name := control.UniqueName(driver, "vol-"+string(c.UID))
	w.held.Hold("nodes")
	w.setInUse("n1", name)
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	w.settle()
	w.addPodOn("second", "n2", "data")
	holders := func() (out []string) {
		w.settle()
		l, err := w.client.StorageV1().VolumeAttachments().List(w.ctx, metav1.ListOptions{})
		w.check(err)
		for _, va := range l.Items {
			out = append(out, va.Spec.NodeName)
		}
		return out
	}
	if got := holders(); !slices.Equal(got, []string{"n1"}) {
		w.t.Errorf("attached to %v while n1 uses it", got)
	}
	w.held.LetGo()
	if got := holders(); !slices.Equal(got, []string{"n1"}) {
		w.t.Errorf("attached to %v while n1 uses it and that was seen", got)
	}
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, "n1", metav1.GetOptions{})
	w.check(err)
	if len(n.Status.VolumesAttached) != 1 {
		w.t.Errorf("n1 is told of %v", n.Status.VolumesAttached)
	}
	w.setInUse("n1")
	if got := holders(); !slices.Equal(got, []string{"n2"}) {
		w.t.Errorf("at last attached to %v", got)
	}
}
