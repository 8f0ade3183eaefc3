package server

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

// writing is one write of one object: what the steps of create, update and delete share.
// It is independent of HTTP, so that the server's own writes take the same way.
type writing struct {
	s         *Server
	res       *resource
	sub       string
	strategy  registry.Strategy
	namespace string
	name      string // empty for a create
	dryRun    bool
	manager   string // field manager
	untracked bool   // leave managedFields alone
	warnings  *warnings
	// user makes the write; nil is the server itself, which may grant what it likes.
	user *User
	// mayCreate is asked before an update or an apply makes an object. It may be nil.
	mayCreate func() error
	updating  bool // an update or an apply
}

// result of a write. Entry is nil for a dry run and for a deletion.
type result struct {
	object  runtime.Object
	entry   *storage.Entry
	created bool
}

func (x *exchange) writing(o writeOptions) *writing {
	w := &writing{s: x.s, res: x.res, sub: x.in.subresource, strategy: x.res.Strategy, namespace: x.in.namespace, name: x.in.name,
		dryRun: o.dryRun, manager: x.manager(o.fieldManager), untracked: x.untracked(), warnings: &x.warnings,
		user: &x.user, mayCreate: x.mayCreate}
	if x.sub.Strategy != nil {
		w.strategy = x.sub.Strategy
	}
	return w
}

func (w *writing) attributes(op string, obj, old runtime.Object) registry.Attributes {
	return registry.Attributes{Resource: w.res.Resource, Subresource: w.sub, Operation: op, Namespace: w.namespace, Name: w.name,
		Obj: obj, Old: old, DryRun: w.dryRun, Reader: w.s.reader}
}

// The operations of admission.
const (
	opCreate = "CREATE"
	opUpdate = "UPDATE"
	opDelete = "DELETE"
)

// nameAttempts is how often generateName tries another suffix: with 8, a million objects of
// one prefix still collide only once in a thousand.
const nameAttempts = 8

// create stores a new object. The caller gives it away.
func (w *writing) create(ctx context.Context, obj runtime.Object) (result, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return result{}, err
	}
	if err := w.matchNamespace(m); err != nil {
		return result{}, err
	}
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
	w.dedupOwners(m)
	if obj, err = w.trackNew(obj); err != nil {
		return result{}, err
	}
	if m, err = meta.Accessor(obj); err != nil {
		return result{}, err
	}
	w.name = m.GetName()
	if err := w.mutate(ctx, opCreate, obj, nil); err != nil {
		return result{}, err
	}
	return w.insert(ctx, obj)
}

func (w *writing) mutate(ctx context.Context, op string, obj, old runtime.Object) error {
	a := w.attributes(op, obj, old)
	if err := w.s.lifecycle(a); err != nil {
		return err
	}
	return w.s.admission.Mutate(ctx, a)
}

// insert is the second half of create: from the name on.
func (w *writing) insert(ctx context.Context, obj runtime.Object) (result, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return result{}, err
	}
	base := m.GetGenerateName()
	if m.GetName() != "" || base == "" {
		return w.insertNamed(ctx, obj)
	}
	for range nameAttempts {
		try := obj.DeepCopyObject()
		if m, err = meta.Accessor(try); err != nil {
			return result{}, err
		}
		m.SetName(generateName(base))
		var r result
		if r, err = w.insertNamed(ctx, try); err == nil || !apierrors.IsAlreadyExists(err) {
			return r, err
		}
	}
	return result{}, apierrors.NewGenerateNameConflict(w.res.GR(), m.GetName(), 1)
}

// generateName cuts the base so that the name is one of a label's length.
func generateName(base string) string {
	const suffix, most = 5, 63
	return base[:min(len(base), most-suffix)] + utilrand.String(suffix)
}

func (w *writing) insertNamed(ctx context.Context, obj runtime.Object) (result, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return result{}, err
	}
	if err := w.mayGrant(obj, nil); err != nil {
		return result{}, err
	}
	m.SetCreationTimestamp(metav1.NewTime(w.s.clock.Now()).Rfc3339Copy())
	m.SetUID(uuid.NewUUID())
	w.strategy.PrepareForCreate(ctx, obj)
	w.strategy.Default(obj) // what PrepareForCreate has emptied gets its default, as a re-read from upstream's store gives it
	errs := w.strategy.Validate(w.warning(ctx), obj)
	if len(errs) == 0 {
		errs = validation.ValidateObjectMetaAccessor(m, w.res.Namespaced, segment, field.NewPath("metadata"))
	}
	if len(errs) > 0 {
		return result{}, apierrors.NewInvalid(w.res.internalKind(), m.GetName(), errs)
	}
	w.warn(w.strategy.WarningsOnCreate(ctx, obj))
	w.name = m.GetName()
	if w.updating && w.mayCreate != nil {
		if err := w.mayCreate(); err != nil {
			return result{}, err
		}
	}
	done, err := w.quotaTurn(ctx)
	if err != nil {
		return result{}, err
	}
	defer done()
	if err := w.s.admission.Validate(ctx, w.attributes(opCreate, obj, nil)); err != nil {
		return result{}, err
	}
	if m.GetResourceVersion() != "" && !w.dryRun { // upstream's storage minds, and is not asked
		return result{}, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := w.res.key(m.GetNamespace(), m.GetName())
	if e, exists := w.s.store.Get(key); exists {
		return result{}, w.exists(e)
	}
	if w.dryRun {
		return result{object: obj, created: true}, nil
	}
	e, err := w.put(ctx, key, obj, 0)
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		e, _ := w.s.store.Get(key)
		return result{}, w.exists(e)
	}
	if err != nil {
		return result{}, err
	}
	return w.done(e, true)
}

func segment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// exists answers a name that is taken; controllers look for the words about deletion.
func (w *writing) exists(e *storage.Entry) error {
	err := apierrors.NewAlreadyExists(w.res.GR(), w.name)
	if e == nil {
		return err
	}
	if m, merr := meta.Accessor(e.Object); merr == nil && m.GetDeletionTimestamp() != nil {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}

// put writes obj, which it takes over.
func (w *writing) put(ctx context.Context, key storage.Key, obj runtime.Object, expect storage.Revision) (*storage.Entry, error) {
	kept, err := w.s.keep(w.res, obj)
	if err != nil {
		return nil, err
	}
	es, err := w.s.store.Write(ctx, storage.Op{Key: key, Object: kept, Expect: expect})
	if err != nil {
		return nil, err
	}
	return es[0], nil
}

// remove deletes; last is the state that the DELETED event carries, and is taken over.
func (w *writing) remove(ctx context.Context, key storage.Key, last runtime.Object, expect storage.Revision) (*storage.Entry, error) {
	kept, err := w.s.keep(w.res, last)
	if err != nil {
		return nil, err
	}
	es, err := w.s.store.Write(ctx, storage.Op{Key: key, Object: kept, Expect: expect, Delete: true})
	if err != nil {
		return nil, err
	}
	return es[0], nil
}

func (w *writing) done(e *storage.Entry, created bool) (result, error) {
	o, err := w.res.view(e)
	return result{object: o, entry: e, created: created}, err
}

// matchNamespace fills in the namespace of the path, or refuses another one. Upstream clears what a cluster-scoped object brings.
func (w *writing) matchNamespace(m metav1.Object) error {
	switch {
	case !w.res.Namespaced:
		m.SetNamespace("")
		return nil
	case m.GetNamespace() == w.namespace:
		return nil
	case m.GetNamespace() == "":
		m.SetNamespace(w.namespace)
		return nil
	}
	return badRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// dedupOwners drops owner references that name one owner twice.
func (w *writing) dedupOwners(m metav1.Object) {
	refs := m.GetOwnerReferences()
	if len(refs) < 2 {
		return
	}
	seen := map[types.UID]bool{}
	out := make([]metav1.OwnerReference, 0, len(refs))
	for _, r := range refs {
		if !seen[r.UID] {
			out = append(out, r)
		}
		seen[r.UID] = true
	}
	if len(out) == len(refs) {
		return
	}
	m.SetOwnerReferences(out)
	w.warn([]string{fmt.Sprintf(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", duplicates(refs))})
}

func duplicates(refs []metav1.OwnerReference) string {
	count, out := map[types.UID]int{}, ""
	for _, r := range refs {
		if count[r.UID]++; count[r.UID] == 2 {
			if out != "" {
				out += ", "
			}
			out += string(r.UID)
		}
	}
	return out
}

// warning is ctx for a strategy that tells of what it lets pass.
func (w *writing) warning(ctx context.Context) context.Context {
	if w.res.Custom == nil {
		return ctx
	}
	return registry.WithWarnings(ctx, func(text string) { w.warn([]string{text}) })
}

func (w *writing) warn(texts []string) {
	if w.warnings != nil {
		w.warnings.add(texts...)
	}
}
