// Package registry knows every kind that the API serves: its names, how it is
// defaulted and validated, what a client may write, which columns and fields it
// shows. One file a kind.
//
// The registry is pure: no storage, no HTTP, no clock of its own. The server calls
// it in the order of upstream's generic store.
//
// Built-in kinds are defaulted, validated and printed by upstream's own code, on its internal
// types; what upstream's registry layer adds to that is written here. Feature gates have upstream's
// defaults. Snapshot kinds are served as custom resources are, without definitions. Some kinds are
// kept and shown, and nothing acts on them: Services, CronJobs, PodTemplates, RuntimeClasses, autoscalers. What a
// CustomResourceDefinition makes is built by Define.
package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Resource describes one resource of one API version. It is immutable after New.
type Resource struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
	// Verbs as discovery lists them: create delete deletecollection get list patch update watch.
	Verbs []string
	// Subresources by name ("status", "binding", "token", "scale", "eviction", "finalize").
	Subresources map[string]Subresource

	// New and NewList return empty versioned objects with apiVersion and kind unset.
	New     func() runtime.Object
	NewList func() runtime.Object
	// Protobuf is false for kinds that upstream serves as custom resources: JSON only, no strategic merge patch.
	Protobuf bool

	// Storage is the group and resource under which objects are kept. Events of both groups share one.
	Storage schema.GroupResource
	// ToStorage and FromStorage convert between this version and the stored object; nil means identity.
	ToStorage   func(runtime.Object) (runtime.Object, error)
	FromStorage func(runtime.Object) (runtime.Object, error)
	// Converter, for a kind that is served in several versions, takes any of them to the internal version and back: whose fields are whose
	// is kept in the version in which they wrote.
	Converter runtime.ObjectConvertor

	// Fields returns the values of the selectable fields; every key that is not here is refused with 400.
	Fields func(runtime.Object) fields.Set
	// FieldLabel converts a field selector's label and value, or refuses it with upstream's text.
	FieldLabel func(label, value string) (string, string, error)

	Strategy Strategy
	// Readable, if set, tells whether an object that was decoded means something.
	Readable func(runtime.Object) error
	// Table renders an object or a list of this kind with upstream's columns. The server fills in row objects.
	Table func(ctx context.Context, obj runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error)
	// Orphans is true for kinds whose dependents are orphaned by default (batch/v1 Job, v1 ReplicationController).
	Orphans bool
	// NoGC is true for kinds that get no garbage collection finalizers (events).
	NoGC bool
	// Deprecation is said to everybody who uses this version; it may be empty.
	Deprecation string
	// Custom is set for the resources that Define builds.
	Custom *Custom
}

// GR is the group and resource.
func (r *Resource) GR() schema.GroupResource { return r.GVR.GroupResource() }

// Subresource of a Resource. Strategy is set for those that write the parent object (status, finalize,
// ephemeralcontainers, resize); the others (binding, eviction, token, scale, log, exec) are the server's own.
type Subresource struct {
	Verbs    []string
	GVK      schema.GroupVersionKind // of the body; zero when it is the parent's
	Strategy Strategy
}

// Strategy is what a kind adds to the generic write path. The hooks have upstream's
// names and order, so that ported rules stay recognisable. Objects are versioned;
// hooks may change obj, never old.
type Strategy interface {
	AllowCreateOnUpdate() bool
	AllowUnconditionalUpdate() bool
	// Default fills in what upstream's versioned defaulting fills in.
	Default(obj runtime.Object)
	PrepareForCreate(ctx context.Context, obj runtime.Object)
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	WarningsOnCreate(ctx context.Context, obj runtime.Object) []string
	PrepareForUpdate(ctx context.Context, obj, old runtime.Object)
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
	WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string
	// GracePeriod tells how long a graceful deletion of obj takes; zero deletes at once. Only pods have one.
	GracePeriod(obj runtime.Object, opts *metav1.DeleteOptions) int64
	// ResetFields are the fields that this endpoint ignores, by API version, for managedFields.
	ResetFields() map[fieldpath.APIVersion]*fieldpath.Set
}

// Reader is what admission may ask about current objects. The server implements it from memory.
type Reader interface {
	// Get returns the stored object or a NotFound Status error. The object must not be changed.
	Get(gr schema.GroupResource, namespace, name string) (runtime.Object, error)
	// List returns the stored objects of a namespace, or all for "".
	List(gr schema.GroupResource, namespace string) []runtime.Object
}

// Admission is called by the server around a write, in upstream's order: Mutate before
// validation, Validate after it. Operation is CREATE, UPDATE or DELETE. Old is nil on create, obj is nil on delete.
type Admission interface {
	Mutate(ctx context.Context, a Attributes) error
	Validate(ctx context.Context, a Attributes) error
}

// Attributes of one write.
type Attributes struct {
	Resource    *Resource
	Subresource string
	Operation   string
	Namespace   string
	Name        string
	Obj, Old    runtime.Object
	DryRun      bool
	Reader      Reader
}

// ReturnsDeleted tells of the kinds whose deletion upstream answers with the object instead of a Status.
func ReturnsDeleted(gr schema.GroupResource) bool {
	switch gr.Group {
	case "storage.k8s.io":
		return gr.Resource != "csistoragecapacities"
	case "":
		switch gr.Resource {
		case "pods", "persistentvolumes", "persistentvolumeclaims", "services", "serviceaccounts", "podtemplates", "resourcequotas":
			return true
		}
	}
	return false
}
