package check

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// whole is a cluster with one volume in use, where everything agrees.
func whole() Inventory {
	pv := "pvc-u1"
	return Inventory{
		Driver: "d", Devices: map[string][]string{"/s/cloud/volumes/id1.img": {"/dev/loop0"}}, Stored: []string{"id1"}, Formats: map[string]int{"id1": 1},
		Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "pod1"},
			Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
		Claims: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "u1"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}},
		Volumes: []corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: pv}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "c", UID: "u1"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "id1"}}}}},
		Attachments: []storagev1.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}},
		Cloud: []CloudVolume{{ID: "id1", Name: pv, Droplets: []string{"n1"}}},
		Nodes: []Node{{Name: "n1", Kubelet: "/s/k", Links: []string{"scsi-0DO_Volume_pvc-u1"}, Pods: []string{"pod1"},
			Stages: []string{stageOf("id1")},
			Mounts: []string{"/s/k/plugins/kubernetes.io/csi/d/" + stageOf("id1") + "/globalmount", "/s/k/pods/pod1/volumes/kubernetes.io~csi/pvc-u1/mount"}}},
	}
}

// stageOf is fixed, so that the test does not repeat the code under test.
func stageOf(handle string) string {
	if handle == "id1" {
		return "f3436f50b2f7f1613ad142dbce1d24801d9daaabc45ecb2db909251a214c9840"
	}
	panic(handle)
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*Inventory)
		want []string // each problem contains one of these, in any order
	}{
		{"all agree", func(*Inventory) {}, nil},
		{"claim gone", func(i *Inventory) { i.Claims = nil }, []string{"its claim default/c is gone"}},
		{"volume object gone", func(i *Inventory) { i.Volumes = nil; i.Claims = nil; i.Attachments = nil; i.Nodes = nil },
			[]string{"no claim and no persistent volume knows it"}},
		{"cloud volume gone", func(i *Inventory) { i.Cloud = nil; i.Nodes = nil; i.Devices = nil },
			[]string{"does not exist in the cloud", "the cloud knows no such volume", "the cloud says it is not"}},
		{"attachment object gone", func(i *Inventory) { i.Attachments = nil },
			[]string{"no volume attachment says so", "no attached volume has it", "no attached volume is staged there"}},
		{"loop device gone", func(i *Inventory) { i.Devices = map[string][]string{} }, []string{"no loop device stands for it"}},
		{"loop device leaked", func(i *Inventory) { i.Devices["/s/cloud/volumes/id9.img"] = []string{"/dev/loop9"} }, []string{"/dev/loop9: stands for cloud volume id9"}},
		{"simulated devices are not asked for", func(i *Inventory) { i.Devices = nil }, nil},
		{"pod gone", func(i *Inventory) { i.Pods = nil }, []string{"pod directory pod1 on n1: no such pod", "its pod does not exist"}},
		{"pod unmounted", func(i *Inventory) { i.Nodes[0].Mounts = i.Nodes[0].Mounts[:1] }, []string{"runs, and its volume data is not mounted"}},
		{"link gone", func(i *Inventory) { i.Nodes[0].Links = nil }, []string{"the link is missing"}},
		{"link leaked", func(i *Inventory) { i.Nodes[0].Links = append(i.Nodes[0].Links, "x") }, []string{"no volume of that name"}},
		{"formatted twice", func(i *Inventory) { i.Formats["id1"] = 2 }, []string{"formatted 2 times"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inv := whole()
			c.do(&inv)
			got := Compare(inv)
			if len(got) != len(c.want) {
				t.Errorf("got %v, want %d problems", got, len(c.want))
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(got, func(p Problem) bool { return strings.Contains(p.String(), w) }) {
					t.Errorf("no problem says %q: %v", w, got)
				}
			}
		})
	}
}
