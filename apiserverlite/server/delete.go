package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

// deleted is what a delete has come to.
type deleted struct {
	result
	gone bool // the object is removed; else it waits for finalizers or its grace period
}

func (x *exchange) delete(ctx context.Context) (reply, error) {
	o, err := x.deleteOptions()
	if err != nil {
		return reply{}, err
	}
	if x.res.Orphans && x.res.GVR.Group == batchv1.GroupName && o.PropagationPolicy == nil && o.OrphanDependents == nil { //nolint:staticcheck // old clients send it
		x.warnings.add("child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning")
	}
	w := x.writing(writeOptions{dryRun: len(o.DryRun) > 0})
	d, err := w.delete(ctx, o)
	if err != nil {
		return reply{}, err
	}
	code := http.StatusOK
	if !d.gone && o.OrphanDependents != nil && !*o.OrphanDependents { //nolint:staticcheck // old clients send it
		code = http.StatusAccepted
	}
	if d.gone && !registry.ReturnsDeleted(x.res.GR()) {
		return reply{code: code, object: success(x.res, d.object)}, nil
	}
	return reply{code: code, object: d.object, entry: d.entry}, nil
}

func success(r *resource, o runtime.Object) *metav1.Status {
	st := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	if m, err := meta.Accessor(o); err == nil {
		st.Details = &metav1.StatusDetails{Name: m.GetName(), Group: r.GVR.Group, Kind: r.GVR.Resource, UID: m.GetUID()}
	}
	return st
}

// delete removes an object, or marks it as being deleted:
//
//	alive --delete, grace period > 0-----------> terminating, until deletionTimestamp
//	      --delete, finalizers left------------> terminating, until the last finalizer goes
//	      --delete, neither--------------------> gone
//	terminating --delete, shorter grace period-> terminating (earlier), or gone at 0
//
// Upstream writes the shortened grace period and then deletes; here both are one write, whose
// DELETED event carries the final deletionTimestamp.
func (w *writing) delete(ctx context.Context, o *metav1.DeleteOptions) (deleted, error) {
	key := w.res.key(w.namespace, w.name)
	for {
		e, ok := w.s.store.Get(key)
		if !ok {
			return deleted{}, notFound(w.res.GR(), w.name)
		}
		d, err := w.deleteEntry(ctx, e, o)
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return d, err
		}
		if ctx.Err() != nil {
			return deleted{}, context.Cause(ctx)
		}
	}
}

func (w *writing) deleteEntry(ctx context.Context, e *storage.Entry, o *metav1.DeleteOptions) (deleted, error) {
	old, err := w.res.view(e)
	if err != nil {
		return deleted{}, err
	}
	obj := old.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return deleted{}, err
	}
	if err := w.checkPreconditions(m, e, o.Preconditions); err != nil {
		return deleted{}, err
	}
	a := w.attributes(opDelete, nil, old)
	if err := w.s.lifecycle(a); err != nil {
		return deleted{}, err
	}
	if err := w.s.admission.Mutate(ctx, a); err != nil {
		return deleted{}, err
	}
	if err := w.s.admission.Validate(ctx, a); err != nil {
		return deleted{}, err
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		if stays := w.terminateNamespace(ns, m, o); stays {
			return w.mark(ctx, e, obj)
		}
	}
	grace, unchanged := w.grace(obj, m, o)
	if unchanged {
		return deleted{result: result{object: old, entry: e}}, nil
	}
	w.collectFinalizers(m, o)
	generation := m.GetGeneration()
	if len(m.GetFinalizers()) > 0 && grace == 0 {
		w.markDeleting(m)
		if w.res.GR() == definitionResource { // marked by a rule of its own
			m.SetGeneration(generation)
			m.SetDeletionGracePeriodSeconds(nil)
			w.s.announceEnd(obj)
		}
	}
	if len(m.GetFinalizers()) > 0 || grace > 0 {
		return w.mark(ctx, e, obj)
	}
	if w.dryRun {
		return deleted{result: result{object: obj}, gone: true}, nil
	}
	ne, err := w.remove(ctx, e.Key, obj, e.Revision)
	if err != nil {
		return deleted{}, err
	}
	r, err := w.done(ne, false)
	return deleted{result: r, gone: true}, err
}

// mark stores an object that is being deleted.
func (w *writing) mark(ctx context.Context, e *storage.Entry, obj runtime.Object) (deleted, error) {
	if w.dryRun {
		return deleted{result: result{object: obj}}, nil
	}
	ne, err := w.put(ctx, e.Key, obj, e.Revision)
	if err != nil {
		return deleted{}, err
	}
	r, err := w.done(ne, false)
	return deleted{result: r}, err
}

// preconditionTexts are what upstream says of an object that is another one, or another version of one, than was
// meant, and of what it says it.
type preconditionTexts struct {
	about        schema.GroupResource
	uid, version string
}

func (w *writing) preconditionTexts() preconditionTexts {
	switch gr := w.res.GR(); gr { // two kinds are deleted by code of their own
	case namespaces:
		return preconditionTexts{gr, "Precondition failed: UID in precondition: %v, UID in object meta: %v",
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v"}
	case definitionResource:
		return preconditionTexts{gr, "precondition failed: UID in precondition: %v, UID in object meta: %v",
			"precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v"}
	}
	// The others are told by their kind where the resource belongs.
	return preconditionTexts{schema.GroupResource{Group: w.res.GVK.Group, Resource: w.res.GVK.Kind},
		"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated",
		"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified"}
}

func (w *writing) checkPreconditions(m metav1.Object, e *storage.Entry, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	texts := w.preconditionTexts()
	if p.UID != nil && *p.UID != m.GetUID() {
		return apierrors.NewConflict(texts.about, w.name, fmt.Errorf(texts.uid, *p.UID, m.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != e.Revision.String() {
		return apierrors.NewConflict(texts.about, w.name, fmt.Errorf(texts.version, *p.ResourceVersion, e.Revision))
	}
	return nil
}

// grace sets the deletion timestamp of a kind that ends gracefully, and returns its period. Unchanged says
// that a deletion is pending already and not to be hastened.
func (w *writing) grace(obj runtime.Object, m metav1.Object, o *metav1.DeleteOptions) (period int64, unchanged bool) {
	now := metav1.NewTime(w.s.clock.Now()).Rfc3339Copy()
	if m.GetDeletionTimestamp() != nil {
		pending := m.GetDeletionGracePeriodSeconds()
		if pending == nil || *pending == 0 {
			return 0, false
		}
		if o.GracePeriodSeconds == nil {
			return *pending, true
		}
		period = *o.GracePeriodSeconds
		if period < 0 {
			period = 1
		}
		if period >= *pending {
			return *pending, true
		}
		at := metav1.NewTime(m.GetDeletionTimestamp().Add(time.Duration(period-*pending) * time.Second))
		if at.Before(&now) {
			at = now
			if period != 0 { // it was due already, but somebody is still to end it gracefully
				period = 1
			}
		}
		m.SetDeletionTimestamp(&at)
		m.SetDeletionGracePeriodSeconds(&period)
		return period, false
	}
	period = w.res.Strategy.GracePeriod(obj, o)
	if period < 0 {
		period = 1
	}
	if period == 0 && w.res.GR() != podsResource {
		return 0, false
	}
	at := metav1.NewTime(now.Add(time.Duration(period) * time.Second))
	m.SetDeletionTimestamp(&at)
	m.SetDeletionGracePeriodSeconds(&period)
	bumpGeneration(m)
	return period, false
}

func bumpGeneration(m metav1.Object) {
	if m.GetGeneration() > 0 {
		m.SetGeneration(m.GetGeneration() + 1)
	}
}

// markDeleting is for objects that only wait for finalizers.
func (w *writing) markDeleting(m metav1.Object) {
	now := metav1.NewTime(w.s.clock.Now()).Rfc3339Copy()
	if m.GetDeletionTimestamp() == nil {
		bumpGeneration(m)
	}
	if t := m.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		m.SetDeletionTimestamp(&now)
	}
	m.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
}

// collectFinalizers adds or takes away the two finalizers that the garbage collector works off.
func (w *writing) collectFinalizers(m metav1.Object, o *metav1.DeleteOptions) {
	if w.res.NoGC {
		return
	}
	orphan, foreground := w.propagation(m.GetFinalizers(), o)
	var out []string
	if w.res.GR() == definitionResource && !slices.Contains(m.GetFinalizers(), registry.DefinitionFinalizer) {
		out = append(out, registry.DefinitionFinalizer) // its instances go first
	}
	for _, f := range m.GetFinalizers() {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			out = append(out, f)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if !sameSet(out, m.GetFinalizers()) {
		m.SetFinalizers(out)
	}
}

// propagation weighs the option, the finalizers that are there, and the kind's default, in this order.
func (w *writing) propagation(have []string, o *metav1.DeleteOptions) (orphan, foreground bool) {
	switch {
	case o.OrphanDependents != nil: //nolint:staticcheck // old clients send it
		return *o.OrphanDependents, false //nolint:staticcheck // as above
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy == metav1.DeletePropagationOrphan, *o.PropagationPolicy == metav1.DeletePropagationForeground
	case slices.Contains(have, metav1.FinalizerOrphanDependents):
		return true, false
	case slices.Contains(have, metav1.FinalizerDeleteDependents):
		return false, true
	}
	return w.res.Orphans, false
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
