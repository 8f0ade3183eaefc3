package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// match finds the first rule of a job's pod failure policy that a failed pod matches. Without one the failure counts.
func match(policy *batchv1.PodFailurePolicy, p *corev1.Pod) (action batchv1.PodFailurePolicyAction, why string) {
	if policy == nil {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range policy.Rules {
		if rule.OnExitCodes != nil {
			if s := exited(p, rule.OnExitCodes); s != nil {
				return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d", s.Name, p.Namespace, p.Name, s.State.Terminated.ExitCode, rule.Action, i)
			}
			continue
		}
		for _, c := range p.Status.Conditions {
			if slices.ContainsFunc(rule.OnPodConditions, func(x batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
				return x.Type == c.Type && x.Status == c.Status
			}) {
				return rule.Action, fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d", p.Namespace, p.Name, c.Type, rule.Action, i)
			}
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

func exited(p *corev1.Pod, want *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			t := list[i].State.Terminated
			if t == nil || t.ExitCode == 0 || want.ContainerName != nil && *want.ContainerName != list[i].Name {
				continue
			}
			if slices.Contains(want.Values, t.ExitCode) == (want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return &list[i]
			}
		}
	}
	return nil
}

// enough tells whether a success policy of an indexed job is met, and by which rule.
func enough(policy *batchv1.SuccessPolicy, done indexes, completions int) (string, bool) {
	if policy == nil || len(done) == 0 {
		return "", false
	}
	for i, rule := range policy.Rules {
		matched, of := len(done), completions
		if rule.SucceededIndexes != nil {
			named := parseIndexes(*rule.SucceededIndexes, completions)
			if len(named) == 0 {
				continue // all of them are beyond the last
			}
			of, matched = len(named), 0
			for n := range named {
				if done[n] {
					matched++
				}
			}
		}
		need := of
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if matched >= need {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
