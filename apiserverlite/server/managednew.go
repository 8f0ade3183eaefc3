package server

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// birth is what a new object of a kind is compared with to find the fields that its maker owns. The field
// manager would come to the same, and on its way copy and read the empty object each
// time, and read the new one twice: half the work of a create.
type birth struct {
	empty   *typed.TypedValue
	ignored fieldpath.Filter // nil: none
}

// unowned are the fields that nobody owns.
var unowned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
	fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// birth of a built-in kind, made when first needed.
func (t *tracker) birth(res *resource) (*birth, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b, ok := t.births[res]; ok {
		return b, nil
	}
	types, err := t.converter()
	if err != nil {
		return nil, err
	}
	o := res.New()
	o.GetObjectKind().SetGroupVersionKind(res.GVK)
	empty, err := types.ObjectToTyped(o, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", res.GVR, err)
	}
	b := &birth{empty: empty}
	if set := res.Strategy.ResetFields()[fieldpath.APIVersion(res.GVK.GroupVersion().String())]; set != nil {
		b.ignored = fieldpath.NewExcludeSetFilter(set)
	}
	t.births[res] = b
	return b, nil
}

// owned are the fields of a new object that its maker owns.
func (b *birth) owned(obj runtime.Object) (*fieldpath.Set, error) {
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	c, err := b.empty.Compare(typed.AsTypedUnvalidated(v, b.empty.Schema(), b.empty.TypeRef()))
	if err != nil {
		return nil, err
	}
	set := c.Added
	if !c.Modified.Empty() {
		set = set.Union(c.Modified)
	}
	if b.ignored != nil {
		set = b.ignored.Filter(set)
	}
	return set.Difference(unowned), nil
}

// trackNew records who set which field of an object that is about to be created.
func (w *writing) trackNew(obj runtime.Object) (runtime.Object, error) {
	m, err := metaOf(obj)
	if err != nil {
		return nil, err
	}
	if w.untracked || !w.res.Protobuf || m.GetManagedFields() != nil { // custom resources are of no Go type
		return w.track(w.res.New(), obj)
	}
	b, err := w.s.tracker.birth(w.res)
	if err != nil {
		return nil, err
	}
	set, err := b.owned(obj)
	if err != nil {
		return w.track(w.res.New(), obj) // which has its ways with what cannot be compared
	}
	if set.Empty() {
		return obj, nil
	}
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s: %w", w.res.GVR, err)
	}
	m.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: w.manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: w.res.GVK.GroupVersion().String(),
		Time: &metav1.Time{Time: time.Now().UTC()}, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw},
	}})
	return obj, nil
}

// converter is the schemas. The caller holds mu.
func (t *tracker) converter() (managedfields.TypeConverter, error) {
	if t.types == nil {
		types, err := t.load()
		if err != nil {
			return nil, fmt.Errorf("load schemas for managed fields: %w", err)
		}
		t.types = types
	}
	return t.types, nil
}
