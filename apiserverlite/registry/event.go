package registry

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// coreEvents and eventKinds are two views of one set of objects, stored in the core form. Each has rules
// of its own: an event of the newer group must say more.
func coreEvents() *Resource {
	return events(corev1.SchemeGroupVersion, alloc[corev1.Event](), alloc[corev1.EventList]())
}

func eventKinds(Options) []*Resource {
	r := events(eventsv1.SchemeGroupVersion, alloc[eventsv1.Event](), alloc[eventsv1.EventList]())
	r.Storage = schema.GroupResource{Resource: "events"}
	r.ToStorage = func(obj runtime.Object) (runtime.Object, error) { return across(obj, &corev1.Event{}) }
	r.FromStorage = func(obj runtime.Object) (runtime.Object, error) { return across(obj, &eventsv1.Event{}) }
	return []*Resource{r}
}

// across converts an event of one group into out, of the other. The two share memory.
func across(obj, out runtime.Object) (runtime.Object, error) {
	in, err := internal[core.Event](obj)
	if err != nil {
		return nil, err
	}
	return out, upstream.Convert(in, out, nil)
}

func events(gv schema.GroupVersion, object, list func() runtime.Object) *Resource {
	return resource(kind[core.Event, core.EventList]{
		gvk: gv.WithKind("Event"), plural: "events", shortNames: []string{"ev"},
		object: object, list: list, noGC: true,
		rules: rules[core.Event]{
			createOnUpdate: true,
			unconditional:  true,
			validate:       func(e *core.Event) field.ErrorList { return validation.ValidateEventCreate(e, gv) },
			validateUpdate: func(e, old *core.Event) field.ErrorList { return validation.ValidateEventUpdate(e, old, gv) },
		},
		fields: eventFields,
	})
}

// eventFields has the core names for both groups: the newer group's labels are converted to them.
func eventFields(obj runtime.Object) fields.Set {
	e, err := internal[core.Event](obj)
	if err != nil {
		return nil
	}
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	o := e.InvolvedObject
	return fields.Set{
		"involvedObject.kind":            o.Kind,
		"involvedObject.namespace":       o.Namespace,
		"involvedObject.name":            o.Name,
		"involvedObject.uid":             string(o.UID),
		"involvedObject.apiVersion":      o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion,
		"involvedObject.fieldPath":       o.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}
