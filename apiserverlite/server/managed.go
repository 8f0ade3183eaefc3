package server

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"drydock.dev/drydock/apiserverlite/registry"
)

// tracker keeps managedFields, with one field manager for each resource and subresource. They are
// made when first needed: the schemas take time to load.
type tracker struct {
	s *Server

	mu        sync.Mutex
	types     managedfields.TypeConverter // guarded by mu, nil until needed
	load      func() (managedfields.TypeConverter, error)
	byWriting map[trackKey]*managedfields.FieldManager // guarded by mu
	births    map[*resource]*birth                     // guarded by mu
}

type trackKey struct {
	res *resource
	sub string
}

func newTracker(s *Server, r Registry) *tracker {
	t := &tracker{s: s, byWriting: map[trackKey]*managedfields.FieldManager{}, births: map[*resource]*birth{}}
	t.load = func() (managedfields.TypeConverter, error) { return managedfields.NewDeducedTypeConverter(), nil }
	if c, ok := r.(interface {
		TypeConverter() (managedfields.TypeConverter, error)
	}); ok {
		t.load = c.TypeConverter
	}
	return t
}

// defaulter lets the field manager default as the kind's strategy does.
type defaulter struct{ registry.Strategy }

func (t *tracker) manager(w *writing) (*managedfields.FieldManager, error) {
	if w.res.tracking != nil {
		return w.customManager()
	}
	return t.once(trackKey{w.res, w.sub}, func(types managedfields.TypeConverter) (*managedfields.FieldManager, error) {
		reset := map[fieldpath.APIVersion]fieldpath.Filter{}
		for v, set := range w.strategy.ResetFields() {
			reset[v] = fieldpath.NewExcludeSetFilter(set)
		}
		converter, hub := runtime.ObjectConvertor(t.s.cfg.Scheme), w.res.GVK.GroupVersion()
		if w.res.Converter != nil {
			converter, hub.Version = w.res.Converter, runtime.APIVersionInternal
		}
		m, err := managedfields.NewDefaultFieldManager(types, converter, defaulter{w.res.Strategy}, t.s.cfg.Scheme, w.res.GVK, hub, w.sub, reset)
		if err != nil {
			return nil, fmt.Errorf("managed fields of %s: %w", w.res.GVR, err)
		}
		return m, nil
	})
}

// scales is the field manager of the Scale kind, which all workloads share.
func (t *tracker) scales() (*managedfields.FieldManager, error) {
	return t.questions(scaleKind, "scale")
}

// once returns a field manager that was made before, or makes it.
func (t *tracker) once(k trackKey, build func(managedfields.TypeConverter) (*managedfields.FieldManager, error)) (*managedfields.FieldManager, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.byWriting[k]; ok {
		return m, nil
	}
	types, err := t.converter()
	if err != nil {
		return nil, err
	}
	m, err := build(types)
	if err == nil {
		t.byWriting[k] = m
	}
	return m, err
}

// track records who set which field. Writers of our own leave the record as it is.
func (w *writing) track(old, obj runtime.Object) (runtime.Object, error) {
	if w.untracked {
		return obj, keepManaged(obj, old)
	}
	if !w.res.Protobuf && w.res.Custom == nil {
		return w.trackAsCustom(old, obj)
	}
	m, err := w.s.tracker.manager(w)
	if err != nil {
		return nil, err
	}
	live := old
	if live.GetObjectKind().GroupVersionKind().Empty() { // a new, empty object of our own
		live.GetObjectKind().SetGroupVersionKind(w.res.GVK)
	}
	out := m.UpdateNoErrors(live, obj, w.manager)
	out.GetObjectKind().SetGroupVersionKind(w.res.GVK)
	return out, nil
}

// keepManaged carries the record over when the writer did not send it.
func keepManaged(obj, old runtime.Object) error {
	m, err := metaOf(obj)
	if err != nil {
		return err
	}
	if m.GetManagedFields() == nil {
		o, err := metaOf(old)
		if err != nil {
			return err
		}
		m.SetManagedFields(o.GetManagedFields())
	}
	return nil
}

// keepTimes takes back new timestamps in managedFields when nothing else has changed, so that a write
// without effect stays one.
func keepTimes(obj, old runtime.Object, m, oldMeta metav1.Object) {
	a, b := m.GetManagedFields(), oldMeta.GetManagedFields()
	if len(a) != len(b) || len(a) == 0 {
		return
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Time, y.Time = nil, nil
		if !equality.Semantic.DeepEqual(x, y) {
			return
		}
	}
	m.SetManagedFields(b)
	if !equality.Semantic.DeepEqual(obj, old) {
		m.SetManagedFields(a)
	}
}
