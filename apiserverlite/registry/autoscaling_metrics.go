package registry

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

func validateMetrics(s, old *autoscaling.HorizontalPodAutoscalerSpec, at *field.Path) field.ErrorList {
	described := reference{noGroup: true}
	if old != nil {
		for _, m := range old.Metrics {
			if m.Object != nil && m.Type == autoscaling.ObjectMetricSourceType && described.check(m.Object.DescribedObject.APIVersion) != nil {
				described.anyVersion = true // it was wrong already
				break
			}
		}
	}
	var errs field.ErrorList
	outside := false
	for i := range s.Metrics {
		m := &s.Metrics[i]
		errs = append(errs, validateMetric(m, at.Index(i), described)...)
		outside = outside || m.Type == autoscaling.ObjectMetricSourceType || m.Type == autoscaling.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !outside {
		errs = append(errs, field.Forbidden(at, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// source is one of the places that a metric can come from.
type source struct {
	kind   autoscaling.MetricSourceType
	field  string
	there  bool
	errors func(at *field.Path) field.ErrorList
}

// sources are in the order in which upstream looks at them.
func sources(m *autoscaling.MetricSpec, described reference) []source {
	return []source{
		{autoscaling.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList {
			errs := validateReference(m.Object.DescribedObject, at.Child("describedObject"), described)
			errs = append(errs, validateMetricName(m.Object.Metric, at)...)
			return append(errs, validateTarget(m.Object.Target, at, m.Object.Target.Value == nil && m.Object.Target.AverageValue == nil,
				"averageValue", "must set either a target value or averageValue")...)
		}},
		{autoscaling.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList {
			t := m.External.Target
			errs := append(validateMetricName(m.External.Metric, at), validateTarget(t, at, t.Value == nil && t.AverageValue == nil,
				"averageValue", "must set either a target value for metric or a per-pod target")...)
			if t.Value != nil && t.AverageValue != nil {
				errs = append(errs, field.Forbidden(at.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
			}
			return errs
		}},
		{autoscaling.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList {
			return append(validateMetricName(m.Pods.Metric, at), validateTarget(m.Pods.Target, at, m.Pods.Target.AverageValue == nil,
				"averageValue", "must specify a positive target averageValue")...)
		}},
		{autoscaling.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			var errs field.ErrorList
			if m.Resource.Name == "" {
				errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
			}
			return append(errs, validateUse(m.Resource.Target, at)...)
		}},
		{autoscaling.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) field.ErrorList {
			c := m.ContainerResource
			var errs field.ErrorList
			if c.Name == "" {
				errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
			} else {
				errs = append(errs, validation.ValidateContainerResourceName(c.Name, at.Child("name"))...)
			}
			if c.Container == "" {
				errs = append(errs, field.Required(at.Child("container"), "must specify a container"))
			} else {
				errs = append(errs, validation.ValidateDNS1123Label(c.Container, at.Child("container"))...)
			}
			return append(errs, validateUse(c.Target, at)...)
		}},
	}
}

func validateMetric(m *autoscaling.MetricSpec, at *field.Path, described reference) field.ErrorList {
	var errs field.ErrorList
	kinds := []string{"ContainerResource", "External", "Object", "Pods", "Resource"}
	all := sources(m, described)
	known, there := false, 0
	for _, s := range all {
		known = known || s.kind == m.Type
	}
	if m.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric source type"))
	}
	if !known {
		errs = append(errs, field.NotSupported(at.Child("type"), m.Type, kinds))
	}
	for _, s := range all {
		if !s.there {
			continue
		}
		if there++; there == 1 {
			errs = append(errs, s.errors(at.Child(s.field))...)
		}
	}
	for _, s := range all {
		if s.kind == m.Type && !s.there {
			errs = append(errs, field.Required(at.Child(s.field), "must populate information for the given metric source"))
		}
	}
	if !known {
		errs = append(errs, field.NotSupported(at.Child("type"), m.Type, kinds)) // upstream says it twice
	}
	for _, s := range all {
		if there != 1 && s.there && s.kind != m.Type {
			errs = append(errs, field.Forbidden(at.Child(s.field), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateMetricName(id autoscaling.MetricIdentifier, at *field.Path) field.ErrorList {
	return validateSegment(id.Name, at.Child("metric", "name"), "must specify a metric name")
}

// validateUse is for the resources of pods: an amount or a share of what they request.
func validateUse(t autoscaling.MetricTarget, at *field.Path) field.ErrorList {
	errs := validateTarget(t, at, t.AverageUtilization == nil && t.AverageValue == nil, "averageUtilization", "must set either a target raw value or a target utilization")
	if t.AverageUtilization != nil && t.AverageValue != nil {
		errs = append(errs, field.Forbidden(at.Child("target", "averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

// validateTarget holds a target against the common rules; if it is unset, the named field is required.
func validateTarget(t autoscaling.MetricTarget, at *field.Path, unset bool, name, required string) field.ErrorList {
	at = at.Child("target")
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscaling.UtilizationMetricType, autoscaling.ValueMetricType, autoscaling.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	if unset {
		errs = append(errs, field.Required(at.Child(name), required))
	}
	return errs
}
