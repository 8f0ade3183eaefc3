package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"drydock.dev/drydock/apiserverlite/storage"
)

func (x *exchange) update(ctx context.Context) (reply, error) {
	o, err := x.updateOptions()
	if err != nil {
		return reply{}, err
	}
	obj, err := x.object(o.validation)
	if err != nil {
		return reply{}, err
	}
	w := x.writing(o)
	if err := w.matchName(obj); err != nil {
		return reply{}, err
	}
	acc, err := meta.Accessor(obj)
	if err != nil {
		return reply{}, err
	}
	w.dedupOwners(acc)
	r, err := w.change(ctx, change{uid: string(acc.GetUID()), createMissing: w.strategy.AllowCreateOnUpdate() && w.sub == "",
		make: func(runtime.Object) (runtime.Object, error) {
			return obj.DeepCopyObject(), nil // a further round starts from the same body
		}})
	if err != nil {
		return reply{}, err
	}
	return r.reply(), nil
}

func (r result) reply() reply {
	code := http.StatusOK
	if r.created {
		code = http.StatusCreated
	}
	return reply{code: code, object: r.object, entry: r.entry}
}

// matchName refuses an object of another name than the path's, or of another namespace, which it fills in.
func (w *writing) matchName(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if err := w.matchNamespace(m); err != nil {
		return err
	}
	switch m.GetName() {
	case w.name:
	case "":
		return badRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", w.name)
	default:
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), w.name)
	}
	return nil
}

// change says how to get from the current object to the new one.
type change struct {
	// make returns a new object that is the caller's own. Old is shared; nil means that there is none.
	make func(old runtime.Object) (runtime.Object, error)
	// uid, if set, is that of the object which is meant.
	uid string
	// createMissing allows a change of what does not exist.
	createMissing bool
	// tracked says that make has already taken care of managedFields.
	tracked bool
}

// change reads, makes the new object, and writes it if nobody was faster; else it starts over. A
// client that names a resourceVersion gets the conflict instead, from checkVersion in the next round.
func (w *writing) change(ctx context.Context, c change) (result, error) {
	key := w.res.key(w.namespace, w.name)
	for {
		e, ok := w.s.store.Get(key)
		if !ok {
			if !c.createMissing {
				return result{}, notFound(w.res.GR(), w.name)
			}
			r, err := w.changeNothing(ctx, c)
			if apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				continue // somebody was faster: change what they made
			}
			return r, err
		}
		r, err := w.changeEntry(ctx, c, e)
		var conflict *storage.ConflictError
		if !errors.As(err, &conflict) {
			return r, err
		}
		if ctx.Err() != nil {
			return result{}, context.Cause(ctx)
		}
	}
}

// changeNothing is a create by update or by apply.
func (w *writing) changeNothing(ctx context.Context, c change) (result, error) {
	obj, err := c.make(nil)
	if err != nil {
		return result{}, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return result{}, err
	}
	if m.GetUID() != "" && !c.tracked {
		return result{}, apierrors.NewConflict(w.res.GR(), w.name, w.otherUID(string(m.GetUID()), ""))
	}
	if m.GetUID() != "" {
		return result{}, apierrors.NewConflict(w.res.GR(), w.name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", m.GetUID()))
	}
	if !c.tracked {
		if obj, err = w.track(w.res.New(), obj); err != nil {
			return result{}, err
		}
		if m, err = meta.Accessor(obj); err != nil {
			return result{}, err
		}
	}
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
	m.SetResourceVersion("") // of an object that is gone
	if err := w.mutate(ctx, opCreate, obj, nil); err != nil {
		return result{}, err
	}
	w.dedupOwners(m)
	w.updating = true
	return w.insertNamed(ctx, obj)
}

func (w *writing) changeEntry(ctx context.Context, c change, e *storage.Entry) (result, error) {
	old, err := w.res.view(e)
	if err != nil {
		return result{}, err
	}
	oldMeta, err := meta.Accessor(old)
	if err != nil {
		return result{}, err
	}
	if c.uid != "" && c.uid != string(oldMeta.GetUID()) {
		return result{}, apierrors.NewConflict(w.res.GR(), w.name, w.otherUID(c.uid, string(oldMeta.GetUID())))
	}
	obj, err := c.make(old)
	if err != nil {
		return result{}, err
	}
	if !c.tracked {
		if obj, err = w.track(old, obj); err != nil {
			return result{}, err
		}
	}
	if err := w.mutate(ctx, opUpdate, obj, old); err != nil {
		return result{}, err
	}
	if err := w.mayGrant(obj, old); err != nil {
		return result{}, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return result{}, err
	}
	w.dedupOwners(m)
	if err := w.checkVersion(m, e); err != nil {
		return result{}, err
	}
	if err := w.prepareUpdate(ctx, obj, old, m, oldMeta); err != nil {
		return result{}, err
	}
	keepTimes(obj, old, m, oldMeta)
	done, err := w.quotaTurn(ctx)
	if err != nil {
		return result{}, err
	}
	defer done()
	if err := w.s.admission.Validate(ctx, w.attributes(opUpdate, obj, old)); err != nil {
		return result{}, err
	}
	if finished(obj, m, oldMeta) {
		if w.dryRun {
			return result{object: obj}, nil
		}
		m.SetResourceVersion(e.Revision.String())
		last := obj.DeepCopyObject()
		if _, err := w.remove(ctx, e.Key, last, e.Revision); err != nil {
			return result{}, err
		}
		return result{object: obj}, nil // as the client wrote it: with the revision that it changed
	}
	if w.dryRun {
		m.SetResourceVersion(e.Revision.String())
		return result{object: obj}, nil
	}
	ne, err := w.put(ctx, e.Key, obj, e.Revision)
	if err != nil {
		return result{}, err
	}
	return w.done(ne, false)
}

// otherUID says that the object which is meant is not the one that is there, as upstream's storage says it.
func (w *writing) otherUID(meant, have string) error {
	return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s",
		w.storageKey(), meant, have)
}

// storageKey is where upstream keeps an object.
func (w *writing) storageKey() string {
	gr := w.res.GR()
	prefix := gr.Resource
	switch {
	case !w.res.Protobuf, gr == definitionResource:
		prefix = gr.Group + "/" + gr.Resource
	case gr == nodesResource:
		prefix = "minions"
	case gr.Group == "" && gr.Resource == "services":
		prefix = "services/specs"
	}
	return "/registry/" + prefix + "/" + storage.Path(w.namespace, w.name)
}

// checkVersion applies optimistic concurrency.
func (w *writing) checkVersion(m metav1.Object, e *storage.Entry) error {
	switch m.GetResourceVersion() {
	case e.Revision.String():
		return nil
	case "", "0":
		if w.strategy.AllowUnconditionalUpdate() {
			return nil
		}
		// Upstream names the resource where the kind belongs.
		return apierrors.NewInvalid(schema.GroupKind{Group: w.res.GVR.Group, Kind: w.res.GVR.Resource}, w.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	}
	if _, err := parseRevision(m.GetResourceVersion()); err != nil {
		return apierrors.NewInvalid(w.res.internalKind(), w.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), m.GetResourceVersion(), "must be an unsigned integer")})
	}
	return apierrors.NewConflict(w.res.GR(), w.name, errors.New(optimisticLock))
}

// prepareUpdate keeps what an update cannot change, lets the strategy do its part and validates.
func (w *writing) prepareUpdate(ctx context.Context, obj, old runtime.Object, m, oldMeta metav1.Object) error {
	m.SetResourceVersion(oldMeta.GetResourceVersion())
	m.SetGeneration(oldMeta.GetGeneration())
	w.strategy.PrepareForUpdate(ctx, obj, old)
	if m.GetUID() == "" {
		m.SetUID(oldMeta.GetUID())
	}
	if t := oldMeta.GetCreationTimestamp(); !t.IsZero() {
		m.SetCreationTimestamp(t)
	}
	if t := oldMeta.GetDeletionTimestamp(); !t.IsZero() {
		m.SetDeletionTimestamp(t)
	}
	if p := oldMeta.GetDeletionGracePeriodSeconds(); p != nil && m.GetDeletionGracePeriodSeconds() == nil {
		m.SetDeletionGracePeriodSeconds(p)
	}
	meta := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(m, w.res.Namespaced, segment, meta)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(m, oldMeta, meta)...)
	errs = append(errs, w.strategy.ValidateUpdate(w.warning(ctx), obj, old)...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(w.res.internalKind(), m.GetName(), unique(errs))
	}
	w.warn(w.strategy.WarningsOnUpdate(ctx, obj, old))
	return nil
}

// unique drops errors that the common and the kind's own rules both found.
func unique(errs field.ErrorList) field.ErrorList {
	var out field.ErrorList
	for _, e := range errs {
		if !slices.ContainsFunc(out, func(o *field.Error) bool { return o.Error() == e.Error() }) {
			out = append(out, e)
		}
	}
	return out
}

// finished tells whether an update has taken the last finalizer of an object that was being deleted.
// A namespace also has finalizers in its spec.
func finished(obj runtime.Object, m, oldMeta metav1.Object) bool {
	if len(m.GetFinalizers()) > 0 || oldMeta.GetDeletionTimestamp() == nil {
		return false
	}
	if p := oldMeta.GetDeletionGracePeriodSeconds(); p != nil && *p != 0 {
		return false
	}
	ns, isNamespace := obj.(*corev1.Namespace)
	return !isNamespace || len(ns.Spec.Finalizers) == 0
}
