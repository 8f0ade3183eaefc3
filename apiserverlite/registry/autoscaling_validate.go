package registry

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// The bounds of how autoscalers scale, in seconds.
const (
	longestPeriod = 1800
	longestWindow = 3600
)

// validateAutoscaler has the rules of upstream's package for it, which is not linked: with it comes half of k8s.io/apiserver.
// Old is nil for a new one.
func validateAutoscaler(s, old *autoscaling.HorizontalPodAutoscalerSpec) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if s.MinReplicas != nil && *s.MinReplicas < 0 {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *s.MinReplicas, "must be greater than or equal to 0").WithOrigin("minimum").MarkCoveredByDeclarative())
	}
	if s.MaxReplicas == 0 {
		errs = append(errs, field.Required(at.Child("maxReplicas"), "must be set and greater than 0").MarkCoveredByDeclarative())
	} else if s.MaxReplicas < 0 {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to 1").WithOrigin("minimum").MarkCoveredByDeclarative())
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	target := s.ScaleTargetRef
	errs = append(errs, validateReference(target, at.Child("scaleTargetRef"), reference{
		anyVersion: old != nil && old.ScaleTargetRef.APIVersion == target.APIVersion && old.ScaleTargetRef.Kind == target.Kind,
		noGroup:    target.Kind == "ReplicationController", // the one kind of the core group that scales
	})...)
	errs = append(errs, validateMetrics(s, old, at.Child("metrics"))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, validateScaling(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// reference is what may be missing from the API version of a reference.
type reference struct{ anyVersion, noGroup bool }

func (r reference) check(version string) error {
	if r.anyVersion {
		return nil
	}
	gv, err := schema.ParseGroupVersion(version)
	if err == nil && gv.Group == "" && !r.noGroup {
		err = errors.New("apiVersion must specify API group")
	}
	return err
}

func validateReference(ref autoscaling.CrossVersionObjectReference, at *field.Path, r reference) field.ErrorList {
	errs := append(validateSegment(ref.Kind, at.Child("kind"), ""), validateSegment(ref.Name, at.Child("name"), "")...)
	if err := r.check(ref.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

func validateSegment(value string, at *field.Path, required string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, required)}
	}
	var errs field.ErrorList
	for _, msg := range content.IsPathSegmentName(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}

func validateScaling(r *autoscaling.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), *w, "must be greater than or equal to zero"))
	} else if w != nil && *w > longestWindow {
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), *w, fmt.Sprintf("must be less than or equal to %v", longestWindow)))
	}
	choices := []string{string(autoscaling.DisabledPolicySelect), string(autoscaling.MaxPolicySelect), string(autoscaling.MinPolicySelect)}
	if p := r.SelectPolicy; p != nil && !slices.Contains(choices, string(*p)) {
		errs = append(errs, field.NotSupported(at.Child("selectPolicy"), *p, choices))
	}
	policies := at.Child("policies")
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := policies.Index(i)
		if p.Type != autoscaling.PodsScalingPolicy && p.Type != autoscaling.PercentScalingPolicy {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, []string{string(autoscaling.PercentScalingPolicy), string(autoscaling.PodsScalingPolicy)}))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		} else if p.PeriodSeconds > longestPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %v", longestPeriod)))
		}
	}
	if r.Tolerance != nil {
		errs = append(errs, validation.ValidateNonnegativeQuantity(*r.Tolerance, at.Child("tolerance"))...)
	}
	return errs
}

func validateAutoscalerStatus(s *autoscaling.HorizontalPodAutoscalerStatus) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	for i, c := range s.Conditions {
		if c.ObservedGeneration != nil {
			errs = append(errs, validation.ValidateNonnegativeField(*c.ObservedGeneration, at.Child("conditions").Index(i).Child("observedGeneration"))...)
		}
	}
	errs = append(errs, validation.ValidateNonnegativeField(int64(s.CurrentReplicas), at.Child("currentReplicas"))...)
	return append(errs, validation.ValidateNonnegativeField(int64(s.DesiredReplicas), at.Child("desiredReplicas"))...)
}
