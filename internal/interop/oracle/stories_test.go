package oracle

import (
	"fmt"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// basics are the lives of volumes, with each of the driver's calls failing and late, restarts and growth.
func basics() []scenario {
	return []scenario{
		{name: "mount and unmount", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.down("p")
		}},
		{name: "read-only with mount options and a secret", act: readOnlyWithSecret},
		{name: "two pods on one volume", act: twoPods},
		{name: "two volumes of one pod", act: func(w *world) {
			w.addVolume("c")
			w.addVolume("d")
			w.createPod("p", []string{"c", "d"})
			w.awaitRunning("p")
			w.noteByVolume("running")
			w.deletePod("p")
			w.awaitGone("p")
			w.awaitIdle()
			w.noteByVolume("gone")
		}},
		{name: "block", act: func(w *world) {
			w.addVolume("c", block)
			w.createPod("p", []string{"c"}, device)
			w.awaitRunning("p")
			w.note("running")
			w.down("p")
		}},
		{name: "two pods on one block volume", act: func(w *world) {
			w.addVolume("c", block)
			w.createPod("p", []string{"c"}, device)
			w.awaitRunning("p")
			w.createPod("q", []string{"c"}, device)
			w.awaitRunning("q")
			w.note("both running")
			w.deletePod("p")
			w.awaitGone("p")
			w.note("one gone")
			w.down("q")
		}},
		{name: "inline", act: func(w *world) {
			w.createPod("p", nil, inline)
			w.awaitCalls("Publish", 1)
			w.awaitRunning("p")
			w.note("running")
			w.down("p")
		}},
		{name: "stage refused", act: func(w *world) {
			w.failing("Stage", outcome{code: codes.InvalidArgument}, outcome{code: codes.InvalidArgument})
		}},
		{name: "stage late", act: func(w *world) { w.failing("Stage", outcome{code: codes.DeadlineExceeded, done: true}) }},
		{name: "stage late, then refused", act: func(w *world) {
			w.failing("Stage", outcome{code: codes.DeadlineExceeded, done: true}, outcome{code: codes.InvalidArgument})
		}},
		{name: "publish refused", act: func(w *world) {
			w.failing("Publish", outcome{code: codes.Internal}, outcome{code: codes.InvalidArgument})
		}},
		{name: "publish late", act: func(w *world) { w.failing("Publish", outcome{code: codes.DeadlineExceeded, done: true}) }},
		{name: "unpublish refused", act: func(w *world) { w.failingDown("Unpublish", outcome{code: codes.Internal}) }},
		{name: "unpublish late", act: func(w *world) { w.failingDown("Unpublish", outcome{code: codes.DeadlineExceeded, done: true}) }},
		{name: "unstage refused", act: func(w *world) { w.failingDown("Unstage", outcome{code: codes.Internal}) }},
		{name: "unstage late", act: func(w *world) { w.failingDown("Unstage", outcome{code: codes.DeadlineExceeded, done: true}) }},
		{name: "block map refused", act: func(w *world) {
			w.driver.next("Publish", outcome{code: codes.Internal})
			w.addVolume("c", block)
			w.createPod("p", []string{"c"}, device)
			w.awaitRunning("p")
			w.note("running")
			w.down("p")
		}},
		{name: "deleted while staging", act: func(w *world) { w.deletedDuring("Stage") }},
		{name: "deleted while publishing", act: func(w *world) { w.deletedDuring("Publish") }},
		{name: "deleted after a late stage", act: func(w *world) { w.deletedAfter("Stage", codes.DeadlineExceeded) }},
		{name: "deleted after a late publish", act: func(w *world) { w.deletedAfter("Publish", codes.DeadlineExceeded) }},
		{name: "deleted after a refused stage", act: func(w *world) { w.deletedAfter("Stage", codes.InvalidArgument) }},
		{name: "restart with a running pod", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.kill()
			w.begin()
			w.awaitCalls("Publish", 2)
			w.note("after the restart")
			w.down("p")
		}},
		{name: "restart with a running pod on a block volume", act: func(w *world) {
			w.addVolume("c", block)
			w.createPod("p", []string{"c"}, device)
			w.awaitRunning("p")
			w.kill()
			w.begin()
			w.awaitCalls("Publish", 2)
			w.note("after the restart")
			w.down("p")
		}},
		{name: "force-deleted while the kubelet was down", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.kill()
			w.forceDelete("p")
			w.begin()
			w.awaitCalls("Unstage", 1)
			w.awaitIdle()
			w.note("gone")
		}},
		{name: "reboot with a running pod", act: func(w *world) {
			w.addVolume("c")
			w.up("p", "c")
			w.reboot()
			w.begin()
			w.awaitCalls("Publish", 2)
			w.note("after the reboot")
			w.down("p")
		}},
		{name: "grown online", act: growOnline},
		{name: "grown while unused", act: growUnused},
		{name: "a claim that is not bound", act: unbound},
	}
}

// up brings a pod up that mounts the claims.
func (w *world) up(pod string, claims ...string) {
	w.t.Helper()
	w.createPod(pod, claims)
	w.awaitRunning(pod)
	w.note(pod + " running")
}

// down deletes a pod, the last on the node.
func (w *world) down(pod string) {
	w.t.Helper()
	w.deletePod(pod)
	w.awaitGone(pod)
	w.awaitIdle()
	w.note(pod + " gone")
}

// failing brings a pod up whose volume's first calls of a method end as given.
func (w *world) failing(method string, ends ...outcome) {
	w.t.Helper()
	w.addVolume("c")
	w.driver.next(method, append(ends, outcome{})...)
	w.up("p", "c")
	w.down("p")
}

// failingDown is failing on the way down.
func (w *world) failingDown(method string, ends ...outcome) {
	w.t.Helper()
	w.addVolume("c")
	w.driver.next(method, ends...)
	w.up("p", "c")
	w.down("p")
}

// deletedDuring deletes the pod while a call is under way, which succeeds afterwards.
func (w *world) deletedDuring(method string) {
	w.t.Helper()
	hold := make(chan struct{})
	w.addVolume("c")
	w.driver.next(method, outcome{hold: hold})
	w.createPod("p", []string{"c"})
	w.awaitCalls(method, 1)
	w.deletePod("p")
	w.note("deleted, " + method + " under way")
	close(hold)
	w.awaitGone("p")
	w.awaitCalls("Unstage", 1)
	w.awaitIdle()
	w.note("gone")
}

// deletedAfter deletes the pod while the first call of a method fails and was done, or not, before a second try.
func (w *world) deletedAfter(method string, code codes.Code) {
	w.t.Helper()
	hold := make(chan struct{})
	w.addVolume("c")
	w.driver.next(method, outcome{code: code, done: code == codes.DeadlineExceeded, hold: hold})
	w.createPod("p", []string{"c"})
	w.awaitCalls(method, 1)
	w.deletePod("p")
	w.note("deleted, " + method + " under way")
	close(hold)
	w.awaitGone("p")
	w.awaitIdle()
	w.note("gone")
}

func readOnlyWithSecret(w *world) {
	_, err := w.client.CoreV1().Secrets(namespace).Create(w.ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"},
		Data: map[string][]byte{"key": []byte("value")}}, metav1.CreateOptions{})
	w.must(err)
	w.addVolume("c", func(pv *v1.PersistentVolume, _ *v1.PersistentVolumeClaim) {
		pv.Spec.MountOptions = []string{"noatime", "discard"}
		pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: namespace, Name: "s"}
		pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: namespace, Name: "s"}
	})
	w.createPod("p", []string{"c"}, func(p *v1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true })
	w.awaitRunning("p")
	w.note("running")
	w.down("p")
}

func twoPods(w *world) {
	w.addVolume("c")
	w.up("p", "c")
	w.up("q", "c")
	w.deletePod("p")
	w.awaitGone("p")
	w.note("p gone")
	w.down("q")
}

func block(pv *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) {
	mode := v1.PersistentVolumeBlock
	pv.Spec.VolumeMode, pvc.Spec.VolumeMode, pv.Spec.CSI.FSType = &mode, &mode, ""
}

// device lets the pod's container use the pod's volumes as devices.
func device(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: m.Name, DevicePath: "/dev/" + m.Name})
	}
	c.VolumeMounts = nil
}

func inline(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{Name: "i", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName, VolumeAttributes: map[string]string{"size": "1Mi"}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "i", MountPath: "/i"}}
}

// grow lets the volume's size in PV and claim be two gibibytes, as the resizer leaves them.
func (w *world) grow(claim string) {
	w.t.Helper()
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	pvc, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Get(w.ctx, claim, metav1.GetOptions{})
	w.must(err)
	pvc.Spec.Resources.Requests = size
	pvc, err = w.client.CoreV1().PersistentVolumeClaims(namespace).Update(w.ctx, pvc, metav1.UpdateOptions{})
	w.must(err)
	pv, err := w.client.CoreV1().PersistentVolumes().Get(w.ctx, "pv-"+claim, metav1.GetOptions{})
	w.must(err)
	pv.Spec.Capacity = size
	_, err = w.client.CoreV1().PersistentVolumes().Update(w.ctx, pv, metav1.UpdateOptions{})
	w.must(err)
	pvc.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	pvc.Status.AllocatedResources = size
	pvc.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	_, err = w.client.CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(w.ctx, pvc, metav1.UpdateOptions{})
	w.must(err)
}

// touch makes the kubelets sync a pod.
func (w *world) touch(pod string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods(namespace).Get(w.ctx, pod, metav1.GetOptions{})
	w.must(err)
	p.Annotations = map[string]string{"touched": "once"}
	_, err = w.client.CoreV1().Pods(namespace).Update(w.ctx, p, metav1.UpdateOptions{})
	w.must(err)
}

// growing makes a class whose volumes may grow, and a volume of it.
func growing(w *world) {
	yes := true
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: driverName, AllowVolumeExpansion: &yes}, metav1.CreateOptions{})
	w.must(err)
	w.addVolume("c", func(pv *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) {
		class := "grows"
		pv.Spec.StorageClassName, pvc.Spec.StorageClassName = class, &class
	})
}

// noteClaim writes what became of a claim's size.
func (w *world) noteClaim(claim string) {
	w.t.Helper()
	var last *v1.PersistentVolumeClaim
	w.until("claim grown", func() bool {
		pvc, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Get(w.ctx, claim, metav1.GetOptions{})
		last = pvc
		return err == nil && pvc.Status.Capacity.Storage().Cmp(resource.MustParse("2Gi")) == 0
	})
	w.note("grown")
	w.recorded = append(w.recorded, fmt.Sprintf("claim: %v %v %v", last.Status.AllocatedResources.Storage(), last.Status.AllocatedResourceStatuses, len(last.Status.Conditions)))
}

func growOnline(w *world) {
	growing(w)
	w.up("p", "c")
	w.grow("c")
	w.touch("p")
	w.awaitCalls("Expand", 1)
	w.noteClaim("c")
	w.down("p")
}

func growUnused(w *world) {
	growing(w)
	w.grow("c")
	w.up("p", "c")
	w.noteClaim("c")
	w.down("p")
}

func unbound(w *world) {
	class := ""
	_, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Create(w.ctx, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"},
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &class,
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}, metav1.CreateOptions{})
	w.must(err)
	w.createPod("p", []string{"c"})
	w.until("an event", func() bool { return len(w.events()) > 0 })
	w.note("waiting")
	w.deletePod("p")
	w.awaitGone("p")
	w.note("gone")
}
