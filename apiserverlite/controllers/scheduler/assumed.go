package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// assumed is what was decided and does not show in the API yet. Guarded by Scheduler.mu.
type assumed struct {
	plans map[types.UID]*plan // by pod
}

func newAssumed() assumed { return assumed{plans: map[types.UID]*plan{}} }

func (a *assumed) add(p *plan)            { a.plans[p.pod.UID] = p }
func (a *assumed) forget(pod types.UID)   { delete(a.plans, pod) }
func (a *assumed) has(pod types.UID) bool { return a.plans[pod] != nil }

// on returns the pods assumed to be on a node.
func (a *assumed) on(node string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range a.plans {
		if p.node == node {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

// taken returns the volumes promised to claims.
func (a *assumed) taken() map[string]*corev1.PersistentVolume {
	m := map[string]*corev1.PersistentVolume{}
	for _, p := range a.plans {
		for _, b := range p.static {
			m[b.volume.Name] = b.volume
		}
	}
	return m
}

// volumeOf returns the volume promised to a claim, or empty.
func (a *assumed) volumeOf(claim types.UID) string {
	for _, p := range a.plans {
		if i := slices.IndexFunc(p.static, func(b staticBinding) bool { return b.claim.UID == claim }); i >= 0 {
			return p.static[i].volume.Name
		}
	}
	return ""
}
