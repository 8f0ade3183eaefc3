package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetCondition puts a condition into a list. The time of one whose status stays is kept.
func SetCondition(list []metav1.Condition, c metav1.Condition, now metav1.Time) []metav1.Condition {
	c.LastTransitionTime = now
	i := slices.IndexFunc(list, func(o metav1.Condition) bool { return o.Type == c.Type })
	if i < 0 {
		return append(list, c)
	}
	if list[i].Status == c.Status {
		c.LastTransitionTime = list[i].LastTransitionTime
	}
	list[i] = c
	return list
}

// Condition finds a condition; what is not there is empty.
func Condition(list []metav1.Condition, kind string) metav1.Condition {
	i := slices.IndexFunc(list, func(o metav1.Condition) bool { return o.Type == kind })
	if i < 0 {
		return metav1.Condition{}
	}
	return list[i]
}

// Holds tells whether a condition is true.
func Holds(list []metav1.Condition, kind string) bool {
	return Condition(list, kind).Status == metav1.ConditionTrue
}
