package v1alpha1

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/lab"
)

type shape struct {
	Type       string
	Properties map[string]shape
	Items      *shape
	Enum       []string
	Desc       string `json:"description"`
}

func shapes(t *testing.T) map[string]shape {
	out := map[string]shape{}
	for _, text := range bytes.Split(definitions, []byte("\n---\n")) {
		var d struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema shape }
				}
			}
		}
		if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte("# "+d.Metadata.Name+"\n")) {
			t.Errorf("the text of %s does not begin with its name", d.Metadata.Name)
		}
		out[d.Spec.Names.Kind] = d.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return out
}

// TestSchemasAreTheTypes: each field of a type is in the schema and the other way round, so nothing is pruned.
func TestSchemasAreTheTypes(t *testing.T) {
	all := shapes(t)
	for kind, v := range map[string]any{"Fault": Fault{}, "NodeFault": NodeFault{}, "Clock": Clock{}} {
		s, ok := all[kind]
		if !ok {
			t.Errorf("no definition of %s", kind)
			continue
		}
		compareFields(t, kind+".spec", reflect.ValueOf(v).FieldByName("Spec").Type(), s.Properties["spec"])
		compareFields(t, kind+".status", reflect.ValueOf(v).FieldByName("Status").Type(), s.Properties["status"])
	}
}

func compareFields(t *testing.T, at string, typ reflect.Type, s shape) {
	var names []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		p, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the schema", at, name)
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case ft == reflect.TypeFor[metav1.Time](), ft == reflect.TypeFor[metav1.Duration](), ft.Kind() == reflect.String:
			if p.Type != "string" {
				t.Errorf("%s.%s has type %s in the schema", at, name, p.Type)
			}
		case ft == reflect.TypeFor[[]metav1.Condition]():
			compareFields(t, at+"."+name, ft.Elem(), *p.Items)
		case ft.Kind() == reflect.Struct:
			compareFields(t, at+"."+name, ft, p)
		}
	}
	for name := range s.Properties {
		if !slices.Contains(names, name) {
			t.Errorf("%s.%s of the schema is no field", at, name)
		}
	}
}

func TestWordsAreTheTap(t *testing.T) {
	spec := shapes(t)["Fault"].Properties["spec"]
	var actions, kinds, nodes []string
	for _, a := range lab.Actions() {
		actions = append(actions, string(a))
	}
	for _, k := range lab.Kinds() {
		kinds = append(kinds, string(k))
	}
	for _, a := range NodeActions() {
		nodes = append(nodes, string(a))
	}
	same := func(what string, got, want []string) {
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s of the schema: %v, of the tap: %v", what, got, want)
		}
	}
	same("actions", spec.Properties["action"].Enum, actions)
	same("calls", spec.Properties["match"].Properties["call"].Enum, kinds)
	same("actions on nodes", shapes(t)["NodeFault"].Properties["spec"].Properties["action"].Enum, nodes)
}

// TestCopies: a copy is equal and shares nothing.
func TestCopies(t *testing.T) {
	now, d := metav1.NewTime(time.Unix(1000, 0)), metav1.Duration{Duration: time.Second}
	conds := []metav1.Condition{{Type: InForce}}
	f := &Fault{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: []string{Finalizer}}, Spec: FaultSpec{Delay: &d, RestartAfter: &d},
		Status: FaultStatus{FirstFired: &now, LastFired: &now, Killed: []string{"a"}, Conditions: conds}}
	got := f.DeepCopyObject().(*Fault)
	if !equality.Semantic.DeepEqual(f, got) {
		t.Errorf("%+v", got)
	}
	got.Spec.Delay.Duration, got.Status.Killed[0], got.Status.Conditions[0].Type, got.Finalizers[0] = 1, "b", "y", "z"
	if f.Spec.Delay.Duration != time.Second || f.Status.Killed[0] != "a" || f.Status.Conditions[0].Type != InForce || f.Finalizers[0] != Finalizer {
		t.Error("the copy shares something with the original")
	}
	n := &NodeFault{Spec: NodeFaultSpec{Delay: &d, Skew: &d}, Status: NodeFaultStatus{Started: &now, Completed: &now, Conditions: conds}}
	if got := n.DeepCopyObject(); !equality.Semantic.DeepEqual(n, got) {
		t.Errorf("%+v", got)
	}
	k := &Clock{Spec: ClockSpec{Offset: d}, Status: ClockStatus{Offset: d, Advanced: &now, Conditions: conds}}
	if got := k.DeepCopyObject(); !equality.Semantic.DeepEqual(k, got) {
		t.Errorf("%+v", got)
	}
	list := &FaultList{Items: []Fault{*f}}
	if got := list.DeepCopyObject(); !equality.Semantic.DeepEqual(list, got) {
		t.Errorf("%+v", got)
	}
}
