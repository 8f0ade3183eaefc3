package registry

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var (
	allVerbs    = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	objectVerbs = []string{"get", "patch", "update"}
)

// kind describes a built-in kind; T is upstream's internal type of it, L that of its list.
type kind[T, L any] struct {
	gvk        schema.GroupVersionKind
	plural     string
	shortNames []string
	categories []string
	cluster    bool // not in a namespace
	verbs      []string
	object     func() runtime.Object
	list       func() runtime.Object
	rules      rules[T]
	// parts are the subresources that write the object itself.
	parts map[string]rules[T]
	// others are the subresources that the server serves by itself.
	others map[string]Subresource
	// fields are the selectable fields beyond name and namespace.
	fields func(obj runtime.Object) fields.Set
	noGC   bool
}

// resource builds the Resource of a kind.
func resource[T, L any, P pointer[T], Q pointer[L]](k kind[T, L]) *Resource {
	gv := k.gvk.GroupVersion()
	version := fieldpath.APIVersion(gv.String())
	r := &Resource{
		GVR: gv.WithResource(k.plural), GVK: k.gvk, Singular: strings.ToLower(k.gvk.Kind),
		ShortNames: k.shortNames, Categories: k.categories, Namespaced: !k.cluster, Verbs: k.verbs,
		New: k.object, NewList: k.list, Protobuf: true,
		Storage:      schema.GroupResource{Group: gv.Group, Resource: k.plural},
		FieldLabel:   fieldLabel(k.gvk),
		Strategy:     &strategy[T, P]{rules: k.rules, version: version},
		Table:        table[T, L, P, Q],
		NoGC:         k.noGC,
		Subresources: map[string]Subresource{},
	}
	if r.Verbs == nil {
		r.Verbs = allVerbs
	}
	r.Fields = func(obj runtime.Object) fields.Set {
		var more fields.Set
		if k.fields != nil {
			more = k.fields(obj)
		}
		return metaFields(accessor(obj), r.Namespaced, more)
	}
	for name, rules := range k.parts {
		verbs := objectVerbs
		if name == "finalize" {
			verbs = []string{"update"}
		}
		r.Subresources[name] = Subresource{Verbs: verbs, Strategy: &strategy[T, P]{rules: rules, version: version, subresource: name}}
	}
	for name, sub := range k.others {
		r.Subresources[name] = sub
	}
	return r
}
