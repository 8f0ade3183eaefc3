package controllers_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// kubelet plays the nodes: a pod that is bound runs and is ready, one that is deleted goes. It records the
// order in which pods became ready and went.
type kubelet struct {
	w  *world
	mu sync.Mutex
	// order is guarded by mu: "+name" for ready, "-name" for gone.
	order []string
	news  chan struct{} // guarded by mu: closed by the next word
}

func (k *kubelet) say(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = append(k.order, what)
	if k.news != nil {
		close(k.news)
		k.news = nil
	}
}

// heard waits until the nodes have told of n things, and returns them.
func (k *kubelet) heard(n int) []string {
	for {
		k.mu.Lock()
		if len(k.order) >= n {
			defer k.mu.Unlock()
			return slices.Clone(k.order)
		}
		if k.news == nil {
			k.news = make(chan struct{})
		}
		news := k.news
		k.mu.Unlock()
		select {
		case <-news:
		case <-k.w.ctx.Done():
			return k.told()
		}
	}
}

func (k *kubelet) told() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.order)
}

func (k *kubelet) run(ctx context.Context) {
	pods := k.w.client.CoreV1().Pods("")
	each(ctx, lister(pods.List), pods.Watch, func(o runtime.Object, gone bool) bool {
		p := o.(*corev1.Pod)
		own := k.w.client.CoreV1().Pods(p.Namespace)
		switch {
		case gone:
			k.say("-" + p.Name)
		case p.DeletionTimestamp != nil:
			err := own.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
				k.w.t.Errorf("end pod: %v", err)
			}
		case p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending:
			st := map[string]any{"status": map[string]any{"phase": "Running", "conditions": []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(k.w.lab.Clock.Now())}}}}
			body, _ := json.Marshal(st)
			if _, err := own.Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err == nil {
				k.say("+" + p.Name)
			}
		}
		return false
	})
}

func workloadTemplate(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}}
}

func statefulSet(replicas int32) *appsv1.StatefulSet {
	c := claim("data", "fast")
	c.Namespace, c.Status = "", corev1.PersistentVolumeClaimStatus{}
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "web", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one"),
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*c},
	}}
	s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return s
}

func (w *world) set(done func(*appsv1.StatefulSet) bool) *appsv1.StatefulSet {
	w.t.Helper()
	c := w.client.AppsV1().StatefulSets("default")
	return until(w, "stateful set", lister(c.List), c.Watch, done)
}

func settled(n int32) func(*appsv1.StatefulSet) bool {
	return func(s *appsv1.StatefulSet) bool {
		st := s.Status
		return st.ObservedGeneration == s.Generation && st.Replicas == n && st.AvailableReplicas == n && st.UpdatedReplicas == n && st.CurrentRevision == st.UpdateRevision
	}
}

func (w *world) changeSet(f func(*appsv1.StatefulSet)) {
	w.t.Helper()
	for {
		s, err := w.client.AppsV1().StatefulSets("default").Get(w.ctx, "web", metav1.GetOptions{})
		w.check(err)
		f(s)
		_, err = w.client.AppsV1().StatefulSets("default").Update(w.ctx, s, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			w.check(err)
			return
		}
	}
}

func TestStatefulSetGoesInOrderAndKeepsItsClaims(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.addClass("fast", storagev1.VolumeBindingWaitForFirstConsumer)
	w.start(w.provisioner, w.attacher, k.run)
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, statefulSet(3), metav1.CreateOptions{})
	w.check(err)
	w.set(settled(3))
	if got := k.heard(3); !slices.Equal(got, []string{"+web-0", "+web-1", "+web-2"}) {
		t.Errorf("order of start: %v", got)
	}
	p := w.pod("web-1", func(*corev1.Pod) bool { return true })
	if p.Labels[appsv1.StatefulSetPodNameLabel] != "web-1" || p.Labels[appsv1.PodIndexLabel] != "1" || p.Spec.Hostname != "web-1" || p.Spec.Subdomain != "web" {
		t.Errorf("identity: %v %+v", p.Labels, p.Spec)
	}
	volume := w.claim("data-web-1", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound }).Spec.VolumeName
	w.event("web", "SuccessfulCreate")

	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	w.set(settled(3))
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
	w.set(settled(1))
	want := []string{"+web-0", "+web-1", "+web-2", "-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0", "-web-2", "-web-1"}
	if got := k.heard(len(want)); !slices.Equal(got, want) {
		t.Errorf("order of update and scaling down:\n%v, want\n%v", got, want)
	}
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](2) })
	w.set(settled(2))
	if got := w.claim("data-web-1", func(*corev1.PersistentVolumeClaim) bool { return true }).Spec.VolumeName; got != volume {
		t.Errorf("web-1 came back with volume %s, not %s", got, volume)
	}
	list, err := w.client.AppsV1().ControllerRevisions("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	if len(list.Items) != 2 {
		t.Errorf("%d revisions", len(list.Items))
	}
}

func TestStatefulSetPartitionLeavesTheLowerPods(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.start(w.provisioner, w.attacher, k.run)
	s := statefulSet(3)
	s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2)}}
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	w.set(settled(3))
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	w.set(func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == 1 && s.Status.AvailableReplicas == 3
	})
	for name, image := range map[string]string{"web-0": "one", "web-1": "one", "web-2": "two"} {
		if p := w.pod(name, func(*corev1.Pod) bool { return true }); p.Spec.Containers[0].Image != image {
			t.Errorf("%s runs %s", name, p.Spec.Containers[0].Image)
		}
	}
}

func TestStatefulSetClaimsGoWithScalingAndWithTheSet(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	w.start(w.provisioner, w.attacher, k.run)
	s := statefulSet(2)
	s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	w.set(settled(2))
	w.changeSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
	w.goneClaim("data-web-1")
	w.check(w.client.AppsV1().StatefulSets("default").Delete(w.ctx, "web", metav1.DeleteOptions{}))
	w.goneClaim("data-web-0")
}

func (w *world) goneClaim(name string) {
	w.t.Helper()
	c := w.client.CoreV1().PersistentVolumeClaims("default")
	gone := false
	each(w.ctx, lister(c.List), c.Watch, func(o runtime.Object, g bool) bool {
		gone = g && o.(*corev1.PersistentVolumeClaim).Name == name
		if !gone {
			_, err := c.Get(w.ctx, name, metav1.GetOptions{})
			gone = apierrors.IsNotFound(err)
		}
		return gone
	})
	if !gone {
		if _, err := c.Get(context.Background(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			w.t.Fatalf("claim %s stays", name)
		}
	}
}

func deploymentOf(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "front"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}
}

func TestDeploymentRollsWithinItsBounds(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.start(k.run)
	c := w.client.AppsV1().Deployments("default")
	_, err := c.Create(w.ctx, deploymentOf(4), metav1.CreateOptions{})
	w.check(err)
	done := func(image string) *appsv1.Deployment {
		return until(w, "deployment of "+image, lister(c.List), c.Watch, func(d *appsv1.Deployment) bool {
			return d.Spec.Template.Spec.Containers[0].Image == image && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 4 && d.Status.Replicas == 4 && d.Status.AvailableReplicas == 4
		})
	}
	done("one")
	most, least := 0, 4
	var mu sync.Mutex
	watching, cancel := context.WithCancel(w.ctx)
	pods := map[types.UID]bool{}
	all := make(chan struct{}) // closed when the watch has shown all that ran before
	allSeen := sync.OnceFunc(func() { close(all) })
	wait := w.play(watching, func(ctx context.Context) {
		c := w.client.CoreV1().Pods("default")
		each(ctx, lister(c.List), c.Watch, func(o runtime.Object, gone bool) bool {
			p := o.(*corev1.Pod)
			delete(pods, p.UID)
			if !gone && p.DeletionTimestamp == nil {
				pods[p.UID] = p.Status.Phase == corev1.PodRunning
			}
			running := 0
			for _, ok := range pods {
				if ok {
					running++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if running == 4 {
				allSeen()
			}
			if most >= 5 { // it has begun to move
				least = min(least, running)
			}
			return false
		})
	}, func(ctx context.Context) {
		c := w.client.AppsV1().ReplicaSets("default")
		sizes := map[types.UID]int{}
		each(ctx, lister(c.List), c.Watch, func(o runtime.Object, gone bool) bool {
			s, total := o.(*appsv1.ReplicaSet), 0
			sizes[s.UID] = int(*s.Spec.Replicas)
			for _, n := range sizes {
				total += n
			}
			mu.Lock()
			defer mu.Unlock()
			most = max(most, total)
			return false
		})
	})
	select {
	case <-all:
	case <-w.ctx.Done():
		t.Fatal("the watch does not show the pods")
	}
	_, err = c.Patch(w.ctx, "front", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"two"}]}}}}`), metav1.PatchOptions{})
	w.check(err)
	d := done("two")
	cancel()
	wait()
	if most > 5 || least < 3 { // 25 % of 4, up and down
		t.Errorf("between %d running and %d wanted", least, most)
	}
	if d.Annotations["deployment.kubernetes.io/revision"] != "2" {
		t.Errorf("revision: %v", d.Annotations)
	}
	sets, err := w.client.AppsV1().ReplicaSets("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	if len(sets.Items) != 2 {
		t.Errorf("%d replica sets", len(sets.Items))
	}
	w.event("front", "ScalingReplicaSet")
	until(w, "progress", lister(c.List), c.Watch, func(d *appsv1.Deployment) bool {
		return slices.ContainsFunc(d.Status.Conditions, func(x appsv1.DeploymentCondition) bool { return x.Reason == "NewReplicaSetAvailable" })
	})
}

// TestReplicaSetMakesNoPodTwice scales up and down and looks whether ever more pods were made than wanted.
func TestReplicaSetMakesNoPodTwice(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	w.addNode("n1", 10)
	w.start(k.run)
	c := w.client.AppsV1().ReplicaSets("default")
	s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crowd"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](20),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: workloadTemplate("one")}}
	_, err := c.Create(w.ctx, s, metav1.CreateOptions{})
	w.check(err)
	size := func(n int32) {
		until(w, "replica set", lister(c.List), c.Watch, func(s *appsv1.ReplicaSet) bool {
			return s.Status.AvailableReplicas == n && s.Status.Replicas == n && s.Status.ObservedGeneration == s.Generation
		})
	}
	size(20)
	_, err = c.Patch(w.ctx, "crowd", types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{})
	w.check(err)
	size(7)
	made := 0
	for _, what := range k.told() {
		if what[0] == '+' {
			made++
		}
	}
	if made != 20 {
		t.Errorf("%d pods were made", made)
	}
}

// workloadsRoll brings up one of each kind that makes pods, and gives the deployment a new template.
func workloadsRoll(w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.play(ctx, (&kubelet{w: w}).run)
	defer func() { cancel(); wait() }()
	w.addNode("n1", 7)
	w.addClass("fast", storagev1.VolumeBindingImmediate)
	_, err := w.client.AppsV1().StatefulSets("default").Create(w.ctx, statefulSet(1), metav1.CreateOptions{})
	w.check(err)
	w.set(settled(1))
	c := w.client.AppsV1().Deployments("default")
	d := deploymentOf(1)
	d.Spec.Selector.MatchLabels["app"], d.Spec.Template.Labels["app"] = "front", "front"
	_, err = c.Create(w.ctx, d, metav1.CreateOptions{})
	w.check(err)
	until(w, "deployment", lister(c.List), c.Watch, func(d *appsv1.Deployment) bool { return d.Status.AvailableReplicas == 1 })
	_, err = c.Patch(w.ctx, "front", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"two"}]}}}}`), metav1.PatchOptions{})
	w.check(err)
	until(w, "deployment of two", lister(c.List), c.Watch, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Annotations["deployment.kubernetes.io/revision"] == "2" && d.Status.Replicas == 1 && d.Status.UpdatedReplicas == 1 && d.Status.AvailableReplicas == 1
	})
	ds := w.client.AppsV1().DaemonSets("default")
	set := daemonSet()
	_, err = ds.Create(w.ctx, set, metav1.CreateOptions{})
	w.check(err)
	until(w, "daemon set", lister(ds.List), ds.Watch, func(s *appsv1.DaemonSet) bool { return s.Status.NumberAvailable == 1 })
	pods, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	alive := 0
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			alive++
		}
	}
	if alive > 4 {
		w.t.Errorf("%d pods for three of one each", alive)
	}
}

func daemonSet() *appsv1.DaemonSet {
	s := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Template: workloadTemplate("one")}}
	s.Spec.Template.Labels["app"] = "agent"
	return s
}

func TestDaemonSetHasOnePodOnEachNodeItIsFor(t *testing.T) {
	w := newWorld(t)
	k := &kubelet{w: w}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.addNode(n, 10)
	}
	_, err := w.client.CoreV1().Nodes().Patch(w.ctx, "n2", types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	w.check(err)
	w.start(k.run)
	c := w.client.AppsV1().DaemonSets("default")
	_, err = c.Create(w.ctx, daemonSet(), metav1.CreateOptions{})
	w.check(err)
	on := func(n int32) {
		t.Helper()
		until(w, "daemon set", lister(c.List), c.Watch, func(s *appsv1.DaemonSet) bool {
			st := s.Status
			return st.ObservedGeneration == s.Generation && st.DesiredNumberScheduled == n && st.NumberAvailable == n && st.UpdatedNumberScheduled == n && st.NumberMisscheduled == 0
		})
	}
	on(2)
	_, err = w.client.CoreV1().Nodes().Patch(w.ctx, "n2", types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	w.check(err)
	on(3)
	_, err = c.Patch(w.ctx, "agent", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"two"}]}}}}`), metav1.PatchOptions{})
	w.check(err)
	on(3)
	pods, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	w.check(err)
	nodes := map[string]int{}
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName]++
		if p.Spec.Containers[0].Image != "two" {
			t.Errorf("%s runs %s", p.Name, p.Spec.Containers[0].Image)
		}
	}
	if len(nodes) != 3 || len(pods.Items) != 3 {
		t.Errorf("pods on nodes: %v", nodes)
	}
}

func TestQuotaStatusFollowsItsNamespace(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.client.CoreV1().ResourceQuotas("default")
	_, err := c.Create(w.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"requests.storage": resource.MustParse("2Gi"), "pods": resource.MustParse("5"), "count/serviceaccounts": resource.MustParse("9")}}}, metav1.CreateOptions{})
	w.check(err)
	used := func(storage, pods string) {
		t.Helper()
		until(w, "quota", lister(c.List), c.Watch, func(q *corev1.ResourceQuota) bool {
			s, p, a := q.Status.Used["requests.storage"], q.Status.Used["pods"], q.Status.Used["count/serviceaccounts"]
			return s.Cmp(resource.MustParse(storage)) == 0 && p.Cmp(resource.MustParse(pods)) == 0 && a.Value() == 1 && len(q.Status.Hard) == 3
		})
	}
	w.addClaim("one", "nobody")
	w.addPod("p")
	used("1Gi", "1")
	w.addClaim("two", "nobody")
	used("2Gi", "1")
	if _, err := w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, claim("three", "nobody"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("beyond the quota: %v", err)
	}
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "two", metav1.DeleteOptions{}))
	used("1Gi", "1")
}
