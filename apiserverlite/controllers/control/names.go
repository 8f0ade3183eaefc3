package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// csiPrefix begins the unique name of every CSI volume.
const csiPrefix = "kubernetes.io/csi/"

// UniqueName is how node status and the attach/detach controller name a CSI volume.
// Two PersistentVolumes of one driver and handle have one name on purpose.
func UniqueName(driver, handle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(csiPrefix + driver + "^" + handle)
}

// SplitUniqueName recovers driver and handle.
func SplitUniqueName(name corev1.UniqueVolumeName) (driver, handle string, err error) {
	rest, ok := strings.CutPrefix(string(name), csiPrefix)
	parts := strings.Split(rest, "^")
	if !ok || len(parts) != 2 {
		return "", "", fmt.Errorf("split volume name %q: want %sDRIVER^HANDLE", name, csiPrefix)
	}
	return parts[0], parts[1], nil
}

// AttachmentName is the name of the VolumeAttachment of a volume on a node.
func AttachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// IsTerminated tells whether a pod has stopped using its volumes, as far as its
// status can say: it ended, or it is going and none of its containers runs.
func IsTerminated(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil {
		return false
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.State.Terminated == nil && s.State.Waiting == nil {
				return false
			}
		}
	}
	return true
}

// IsReady tells whether a node's Ready condition is True.
func IsReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// HasTaint tells whether a node has a taint of that key.
func HasTaint(node *corev1.Node, key string) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}
