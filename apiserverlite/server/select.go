package server

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"drydock.dev/drydock/apiserverlite/storage"
)

// matcher is what a list or a watch selects within its namespace.
type matcher struct {
	res    *resource
	labels labels.Selector // nil: all
	fields fields.Selector // nil: all
	name   string          // required metadata.name, which fields requires as well
}

func (x *exchange) matcher(o *internalversion.ListOptions) (matcher, error) {
	m := matcher{res: x.res}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		m.labels = o.LabelSelector
	}
	sel := o.FieldSelector
	if x.in.name != "" { // GET .../name?watch=true
		byName := fields.OneTermEqualSelector("metadata.name", x.in.name)
		if sel != nil && !sel.Empty() {
			if v, ok := sel.RequiresExactMatch("metadata.name"); !ok || v != x.in.name {
				return m, badRequest("fieldSelector metadata.name doesn't match requested name")
			}
		}
		sel = byName
	}
	if sel == nil || sel.Empty() {
		return m, nil
	}
	sel, err := sel.Transform(func(label, value string) (string, string, error) {
		if x.res.FieldLabel != nil {
			return x.res.FieldLabel(label, value)
		}
		switch label {
		case "metadata.name", "metadata.namespace":
			return label, value, nil
		}
		return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
	})
	if err != nil {
		return m, badRequest("%s", err.Error())
	}
	if !sel.Empty() {
		m.fields = sel
		m.name, _ = sel.RequiresExactMatch("metadata.name")
	}
	return m, nil
}

func (m *matcher) all() bool { return m.labels == nil && m.fields == nil }

// matches tells whether an entry is selected. A nil entry is not.
func (m *matcher) matches(e *storage.Entry) bool {
	if e == nil {
		return false
	}
	if m.labels != nil {
		o, err := meta.Accessor(e.Object)
		if err != nil || !m.labels.Matches(labels.Set(o.GetLabels())) {
			return false
		}
	}
	if m.fields == nil {
		return true
	}
	if m.name != "" && e.Key.Name != m.name {
		return false
	}
	return m.fields.Matches(m.set(e))
}

func (m *matcher) set(e *storage.Entry) fields.Set {
	if m.res.Fields != nil {
		if o, err := m.res.view(e); err == nil {
			return m.res.Fields(o)
		}
	}
	return fields.Set{"metadata.name": e.Key.Name, "metadata.namespace": e.Key.Namespace}
}
