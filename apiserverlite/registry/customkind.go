package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// customKind describes a kind that upstream serves as a custom resource.
type customKind[T any, P pointer[T]] struct {
	gvk        schema.GroupVersionKind
	plural     string
	shortNames []string
	cluster    bool
	list       func() runtime.Object
	takeStatus func(obj, from P)
	check      func(c *checks, obj, old P)
	columns    []column
}

func customResource[T any, P pointer[T]](k customKind[T, P]) *Resource {
	gv := k.gvk.GroupVersion()
	s := custom[T, P]{namespaced: !k.cluster, version: fieldpath.APIVersion(gv.String()), takeStatus: k.takeStatus, check: k.check}
	r := &Resource{
		GVR: gv.WithResource(k.plural), GVK: k.gvk, Singular: strings.ToLower(k.gvk.Kind), ShortNames: k.shortNames, Namespaced: !k.cluster,
		// Custom resources list their verbs in another order than built-in ones.
		Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		New:   alloc[T, P](), NewList: k.list,
		Storage:  schema.GroupResource{Group: gv.Group, Resource: k.plural},
		Strategy: &s, Table: customTable(k.columns...),
		Subresources: map[string]Subresource{},
		FieldLabel: func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" && !k.cluster {
				return label, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		},
		Fields: func(obj runtime.Object) fields.Set { return metaFields(accessor(obj), !k.cluster, nil) },
	}
	if k.takeStatus != nil {
		r.Subresources["status"] = Subresource{Verbs: objectVerbs, Strategy: &customStatus[T, P]{s}}
	}
	return r
}

// bridge serves another version of a kind that is stored and ruled as main. The versions differ in nothing
// but what a change of apiVersion can bear; fields that a version does not know are lost in it.
type bridge struct {
	Strategy
	to, from func(runtime.Object) (runtime.Object, error)
	version  fieldpath.APIVersion
}

// otherVersion returns main in another version.
func otherVersion(main *Resource, version, warning string, object, list func() runtime.Object) *Resource {
	r := *main
	r.GVR.Version, r.GVK.Version = version, version
	r.New, r.NewList, r.Deprecation = object, list, warning
	r.ToStorage = func(obj runtime.Object) (runtime.Object, error) { return reencode(obj, main.New()) }
	r.FromStorage = func(obj runtime.Object) (runtime.Object, error) { return reencode(obj, object()) }
	wrap := func(s Strategy) Strategy {
		return &bridge{Strategy: s, to: r.ToStorage, from: r.FromStorage, version: fieldpath.APIVersion(r.GVR.GroupVersion().String())}
	}
	r.Strategy = wrap(main.Strategy)
	r.Subresources = map[string]Subresource{}
	for name, sub := range main.Subresources {
		sub.Strategy = wrap(sub.Strategy)
		r.Subresources[name] = sub
	}
	return &r
}

// replace runs f on obj's other form and writes the result back into obj.
func (b *bridge) replace(obj runtime.Object, f func(main runtime.Object)) {
	main, err := b.to(obj)
	if err != nil {
		return
	}
	f(main)
	gvk := obj.GetObjectKind().GroupVersionKind()
	_, _ = reencode(main, obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
}

func (b *bridge) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	b.replace(obj, func(main runtime.Object) { b.Strategy.PrepareForCreate(ctx, main) })
}

func (b *bridge) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	before, err := b.to(old)
	if err != nil {
		return
	}
	b.replace(obj, func(main runtime.Object) { b.Strategy.PrepareForUpdate(ctx, main, before) })
}

func (b *bridge) ResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	for _, set := range b.Strategy.ResetFields() {
		return map[fieldpath.APIVersion]*fieldpath.Set{b.version: set}
	}
	return nil
}

func (b *bridge) GracePeriod(runtime.Object, *metav1.DeleteOptions) int64 { return 0 }

func (b *bridge) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	main, err := b.to(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return b.Strategy.Validate(ctx, main)
}

func (b *bridge) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	main, err := b.to(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	before, err := b.to(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return b.Strategy.ValidateUpdate(ctx, main, before)
}

// reencode reads obj's JSON into out, which is emptied first, and clears the type there.
func reencode(obj, out runtime.Object) (runtime.Object, error) {
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %T to %T: %w", obj, out, err)
	}
	v := reflect.ValueOf(out).Elem()
	v.SetZero()
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("convert %T to %T: %w", obj, out, err)
	}
	clearType(out)
	return out, nil
}

func clearType(o runtime.Object) { o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) }
