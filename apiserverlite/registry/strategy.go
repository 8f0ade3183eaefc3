package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// rules are what a built-in kind adds to the write path, in terms of upstream's internal type T, because
// upstream's validation speaks of that. A nil hook does nothing. Prepare hooks get a copy of the old
// object, so that they may share its parts with the new one.
type rules[T any] struct {
	createOnUpdate bool
	// unconditional allows a PUT without resourceVersion.
	unconditional  bool
	prepareCreate  func(obj *T)
	validate       func(obj *T) field.ErrorList
	warnCreate     func(ctx context.Context, obj *T) []string
	prepareUpdate  func(obj, old *T)
	validateUpdate func(obj, old *T) field.ErrorList
	warnUpdate     func(ctx context.Context, obj, old *T) []string
	grace          func(obj runtime.Object, o *metav1.DeleteOptions) int64
	// ignored names the fields that a writer cannot set here.
	ignored []*fieldpath.Set
	declarative
}

// strategy makes rules into a Strategy.
type strategy[T any, P pointer[T]] struct {
	rules[T]
	version     fieldpath.APIVersion
	subresource string
}

func (s *strategy[T, P]) AllowCreateOnUpdate() bool      { return s.createOnUpdate }
func (s *strategy[T, P]) AllowUnconditionalUpdate() bool { return s.unconditional }
func (s *strategy[T, P]) Default(obj runtime.Object)     { normalize[T, P](obj) }

func (s *strategy[T, P]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.prepareCreate == nil {
		return
	}
	in, err := internal[T, P](obj)
	if err != nil {
		return
	}
	s.prepareCreate(in)
	external(in, obj)
}

func (s *strategy[T, P]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if s.prepareUpdate == nil {
		return
	}
	in, err := internal[T, P](obj)
	if err != nil {
		return
	}
	before, err := internal[T, P](old.DeepCopyObject())
	if err != nil {
		return
	}
	s.prepareUpdate(in, before)
	external(in, obj)
}

func (s *strategy[T, P]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	in, err := internal[T, P](obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var errs field.ErrorList
	if s.validate != nil {
		errs = s.validate(in)
	}
	return s.onCreate(ctx, obj, errs, s.subresource)
}

func (s *strategy[T, P]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	in, err := internal[T, P](obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	before, err := internal[T, P](old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	var errs field.ErrorList
	if s.validateUpdate != nil {
		errs = s.validateUpdate(in, before)
	}
	return s.onUpdate(ctx, obj, old, errs, s.subresource)
}

func (s *strategy[T, P]) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	if s.warnCreate == nil {
		return nil
	}
	in, err := internal[T, P](obj)
	if err != nil {
		return nil
	}
	return s.warnCreate(ctx, in)
}

func (s *strategy[T, P]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.warnUpdate == nil {
		return nil
	}
	in, err := internal[T, P](obj)
	if err != nil {
		return nil
	}
	before, err := internal[T, P](old)
	if err != nil {
		return nil
	}
	return s.warnUpdate(ctx, in, before)
}

func (s *strategy[T, P]) GracePeriod(obj runtime.Object, o *metav1.DeleteOptions) int64 {
	if s.grace == nil {
		return 0
	}
	return s.grace(obj, o)
}

func (s *strategy[T, P]) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if len(s.ignored) == 0 {
		return nil
	}
	all := fieldpath.NewSet()
	for _, set := range s.ignored {
		all = all.Union(set)
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{s.version: all}
}

// path names a field that a strategy ignores.
func path(parts ...any) *fieldpath.Set { return fieldpath.NewSet(fieldpath.MakePathOrDie(parts...)) }
