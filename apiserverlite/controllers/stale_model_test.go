package controllers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// TestStaleCachesModel changes a cluster at random while watches of the controllers are held back and let go at random.
// When all is let go and quiet, controllers with fresh caches must find nothing to do: what the old ones left is what they
// would have left had they seen everything at once.
func TestStaleCachesModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 30).Draw(rt, "steps")
		bad := ""
		synctest.Test(t, func(t *testing.T) { bad = playStale(t, steps) })
		if bad != "" {
			rt.Fatal(bad)
		}
	})
}

// step is one change; n varies it.
type step struct {
	do     string
	n      int
	settle bool // before the next one
}

func (s step) String() string { return fmt.Sprintf("%s/%d/%v", s.do, s.n, s.settle) }

func drawStep(rt *rapid.T) step {
	return step{
		do: rapid.SampledFrom(slices.Sorted(maps.Keys(changes))).Draw(rt, "do"), n: rapid.IntRange(0, 11).Draw(rt, "n"), settle: rapid.Bool().Draw(rt, "settle"),
	}
}

// heldKinds are those whose watches are held back.
var heldKinds = []string{"pods", "nodes", "persistentvolumeclaims", "persistentvolumes", "volumeattachments", "resourcequotas", "poddisruptionbudgets",
	"deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "controllerrevisions", "clusterroles", "configmaps", "serviceaccounts", "namespaces", "storageclasses"}

func playStale(t *testing.T, steps []step) string {
	w := newStill(t)
	defer w.plays(w.provisioner, w.attacher, (&kubelet{w: &w.world}).run, w.heartbeats)()
	w.addNode("n1", 5)
	w.addNode("n2", 5)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.addClass("late", storagev1.VolumeBindingWaitForFirstConsumer)
	w.settle()
	for _, s := range steps {
		if err := changes[s.do](w, s.n); err != nil && !expected(err) {
			t.Errorf("%s: %v", s, err)
		}
		if s.settle {
			w.settle()
		}
	}
	w.held.LetGo()
	quiet := func() { time.Sleep(4 * time.Minute); synctest.Wait() }
	quiet()
	before := w.everything()
	w.end()
	w.held.Writes()
	w.begin()
	quiet()
	after := w.everything()
	var diff []string
	for key, v := range before {
		if after[key] != v {
			diff = append(diff, key)
		}
	}
	for key := range after {
		if _, was := before[key]; !was {
			diff = append(diff, "new: "+key)
		}
	}
	if len(diff) == 0 {
		return ""
	}
	slices.Sort(diff)
	if testing.Verbose() {
		w.dump()
	}
	return fmt.Sprintf("fresh controllers changed %v\nby %s", diff, strings.Join(w.held.Writes(), "\n   "))
}

func expected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// heartbeats plays the leases of the nodes.
func (w *still) heartbeats(ctx context.Context) {
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range []string{"n1", "n2"} {
			spec := coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NowMicro())}
			if _, err := leases.Patch(ctx, n, types.MergePatchType, patchBody(map[string]any{"spec": spec}), metav1.PatchOptions{}); apierrors.IsNotFound(err) {
				_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: spec}, metav1.CreateOptions{})
				if err != nil {
					w.t.Errorf("lease: %v", err)
				}
			}
		}
	}
}

// everything there is, by its resourceVersion, without events and leases.
func (w *still) everything() map[string]string {
	w.t.Helper()
	lists, err := w.client.Discovery().ServerPreferredResources()
	w.check(err)
	all := map[string]string{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		w.check(err)
		for _, r := range l.APIResources {
			if r.Name == "events" || r.Name == "leases" || !slices.Contains(r.Verbs, "list") {
				continue
			}
			items, err := w.meta.Resource(gv.WithResource(r.Name)).List(w.ctx, metav1.ListOptions{})
			w.check(err)
			for _, o := range items.Items {
				all[r.Name+" "+o.Namespace+"/"+o.Name] = o.ResourceVersion
			}
		}
	}
	return all
}

func of[T any](list []T, n int) T { return list[n%len(list)] }

func patchBody(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// changes are what can happen. An error of one that cannot happen now is expected.
var changes = map[string]func(w *still, n int) error{
	"hold":   func(w *still, n int) error { w.held.Hold(of(heldKinds, n)); return nil },
	"hold2":  func(w *still, n int) error { w.held.Hold(of(heldKinds, n+9)); return nil },
	"let go": func(w *still, n int) error { w.held.LetGo(of(heldKinds, n), of(heldKinds, n+9)); return nil },

	"node comes": func(w *still, n int) error {
		name := of([]string{"n1", "n2"}, n)
		_, err := w.client.CoreV1().Nodes().Create(w.ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region, corev1.LabelHostname: name},
				Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, metav1.CreateOptions{})
		return err
	},
	"node goes": func(w *still, n int) error {
		return w.client.CoreV1().Nodes().Delete(w.ctx, of([]string{"n1", "n2"}, n), metav1.DeleteOptions{})
	},
	"node changes": func(w *still, n int) error {
		spec := of([]map[string]any{
			{"taints": []corev1.Taint{{Key: "out", Effect: corev1.TaintEffectNoExecute}}}, {"taints": nil}, {"unschedulable": true}, {"unschedulable": false},
		}, n/2)
		_, err := w.client.CoreV1().Nodes().Patch(w.ctx, of([]string{"n1", "n2"}, n), types.MergePatchType, patchBody(map[string]any{"spec": spec}), metav1.PatchOptions{})
		return err
	},
	"claim comes": func(w *still, n int) error {
		_, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, claim(of([]string{"a", "b"}, n), of([]string{"fast", "late", ""}, n/2)), metav1.CreateOptions{})
		return err
	},
	"claim goes": func(w *still, n int) error {
		return w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, of([]string{"a", "b", "data-web-0", "data-web-1"}, n), metav1.DeleteOptions{})
	},
	"volume comes": func(w *still, n int) error {
		_, err := w.client.CoreV1().PersistentVolumes().Create(w.ctx, static(of([]string{"v", "u"}, n), ""), metav1.CreateOptions{})
		return err
	},
	"volume goes": func(w *still, n int) error {
		return w.client.CoreV1().PersistentVolumes().Delete(w.ctx, of([]string{"v", "u"}, n), metav1.DeleteOptions{})
	},
	"pod comes": func(w *still, n int) error {
		p := pod(of([]string{"p", "q"}, n), of([][]string{nil, {"a"}, {"b"}}, n/2)...)
		if n%4 > 1 {
			p.Labels = map[string]string{"app": "web"}
		}
		if n%3 == 0 {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "late").Spec}}}})
		}
		if n%5 == 0 {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "out", Operator: corev1.TolerationOpExists}}
		}
		_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
		return err
	},
	"pod goes": func(w *still, n int) error {
		l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return err
		}
		return w.client.CoreV1().Pods("default").Delete(w.ctx, of(l.Items, n).Name, metav1.DeleteOptions{})
	},
	"pod changes": func(w *still, n int) error {
		l, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return err
		}
		body := of([]any{
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "other"}}}, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}},
			map[string]any{"metadata": map[string]any{"ownerReferences": nil}},
		}, n/4)
		_, err = w.client.CoreV1().Pods("default").Patch(w.ctx, of(l.Items, n).Name, types.MergePatchType, patchBody(body), metav1.PatchOptions{})
		return err
	},
	"quota comes": func(w *still, n int) error {
		_, err := w.client.CoreV1().ResourceQuotas("default").Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"pods": resource.MustParse("20"), "requests.storage": resource.MustParse("20Gi"), "configmaps": resource.MustParse("9"), "count/jobs.batch": resource.MustParse("3")}}}, metav1.CreateOptions{})
		return err
	},
	"quota changes": func(w *still, n int) error {
		_, err := w.client.CoreV1().ResourceQuotas("default").Patch(w.ctx, "q", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"hard":{"pods":"%d"}}}`, 10+n), metav1.PatchOptions{})
		return err
	},
	"budget comes": func(w *still, n int) error {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
		if n%2 == 0 {
			b.Spec.MinAvailable = ptr.To(intstr.FromString("50%"))
		} else {
			b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		}
		_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, b, metav1.CreateOptions{})
		return err
	},
	"budget goes": func(w *still, n int) error {
		return w.client.PolicyV1().PodDisruptionBudgets("default").Delete(w.ctx, "b", metav1.DeleteOptions{})
	},
	"owner comes": func(w *still, n int) (err error) {
		switch n % 5 {
		case 0:
			d := deploymentOf(2)
			if n > 5 {
				d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
			}
			_, err = w.client.AppsV1().Deployments("default").Create(w.ctx, d, metav1.CreateOptions{})
		case 1:
			s := statefulSet(2)
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
			_, err = w.client.AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
		case 2:
			s := daemonSet()
			if n > 5 {
				s.Spec.Template.Labels["app"], s.Spec.Selector.MatchLabels["app"] = "other", "other"
			}
			_, err = w.client.AppsV1().DaemonSets("default").Create(w.ctx, s, metav1.CreateOptions{})
		case 3:
			_, err = w.client.AppsV1().ReplicaSets("default").Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "crowd"}, Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}, metav1.CreateOptions{})
		case 4:
			_, err = w.client.BatchV1().Jobs("default").Create(w.ctx, jobNamed("job", func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr.To[int32](2), ptr.To[int32](3) }), metav1.CreateOptions{})
		}
		return err
	},
	"owner changes": func(w *still, n int) (err error) {
		image := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"%s"}]}}}}`, of([]string{"one", "two", "three"}, n))
		size := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n%4)
		body := of([][]byte{image, size}, n/3)
		apps, o := w.client.AppsV1(), metav1.PatchOptions{}
		switch n % 5 {
		case 0:
			_, err = apps.Deployments("default").Patch(w.ctx, "front", types.StrategicMergePatchType, body, o)
		case 1:
			_, err = apps.StatefulSets("default").Patch(w.ctx, "web", types.StrategicMergePatchType, body, o)
		case 2:
			_, err = apps.DaemonSets("default").Patch(w.ctx, "agent", types.StrategicMergePatchType, image, o)
		case 3:
			_, err = apps.ReplicaSets("default").Patch(w.ctx, "crowd", types.StrategicMergePatchType, size, o)
		case 4:
			_, err = w.client.BatchV1().Jobs("default").Patch(w.ctx, "job", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%v}}`, n > 5), o)
		}
		return err
	},
	"owner goes": func(w *still, n int) error {
		o := metav1.DeleteOptions{PropagationPolicy: ptr.To(of([]metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}, n/5))}
		apps := w.client.AppsV1()
		switch n % 5 {
		case 0:
			return apps.Deployments("default").Delete(w.ctx, "front", o)
		case 1:
			return apps.StatefulSets("default").Delete(w.ctx, "web", o)
		case 2:
			return apps.DaemonSets("default").Delete(w.ctx, "agent", o)
		case 3:
			return apps.ReplicaSets("default").Delete(w.ctx, "crowd", o)
		}
		return w.client.BatchV1().Jobs("default").Delete(w.ctx, "job", o)
	},
	"role": func(w *still, n int) error {
		roles := w.client.RbacV1().ClusterRoles()
		switch n % 4 {
		case 0:
			_, err := roles.Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"in": "all"}}}}}, metav1.CreateOptions{})
			return err
		case 1:
			_, err := roles.Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: map[string]string{"in": "all"}},
				Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{})
			return err
		case 2:
			return roles.Delete(w.ctx, "part", metav1.DeleteOptions{})
		}
		_, err := roles.Patch(w.ctx, "all", types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
		return err
	},
	"furniture": func(w *still, n int) error {
		configs := w.client.CoreV1().ConfigMaps("default")
		switch n % 4 {
		case 0:
			return w.client.CoreV1().ServiceAccounts("default").Delete(w.ctx, "default", metav1.DeleteOptions{})
		case 1:
			_, err := configs.Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "forged"}}, metav1.CreateOptions{})
			return err
		case 2:
			_, err := configs.Patch(w.ctx, "kube-root-ca.crt", types.MergePatchType, []byte(`{"data":{"ca.crt":"forged"}}`), metav1.PatchOptions{})
			return err
		}
		return configs.Delete(w.ctx, "kube-root-ca.crt", metav1.DeleteOptions{})
	},
	"namespace": func(w *still, n int) error {
		switch n % 3 {
		case 0:
			_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
			return err
		case 1:
			p := pod("p")
			p.Namespace = "shop"
			_, err := w.client.CoreV1().Pods("shop").Create(w.ctx, p, metav1.CreateOptions{})
			return err
		}
		return w.client.CoreV1().Namespaces().Delete(w.ctx, "shop", metav1.DeleteOptions{})
	},
}
