package statefulset

import (
	"maps"
	"regexp"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

var numbered = regexp.MustCompile(`^(.*)-([0-9]+)$`)

// ordinal is the number at the end of a pod's name, or -1 if the pod's name is not of the set.
func ordinal(s *appsv1.StatefulSet, p *corev1.Pod) int {
	m := numbered.FindStringSubmatch(p.Name)
	if len(m) != 3 || m[1] != s.Name {
		return -1
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return -1
	}
	return n
}

func podName(s *appsv1.StatefulSet, n int) string { return s.Name + "-" + strconv.Itoa(n) }

// first and last are the bounds of the ordinals that the set wants; last is one too far.
func bounds(s *appsv1.StatefulSet) (first, last int) {
	if s.Spec.Ordinals != nil {
		first = int(s.Spec.Ordinals.Start)
	}
	return first, first + int(ptr.Deref(s.Spec.Replicas, 1))
}

// newPod makes the pod of an ordinal from a revision's template.
func newPod(s *appsv1.StatefulSet, o workload.Owner, t *corev1.PodTemplateSpec, revision string, n int) *corev1.Pod {
	p := o.FromTemplate(t)
	p.Name = podName(s, n)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, s.Spec.ServiceName
	setIdentity(s, p, n)
	setVolumes(s, p, n)
	p.Labels[appsv1.StatefulSetRevisionLabel] = revision
	return p
}

func setIdentity(_ *appsv1.StatefulSet, p *corev1.Pod, n int) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
	p.Labels[appsv1.PodIndexLabel] = strconv.Itoa(n)
}

// setVolumes replaces volumes of a claim template's name by that of the pod's own claim.
func setVolumes(s *appsv1.StatefulSet, p *corev1.Pod, n int) {
	var out []corev1.Volume
	for _, t := range s.Spec.VolumeClaimTemplates {
		out = append(out, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(s, t.Name, n)}}})
	}
next:
	for _, v := range p.Spec.Volumes {
		for _, t := range s.Spec.VolumeClaimTemplates {
			if t.Name == v.Name {
				continue next
			}
		}
		out = append(out, v)
	}
	p.Spec.Volumes = out
}

func claimName(s *appsv1.StatefulSet, template string, n int) string {
	return template + "-" + podName(s, n)
}

// claims are those that the pod of an ordinal needs.
func claims(s *appsv1.StatefulSet, n int) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for i := range s.Spec.VolumeClaimTemplates {
		c := s.Spec.VolumeClaimTemplates[i].DeepCopy()
		c.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: claimName(s, c.Name, n), Annotations: c.Annotations, Labels: c.Labels}
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		maps.Copy(c.Labels, s.Spec.Selector.MatchLabels)
		c.Status = corev1.PersistentVolumeClaimStatus{}
		out = append(out, c)
	}
	return out
}

func revisionOf(p *corev1.Pod) string { return p.Labels[appsv1.StatefulSetRevisionLabel] }
