package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"drydock.dev/drydock/apiserverlite/quota"
)

// limitDefaults gives containers the requests and limits that the namespace's limit ranges name as defaults.
func limitDefaults(_ context.Context, a Attributes) error {
	pod, ok := a.Obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	for _, l := range limitsIn(a) {
		var said []string
		for i := range pod.Spec.InitContainers {
			said = append(said, fillLimits(&pod.Spec.InitContainers[i], l, "init container")...)
		}
		for i := range pod.Spec.Containers {
			said = append(said, fillLimits(&pod.Spec.Containers[i], l, "container")...)
		}
		if len(said) == 0 {
			continue
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + strings.Join(said, "; ")
	}
	return nil
}

func limitsIn(a Attributes) []*corev1.LimitRange {
	var out []*corev1.LimitRange
	for _, o := range a.Reader.List(corev1.Resource("limitranges"), a.Namespace) {
		if l, ok := o.(*corev1.LimitRange); ok {
			out = append(out, l)
		}
	}
	return out
}

func fillLimits(c *corev1.Container, l *corev1.LimitRange, what string) []string {
	var said []string
	fill := func(to *corev1.ResourceList, from corev1.ResourceList, word string) {
		var names []string
		for name, q := range from {
			if _, have := (*to)[name]; have {
				continue
			}
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			(*to)[name] = q.DeepCopy()
			names = append(names, string(name))
		}
		if slices.Sort(names); len(names) > 0 {
			said = append(said, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), word, what, c.Name))
		}
	}
	for _, item := range l.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			fill(&c.Resources.Requests, item.DefaultRequest, "request")
			fill(&c.Resources.Limits, item.Default, "limit")
		}
	}
	return said
}

// withinLimits refuses pods and claims that a limit range of the namespace does not allow.
func withinLimits(_ context.Context, a Attributes) error {
	for _, l := range limitsIn(a) {
		var errs []string
		for _, item := range l.Spec.Limits {
			switch o := a.Obj.(type) {
			case *corev1.PersistentVolumeClaim:
				if item.Type == corev1.LimitTypePersistentVolumeClaim {
					errs = append(errs, outside(item, o.Spec.Resources.Requests, o.Spec.Resources.Limits)...)
				}
			case *corev1.Pod:
				if item.Type == corev1.LimitTypeContainer {
					for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
						errs = append(errs, outside(item, c.Resources.Requests, c.Resources.Limits)...)
					}
				}
				if item.Type == corev1.LimitTypePod {
					requests, limits := quota.PodSums(o)
					errs = append(errs, outside(item, requests, limits)...)
				}
			}
		}
		if len(errs) > 0 {
			return forbid(a, joined(errs))
		}
	}
	return nil
}

func joined(errs []string) error {
	if len(errs) == 1 {
		return fmt.Errorf("%s", errs[0])
	}
	return fmt.Errorf("[%s]", strings.Join(errs, ", "))
}

// outside says what of an object is beyond a limit, in upstream's words.
func outside(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) []string {
	var errs []string
	quota.Each(item.Min, func(name corev1.ResourceName, least apiresource.Quantity) {
		q, ok := requests[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Sprintf("minimum %s usage per %s is %s.  No request is specified", name, item.Type, least.String()))
		case q.Cmp(least) < 0:
			errs = append(errs, fmt.Sprintf("minimum %s usage per %s is %s, but request is %s", name, item.Type, least.String(), q.String()))
		}
		if l, ok := limits[name]; ok && l.Cmp(least) < 0 {
			errs = append(errs, fmt.Sprintf("minimum %s usage per %s is %s, but limit is %s", name, item.Type, least.String(), l.String()))
		}
	})
	quota.Each(item.Max, func(name corev1.ResourceName, most apiresource.Quantity) {
		l, limited := limits[name]
		q, requested := requests[name]
		if item.Type != corev1.LimitTypePersistentVolumeClaim { // of claims there is only a request
			switch {
			case !limited:
				errs = append(errs, fmt.Sprintf("maximum %s usage per %s is %s.  No limit is specified", name, item.Type, most.String()))
			case l.Cmp(most) > 0:
				errs = append(errs, fmt.Sprintf("maximum %s usage per %s is %s, but limit is %s", name, item.Type, most.String(), l.String()))
			}
		} else if !requested {
			errs = append(errs, fmt.Sprintf("maximum %s usage per %s is %s.  No request is specified", name, item.Type, most.String()))
		}
		if requested && q.Cmp(most) > 0 {
			errs = append(errs, fmt.Sprintf("maximum %s usage per %s is %s, but request is %s", name, item.Type, most.String(), q.String()))
		}
	})
	quota.Each(item.MaxLimitRequestRatio, func(name corev1.ResourceName, most apiresource.Quantity) {
		q, l := requests[name], limits[name]
		if q.IsZero() || l.IsZero() {
			errs = append(errs, fmt.Sprintf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, item.Type, most.String()))
			return
		}
		if ratio := float64(l.MilliValue()) / float64(q.MilliValue()); ratio > float64(most.MilliValue())/1000 {
			errs = append(errs, fmt.Sprintf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, item.Type, most.String(), ratio))
		}
	})
	return errs
}
