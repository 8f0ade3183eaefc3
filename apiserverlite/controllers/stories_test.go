package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/control"
)

// stories are told by TestStories as they are, and by TestKill with the controllers
// killed at each point that a story reaches. The quick ones come first.
var stories = []struct {
	name string
	tell func(*world)
}{
	{"one volume", oneVolume},
	{"static", staticVolumes},
	{"owners", ownersGo},
	{"namespace", namespaceGoes},
	{"workloads", workloadsRoll},
	{"replication", elderKeeps},
	{"jobs", jobsEnd},
	{"lost node", nodeLost},
}

// oneVolume follows one claim and one pod all the way and back.
func oneVolume(w *world) {
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	c := w.addClaim("data", "blk")
	w.addPod("p", "data")

	p := w.pod("p", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	if p.Spec.NodeName != "n1" {
		w.t.Errorf("scheduled to %s, want n1, the first by name of equals", p.Spec.NodeName)
	}
	bound := w.claim("data", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	if bound.Annotations["volume.kubernetes.io/selected-node"] != "n1" || bound.Annotations["pv.kubernetes.io/bind-completed"] == "" {
		w.t.Errorf("annotations of the bound claim: %v", bound.Annotations)
	}
	name := control.UniqueName(driver, "vol-"+string(c.UID))
	w.attached("n1", name)

	// A claim in use stays, and while the node uses the volume nothing is detached.
	w.setInUse("n1", name)
	w.check(w.client.CoreV1().PersistentVolumeClaims("default").Delete(w.ctx, "data", metav1.DeleteOptions{}))
	w.check(w.client.CoreV1().Pods("default").Delete(w.ctx, "p", metav1.DeleteOptions{}))
	w.setInUse("n1")
	w.attached("n1")
	w.noAttachments()
	w.volume("pvc-"+string(c.UID), func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeReleased })
	w.noClaims("default")
}

// staticVolumes binds an existing volume where its node is, and takes back one that was not needed.
func staticVolumes(w *world) {
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}, metav1.CreateOptions{})
	w.check(err)
	v := static("local-n2", "local")
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}}}}}}}
	w.addVolume(v)
	w.addClaim("data", "local")
	w.addPod("p", "data")
	if p := w.pod("p", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); p.Spec.NodeName != "n2" {
		w.t.Errorf("scheduled to %s, where the volume is not", p.Spec.NodeName)
	}
	w.volume("local-n2", func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeBound })

	named := claim("named", "")
	named.Spec.VolumeName = "wanted"
	named, err = w.client.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, named, metav1.CreateOptions{})
	w.check(err)
	spare := static("spare", "")
	spare.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: "named", UID: named.UID}
	w.addVolume(spare)
	w.volume("spare", func(v *corev1.PersistentVolume) bool {
		return v.Status.Phase == corev1.VolumeAvailable && v.Spec.ClaimRef.UID == ""
	})
	w.addVolume(static("wanted", ""))
	w.claim("named", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// namespaceGoes deletes a namespace with a pod that owns a claim, in use.
func namespaceGoes(w *world) {
	w.addNode("n1", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	w.check(err)
	configs := w.client.CoreV1().ConfigMaps("shop")
	until(w, "root certificate", lister(configs.List), configs.Watch, func(m *corev1.ConfigMap) bool { return m.Name == "kube-root-ca.crt" })
	accounts := w.client.CoreV1().ServiceAccounts("shop")
	until(w, "service account", lister(accounts.List), accounts.Watch, func(a *corev1.ServiceAccount) bool { return a.Name == "default" })

	p := pod("p")
	p.Namespace = "shop"
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "blk").Spec}}}}}
	_, err = w.client.CoreV1().Pods("shop").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	pods := w.client.CoreV1().Pods("shop")
	until(w, "pod p of shop", lister(pods.List), pods.Watch, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })

	w.check(w.client.CoreV1().Namespaces().Delete(w.ctx, "shop", metav1.DeleteOptions{}))
	namespaces := w.client.CoreV1().Namespaces()
	w.none("namespace shop", namespaces.Watch, func() (string, error) {
		l, err := namespaces.List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=shop"})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return "shop", nil
	})
	w.noAttachments()
}

// ownersGo deletes owners in the background, in the foreground, and leaving orphans.
func ownersGo(w *world) {
	configs := w.client.CoreV1().ConfigMaps("default")
	make := func(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, o := range owners {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: ptr.To(true)})
		}
		m, err := configs.Create(w.ctx, m, metav1.CreateOptions{})
		w.check(err)
		return m
	}
	remove := func(name string, p metav1.DeletionPropagation) {
		w.check(configs.Delete(w.ctx, name, metav1.DeleteOptions{PropagationPolicy: &p}))
	}
	gone := func(name string) {
		w.none("config map "+name, configs.Watch, func() (string, error) {
			l, err := configs.List(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			if err != nil || len(l.Items) == 0 {
				return "", err
			}
			return name, nil
		})
	}
	back := make("back")
	make("back-1", back)
	fore := make("fore")
	fore1 := make("fore-1", fore)
	make("fore-2", fore1)
	free := make("free")
	make("free-1", free)
	shared := make("shared", back, free)

	remove("back", metav1.DeletePropagationBackground)
	gone("back-1")
	remove("fore", metav1.DeletePropagationForeground)
	gone("fore-2")
	gone("fore-1")
	gone("fore")
	until(w, "the shared one to lose a dangling owner", lister(configs.List), configs.Watch, func(m *corev1.ConfigMap) bool {
		return m.UID == shared.UID && len(m.OwnerReferences) == 1 && m.OwnerReferences[0].UID == free.UID
	})
	remove("free", metav1.DeletePropagationOrphan)
	gone("free")
	until(w, "the orphan", lister(configs.List), configs.Watch, func(m *corev1.ConfigMap) bool {
		return m.Name == "free-1" && len(m.OwnerReferences) == 0
	})
	ghost := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never", UID: types.UID("11111111-1111-4111-8111-111111111111")}}
	make("ghost-1", ghost)
	gone("ghost-1")
}

// nodeLost lets a kubelet fall silent, with a volume in use, and then the node go.
func nodeLost(w *world) {
	w.addNode("n1", 7)
	w.addNode("n2", 7)
	w.addClass("blk", storagev1.VolumeBindingWaitForFirstConsumer)
	c := w.addClaim("data", "blk")
	p := pod("p", "data")
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
	_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	w.check(err)
	name := control.UniqueName(driver, "vol-"+string(c.UID))
	w.attached("n1", name)
	w.setInUse("n1", name)

	slow := w.timeFlies(10 * time.Second)
	n := w.node("n1", func(n *corev1.Node) bool { return control.HasTaint(n, corev1.TaintNodeUnreachable) })
	slow()
	if len(n.Status.VolumesAttached) != 1 {
		w.t.Error("detached though the pod is there")
	}
	w.check(w.client.CoreV1().Nodes().Delete(w.ctx, "n1", metav1.DeleteOptions{}))
	slow = w.timeFlies(10 * time.Second)
	pods := w.client.CoreV1().Pods("default")
	w.none("the pod on the vanished node", pods.Watch, func() (string, error) {
		l, err := pods.List(w.ctx, metav1.ListOptions{})
		if err != nil || len(l.Items) == 0 {
			return "", err
		}
		return l.Items[0].Name, nil
	})
	w.noAttachments() // by force, after the grace
	slow()
}

func static(name, class string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}}}}
}

func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			w.start(w.provisioner, w.attacher)
			s.tell(w)
		})
	}
}
