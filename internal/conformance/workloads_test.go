package conformance

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

var (
	statefulSets = in("apps", "v1", "statefulsets")
	daemonSets   = in("apps", "v1", "daemonsets")
)

// until waits until done says so of all objects of a kind in the test's namespace.
func (w *world) until(what string, r schema.GroupVersionResource, done func([]unstructured.Unstructured) bool) {
	w.t.Helper()
	stream, err := w.at(r, w.ns).Watch(w.ctx, metav1.ListOptions{AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	w.must(err)
	defer stream.Stop()
	now := map[string]unstructured.Unstructured{}
	synced := false
	for e := range stream.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case !ok:
			w.t.Fatalf("watch %s: %+v", r.Resource, e)
		case e.Type == watch.Bookmark:
			synced = true
		case e.Type == watch.Deleted:
			delete(now, o.GetName())
		default:
			now[o.GetName()] = *o
		}
		var all []unstructured.Unstructured
		for _, o := range now {
			all = append(all, o)
		}
		if synced && done(all) {
			return
		}
	}
	w.t.Fatalf("waited in vain until %s; last seen: %v", what, now)
}

// only is the one object of its kind in the test's namespace.
func (w *world) only(r schema.GroupVersionResource) *unstructured.Unstructured {
	w.t.Helper()
	list, err := w.at(r, w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	if len(list.Items) != 1 {
		w.t.Fatalf("%d %s, want 1: %v", len(list.Items), r.Resource, list.Items)
	}
	return &list.Items[0]
}

func podTemplate(app, image string) corev1.PodTemplateSpec {
	s := podSpec()
	s.Containers[0].Image = image
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: s}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// deploy makes a deployment and waits until all of it is available.
func (w *world) deploy(name string, replicas int32) *appsv1.Deployment {
	w.t.Helper()
	_, err := w.client.AppsV1().Deployments(w.ns).Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled("app=" + name)},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selects(name), Template: podTemplate(name, "i:1")}}, metav1.CreateOptions{})
	w.must(err)
	return w.rolledOut(name, replicas)
}

func (w *world) rolledOut(name string, replicas int32) *appsv1.Deployment {
	w.t.Helper()
	return await(w, deployments, w.ns, name, "to be rolled out", func(d *appsv1.Deployment) bool {
		return d != nil && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas && d.Status.Replicas == replicas
	})
}

// TestDeploymentRollsOut a new template by a second replica set, back by the first, and scales by its subresource.
func TestDeploymentRollsOut(t *testing.T) {
	w := newWorld(t)
	w.deploy("d", 2)
	first := w.only(replicaSets).GetName()
	image := func(i string) {
		t.Helper()
		_, err := w.client.AppsV1().Deployments(w.ns).Patch(w.ctx, "d", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"`+i+`"}]}}}}`), metav1.PatchOptions{})
		w.must(err)
		w.rolledOut("d", 2)
	}
	image("i:2")
	list, err := w.client.AppsV1().ReplicaSets(w.ns).List(w.ctx, metav1.ListOptions{LabelSelector: "app=d"})
	w.must(err)
	for _, rs := range list.Items {
		old := rs.Name == first
		if old && *rs.Spec.Replicas != 0 || !old && (*rs.Spec.Replicas != 2 || rs.Annotations["deployment.kubernetes.io/revision"] != "2") || !metav1.IsControlledBy(&rs, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: rs.OwnerReferences[0].UID}}) {
			t.Errorf("replica set %s: %+v %v", rs.Name, rs.Spec.Replicas, rs.Annotations)
		}
	}
	image("i:1")
	await(w, replicaSets, w.ns, first, "to be the current one again", func(rs *appsv1.ReplicaSet) bool {
		return rs != nil && *rs.Spec.Replicas == 2 && rs.Annotations["deployment.kubernetes.io/revision"] == "3"
	})
	sc, err := w.client.AppsV1().Deployments(w.ns).GetScale(w.ctx, "d", metav1.GetOptions{})
	w.must(err)
	if sc.Spec.Replicas != 2 || sc.Status.Selector != "app=d" {
		t.Errorf("scale: %+v", sc)
	}
	sc.Spec.Replicas = 3
	_, err = w.client.AppsV1().Deployments(w.ns).UpdateScale(w.ctx, "d", sc, metav1.UpdateOptions{})
	w.must(err)
	w.rolledOut("d", 3)
}

func TestDeploymentRecreates(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.AppsV1().Deployments(w.ns).Create(w.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, Selector: selects("d"), Template: podTemplate("d", "i:1")}}, metav1.CreateOptions{})
	w.must(err)
	w.rolledOut("d", 1)
	stream, err := w.client.CoreV1().Pods(w.ns).Watch(w.ctx, metav1.ListOptions{})
	w.must(err)
	defer stream.Stop()
	_, err = w.client.AppsV1().Deployments(w.ns).Patch(w.ctx, "d", types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"i:2"}]`), metav1.PatchOptions{})
	w.must(err)
	w.rolledOut("d", 1)
	live := map[string]bool{}
	for e := range stream.ResultChan() {
		p := e.Object.(*corev1.Pod)
		switch e.Type {
		case watch.Deleted:
			delete(live, p.Name)
		case watch.Added:
			if live[p.Name] = true; len(live) > 1 {
				t.Errorf("an old and a new pod at the same time: %v", live)
			}
		}
		if p.Spec.Containers[0].Image == "i:2" && ready(p) {
			break
		}
	}
}

// TestReplicaSetAdoptsAndReleases pods by their labels.
func TestReplicaSetAdoptsAndReleases(t *testing.T) {
	w := newWorld(t)
	w.createPod(pod("orphan", "app=r"))
	_, err := w.client.AppsV1().ReplicaSets(w.ns).Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selects("r"), Template: podTemplate("r", "i:1")}}, metav1.CreateOptions{})
	w.must(err)
	adopted := await(w, core("pods"), w.ns, "orphan", "to be adopted", func(p *corev1.Pod) bool { return p != nil && metav1.GetControllerOf(p) != nil })
	if c := metav1.GetControllerOf(adopted); c.Kind != "ReplicaSet" || c.Name != "r" {
		t.Errorf("adopted by %+v", c)
	}
	w.until("the set counts it", replicaSets, func(l []unstructured.Unstructured) bool {
		return len(l) == 1 && field(&l[0], "status", "readyReplicas") == int64(1)
	})
	w.only(core("pods"))
	_, err = w.client.CoreV1().Pods(w.ns).Patch(w.ctx, "orphan", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{})
	w.must(err)
	await(w, core("pods"), w.ns, "orphan", "to be released", func(p *corev1.Pod) bool { return p != nil && metav1.GetControllerOf(p) == nil })
	w.until("another takes its place", core("pods"), func(l []unstructured.Unstructured) bool { return len(l) == 2 })
}

func TestWorkloadsScale(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.AppsV1().ReplicaSets(w.ns).Create(w.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selects("r"), Template: podTemplate("r", "i:1")}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.AppsV1().StatefulSets(w.ns).Create(w.ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: selects("s"), Template: podTemplate("s", "i:1")}}, metav1.CreateOptions{})
	w.must(err)
	sc, err := w.client.AppsV1().ReplicaSets(w.ns).UpdateScale(w.ctx, "r", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: w.ns}, Spec: autoscalingv1.ScaleSpec{Replicas: 2}}, metav1.UpdateOptions{})
	w.must(err)
	if sc.Spec.Replicas != 2 {
		t.Errorf("scale: %+v", sc)
	}
	_, err = w.client.AppsV1().StatefulSets(w.ns).Patch(w.ctx, "s", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
	w.must(err)
	w.until("four pods are ready", core("pods"), func(l []unstructured.Unstructured) bool {
		n := 0
		for _, o := range l {
			for _, c := range conditions(&o) {
				if c["type"] == "Ready" && c["status"] == "True" {
					n++
				}
			}
		}
		return n == 4
	})
}

func conditions(o *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var out []map[string]any
	for _, c := range list {
		out = append(out, c.(map[string]any))
	}
	return out
}

// TestStatefulSetKeepsItsOrder upwards and downwards, with a claim for each pod that outlives it.
func TestStatefulSetKeepsItsOrder(t *testing.T) {
	w := newWorld(t)
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec(w.class("Immediate"), "1Gi")}
	tmpl := podTemplate("s", "i:1")
	tmpl.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	stream, err := w.client.CoreV1().Pods(w.ns).Watch(w.ctx, metav1.ListOptions{})
	w.must(err)
	defer stream.Stop()
	_, err = w.client.AppsV1().StatefulSets(w.ns).Create(w.ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), ServiceName: "s", Selector: selects("s"), Template: tmpl, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim}}}, metav1.CreateOptions{})
	w.must(err)
	full := func(s *appsv1.StatefulSet) bool { return s != nil && s.Status.ReadyReplicas == 3 }
	await(w, statefulSets, w.ns, "s", "to be ready", full)
	for i := range 3 {
		c, err := w.client.CoreV1().PersistentVolumeClaims(w.ns).Get(w.ctx, fmt.Sprint("data-s-", i), metav1.GetOptions{})
		w.must(err)
		if c.Status.Phase != corev1.ClaimBound {
			t.Errorf("claim %s is %s", c.Name, c.Status.Phase)
		}
	}
	_, err = w.client.AppsV1().StatefulSets(w.ns).Patch(w.ctx, "s", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	w.must(err)
	await(w, statefulSets, w.ns, "s", "to be empty", func(s *appsv1.StatefulSet) bool {
		return s != nil && s.Status.ObservedGeneration == s.Generation && s.Status.Replicas == 0
	})
	var order []string
	up := map[string]bool{}
	for len(order) < 6 {
		e := <-stream.ResultChan()
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("watch: %+v", e)
		}
		switch {
		case e.Type == watch.Added:
			order = append(order, "+"+p.Name)
			for n, isReady := range up {
				if !isReady {
					t.Errorf("%s was made before %s was ready", p.Name, n)
				}
			}
			up[p.Name] = false
		case e.Type == watch.Deleted:
			order = append(order, "-"+p.Name)
		case ready(p):
			up[p.Name] = true
		}
	}
	if got := strings.Join(order, " "); got != "+s-0 +s-1 +s-2 -s-2 -s-1 -s-0" {
		t.Errorf("order: %s", got)
	}
	claims, err := w.client.CoreV1().PersistentVolumeClaims(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	if len(claims.Items) != 3 {
		t.Errorf("%d claims are left", len(claims.Items))
	}
}

// TestDaemonSetFollowsNodeLabels and makes a pod that is lost again.
func TestDaemonSetFollowsNodeLabels(t *testing.T) {
	w := newWorld(t)
	tmpl := podTemplate("ds", "i:1")
	tmpl.Spec.NodeSelector = map[string]string{w.ns: "yes"}
	_, err := w.client.AppsV1().DaemonSets(w.ns).Create(w.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds"}, Spec: appsv1.DaemonSetSpec{Selector: selects("ds"), Template: tmpl}}, metav1.CreateOptions{})
	w.must(err)
	count := func(n int32) {
		t.Helper()
		await(w, daemonSets, w.ns, "ds", fmt.Sprintf("to run on %d nodes", n), func(d *appsv1.DaemonSet) bool {
			return d != nil && d.Status.ObservedGeneration == d.Generation && d.Status.DesiredNumberScheduled == n && d.Status.NumberReady == n && d.Status.CurrentNumberScheduled == n
		})
	}
	label := func(node, value string) {
		t.Helper()
		_, err := w.client.CoreV1().Nodes().Patch(w.ctx, node, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+w.ns+`":`+value+`}}}`), metav1.PatchOptions{})
		w.must(err)
	}
	count(0)
	label("n1", `"yes"`)
	label("n2", `"yes"`)
	count(2)
	label("n1", "null")
	w.until("only n2 has one", core("pods"), func(l []unstructured.Unstructured) bool {
		return len(l) == 1 && field(&l[0], "spec", "nodeName") == "n2"
	})
	lost := w.only(core("pods"))
	w.must(w.client.CoreV1().Pods(w.ns).Delete(w.ctx, lost.GetName(), metav1.DeleteOptions{}))
	w.until("the lost pod is made again", core("pods"), func(l []unstructured.Unstructured) bool { return len(l) == 1 && l[0].GetUID() != lost.GetUID() })
	count(1)
	label("n2", "null")
	count(0)
}
