package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Custom is what a resource has beyond others when a definition made it. Its objects are unstructured.
type Custom struct {
	// Coerce makes an object that a client sent fit the schema: what the schema does not know is removed,
	// and its paths are returned.
	Coerce func(u *unstructured.Unstructured) (unknown []string, err error)
	// Types knows how the kind's fields merge.
	Types func() (managedfields.TypeConverter, error)
	// Models are the OpenAPI models of the kind and its list, by name; OldModels those of version 2.
	Models, OldModels func() map[string]*spec.Schema
	// ListKind is the kind of lists.
	ListKind string
	// Scale is nil without a scale subresource.
	Scale *apiextensionsv1.CustomResourceSubresourceScale
	// Stored tells that objects are written in this version.
	Stored bool
}

// Define builds the resources of a definition's served versions, in the order of preference. The schemas
// were validated when the definition was written.
func Define(d *apiextensionsv1.CustomResourceDefinition) ([]*Resource, error) {
	var out []*Resource
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Served && !v.Storage {
			continue
		}
		r, err := defineVersion(d, v)
		if err != nil {
			return nil, fmt.Errorf("definition %s, version %s: %w", d.Name, v.Name, err)
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *Resource) int { return version.CompareKubeAwareVersionStrings(b.GVR.Version, a.GVR.Version) })
	return out, nil
}

// successor is the first served version, in the order of their maturity, that is above one and not deprecated; there may be none.
func successor(d *apiextensionsv1.CustomResourceDefinition, than string) (best string) {
	for _, v := range d.Spec.Versions {
		if v.Served && !v.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, than) > 0 && (best == "" || version.CompareKubeAwareVersionStrings(v.Name, best) > 0) {
			best = v.Name
		}
	}
	return best
}

func defineVersion(d *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) (*Resource, error) {
	props, s, err := schemaOf(v)
	if err != nil {
		return nil, err
	}
	gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
	names, namespaced := d.Status.AcceptedNames, d.Spec.Scope == apiextensionsv1.NamespaceScoped
	k := &defined{gvk: gv.WithKind(names.Kind), namespaced: namespaced, schema: s, others: map[string]*structural.Structural{}}
	if k.judge, err = newJudge(props, s, v.Subresources); err != nil {
		return nil, err
	}
	for _, f := range v.SelectableFields {
		k.selectable = append(k.selectable, map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")})
	}
	for i := range d.Spec.Versions {
		if o := &d.Spec.Versions[i]; o.Name != v.Name {
			if _, k.others[o.Name], err = schemaOf(o); err != nil {
				return nil, err
			}
		}
	}
	r := &Resource{
		GVR: gv.WithResource(names.Plural), GVK: k.gvk, Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories, Namespaced: namespaced,
		Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		New:   func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} },
		NewList: func() runtime.Object {
			l := &unstructured.UnstructuredList{Object: map[string]any{}}
			l.SetGroupVersionKind(gv.WithKind(names.ListKind))
			return l
		},
		Storage:      schema.GroupResource{Group: gv.Group, Resource: names.Plural},
		Strategy:     k,
		Table:        customTable(columnsOf(v)...),
		Subresources: map[string]Subresource{},
		FieldLabel:   customFieldLabel(namespaced, v.SelectableFields),
		Fields:       func(o runtime.Object) fields.Set { return selectable(o, namespaced, v.SelectableFields) },
	}
	r.FromStorage = k.read
	if !v.Storage {
		var main string
		for _, o := range d.Spec.Versions {
			if o.Storage {
				main = o.Name
			}
		}
		to := schema.GroupVersion{Group: gv.Group, Version: main}.WithKind(names.Kind)
		r.ToStorage = func(o runtime.Object) (runtime.Object, error) {
			o.GetObjectKind().SetGroupVersionKind(to)
			if u, ok := o.(*unstructured.Unstructured); ok { // what the stored version does not know is not kept
				pruneUnknown(u.Object, k.others[main], true)
			}
			return o, nil
		}
	}
	r.Custom = &Custom{Coerce: k.coerce, Types: sync.OnceValues(k.types), Models: k.models(v3, names), OldModels: k.models(v2, names), ListKind: names.ListKind, Stored: v.Storage}
	if v.Deprecated {
		r.Deprecation = fmt.Sprintf("%s %s is deprecated", gv, names.Kind)
		if better := successor(d, v.Name); better != "" {
			r.Deprecation += fmt.Sprintf("; use %s/%s %s", gv.Group, better, names.Kind)
		}
		if v.DeprecationWarning != nil {
			r.Deprecation = *v.DeprecationWarning
		}
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		k.status = true
		r.Subresources["status"] = Subresource{Verbs: objectVerbs, Strategy: &definedStatus{k}}
	}
	if sub := v.Subresources; sub != nil && sub.Scale != nil {
		r.Custom.Scale = sub.Scale
		r.Subresources["scale"] = Subresource{Verbs: objectVerbs, GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale")}
	}
	return r, nil
}

func columnsOf(v *apiextensionsv1.CustomResourceDefinitionVersion) []column {
	if len(v.AdditionalPrinterColumns) == 0 {
		c := age
		c.description = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
		return []column{c}
	}
	var out []column
	for _, c := range v.AdditionalPrinterColumns {
		out = append(out, column{name: c.Name, kind: c.Type, path: c.JSONPath, description: c.Description, format: c.Format, priority: c.Priority})
	}
	return out
}

// customFieldLabel takes the fields that a definition names.
func customFieldLabel(namespaced bool, more []apiextensionsv1.SelectableField) func(label, value string) (string, string, error) {
	return func(label, value string) (string, string, error) {
		if label == "metadata.name" || label == "metadata.namespace" && namespaced {
			return label, value, nil
		}
		for _, f := range more {
			if strings.TrimPrefix(f.JSONPath, ".") == label {
				return label, value, nil
			}
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
}

func selectable(o runtime.Object, namespaced bool, more []apiextensionsv1.SelectableField) fields.Set {
	set := fields.Set{}
	for _, f := range more {
		p := strings.TrimPrefix(f.JSONPath, ".")
		set[p] = ""
		if v, found := Lookup(o, f.JSONPath); found && v != nil {
			set[p] = fmt.Sprint(v)
		}
	}
	return metaFields(accessor(o), namespaced, set)
}

// Lookup finds the value at a simple JSON path (".spec.replicas") of an unstructured object.
func Lookup(o runtime.Object, path string) (any, bool) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, false
	}
	v, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(strings.TrimPrefix(path, "."), ".")...)
	return v, found && err == nil
}

// defined is the strategy of a kind that a definition made.
type defined struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	status     bool  // has a status subresource
	selectable []any // fields, as OpenAPI tells of them
	schema     *structural.Structural
	others     map[string]*structural.Structural // of the other versions
	judge      *judge
}

func (k *defined) version() fieldpath.APIVersion {
	return fieldpath.APIVersion(k.gvk.GroupVersion().String())
}

// read returns a stored object in this version, with the defaults that the schema may have got since and without
// what it may have lost; the next write stores it so. It is the same object if nothing has to change.
func (k *defined) read(o runtime.Object) (runtime.Object, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a stored %s is a %T", k.gvk.Kind, o)
	}
	same := u.GroupVersionKind() == k.gvk
	if same && !lacksDefaults(u.Object, k.schema) && !hasUnknown(u.Object, k.schema, true) {
		return u, nil
	}
	u = u.DeepCopy()
	stored := k.schema
	if s, found := k.others[u.GroupVersionKind().Version]; found {
		stored = s
	}
	fillDefaults(u.Object, stored) // it is defaulted as what it is stored as, not as what it is read as
	u.SetGroupVersionKind(k.gvk)
	pruneUnknown(u.Object, k.schema, true)
	return u, nil
}

// coerce takes metadata, the object's and that of objects in it, through its type, as every server does, and removes what the schema does not know.
func (k *defined) coerce(u *unstructured.Unstructured) ([]string, error) {
	var unknown []string
	if m, found := u.Object["metadata"]; found && m != nil {
		in, ok := m.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("metadata: Invalid value: %T: must be an object", m)
		}
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("read metadata: %w", err)
		}
		typed := &metav1.ObjectMeta{}
		if err := json.Unmarshal(b, typed); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, fmt.Errorf("read metadata: %w", err)
		}
		for name := range in {
			if !metaNames()[name] {
				unknown = append(unknown, "metadata."+name)
			}
		}
		if t, found := out["creationTimestamp"]; found && t == nil {
			delete(out, "creationTimestamp")
		}
		u.Object["metadata"] = out
	}
	unknown = append(unknown, pruneUnknown(u.Object, k.schema, true)...)
	bad, inside := objectmeta.CoerceWithOptions(nil, u.Object, k.schema, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if bad != nil {
		return nil, bad
	}
	unknown = append(unknown, inside...)
	slices.Sort(unknown)
	return unknown, nil
}

// metaNames are the fields of metadata.
var metaNames = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{"selfLink": true}
	for name := range (metav1.ObjectMeta{}).SwaggerDoc() {
		out[name] = true
	}
	return out
})

func (k *defined) Default(o runtime.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		fillDefaults(u.Object, k.schema)
	}
}

func (k *defined) PrepareForCreate(_ context.Context, o runtime.Object) {
	u := o.(*unstructured.Unstructured)
	if k.status {
		delete(u.Object, "status")
	}
	u.SetGeneration(1)
}
