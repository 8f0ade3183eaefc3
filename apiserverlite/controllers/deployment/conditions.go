package deployment

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now metav1.Time) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
}

func find(list []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// set puts a condition last, in place of what it said before. One that has the same status and reason stays as it is.
func set(st *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if have := find(st.Conditions, c.Type); have != nil && have.Status == c.Status {
		if have.Reason == c.Reason {
			return
		}
		c.LastTransitionTime = have.LastTransitionTime
	}
	drop(st, c.Type)
	st.Conditions = append(st.Conditions, c)
}

func drop(st *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
