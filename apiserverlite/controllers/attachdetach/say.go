package attachdetach

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events on pods.
const (
	reasonAttached     = "SuccessfulAttachVolume"
	reasonAttachFailed = "FailedAttachVolume"
)

func (c *Controller) sayAttached(v *corev1.PersistentVolume, pods []*corev1.Pod) {
	for _, pod := range pods {
		c.events.Eventf(pod, corev1.EventTypeNormal, reasonAttached, "AttachVolume.Attach succeeded for volume %q ", v.Name)
	}
}

func (c *Controller) sayAttachFailed(v *corev1.PersistentVolume, pods []*corev1.Pod, err error) {
	for _, pod := range pods {
		c.events.Eventf(pod, corev1.EventTypeWarning, reasonAttachFailed, "AttachVolume.Attach failed for volume %q : %s", v.Name, err)
	}
}

// sayMultiAttach tells the pods that wait for a volume who has it. Pods of other
// namespaces are counted, not named.
func (c *Controller) sayMultiAttach(w *want, holders []NodeName, users []*corev1.Pod) {
	for _, pod := range w.list() {
		c.events.Eventf(pod, corev1.EventTypeWarning, reasonAttachFailed, "Multi-Attach error for volume %q %s", w.volume.Name, usedBy(pod.Namespace, users))
	}
	c.env.Log.Info().Str("volume", w.volume.Name).Any("on", holders).Msg("volume waits until another node has let it go")
}

func usedBy(namespace string, users []*corev1.Pod) string {
	var local []string
	others := 0
	for _, u := range users {
		if u.Namespace == namespace {
			local = append(local, u.Name)
		} else {
			others++
		}
	}
	switch {
	case len(users) == 0:
		return "Volume is already exclusively attached to one node and can't be attached to another"
	case len(local) == 0:
		return fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", others)
	case others > 0:
		return fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(local, ", "), others)
	}
	return "Volume is already used by pod(s) " + strings.Join(local, ", ")
}
