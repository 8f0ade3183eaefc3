package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// markGated says in the status why the scheduler leaves a new pod alone.
func markGated(p *core.Pod) {
	if len(p.Spec.SchedulingGates) == 0 {
		return
	}
	podutil.UpdatePodCondition(&p.Status, &core.PodCondition{
		Type: core.PodScheduled, Status: core.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	})
}

// mergeLabelKeys writes the pod's own values of matchLabelKeys and mismatchLabelKeys into the selectors
// beside them, so that schedulers need to look at the selectors only.
func mergeLabelKeys(p *core.Pod) {
	if a := p.Spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			mergeTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, p.Labels)
		}
		if a.PodAntiAffinity != nil {
			mergeTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, p.Labels)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		require(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, p.Labels)
	}
}

func mergeTerms(required []core.PodAffinityTerm, preferred []core.WeightedPodAffinityTerm, labels map[string]string) {
	merge := func(t *core.PodAffinityTerm) {
		require(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
		require(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
	}
	for i := range required {
		merge(&required[i])
	}
	for i := range preferred {
		merge(&preferred[i].PodAffinityTerm)
	}
}

func require(s *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return
	}
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
		}
	}
}

// appArmorFields fills in the fields that have replaced the AppArmor annotations.
func appArmorFields(p *core.Pod) {
	if p.Spec.OS != nil && p.Spec.OS.Name == core.Windows {
		return
	}
	var ofPod *core.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		ofPod = p.Spec.SecurityContext.AppArmorProfile
	}
	podutil.VisitContainers(&p.Spec, podutil.AllFeatureEnabledContainers(), func(c *core.Container, _ podutil.ContainerType) bool {
		value, ok := p.Annotations[core.DeprecatedAppArmorAnnotationKeyPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return true
		}
		profile := podutil.ApparmorFieldForAnnotation(value)
		if profile == nil || len(validation.ValidateAppArmorProfileField(profile, &field.Path{})) > 0 || equality.Semantic.DeepEqual(profile, ofPod) {
			return true
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &core.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
		return true
	})
}
