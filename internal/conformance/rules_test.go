package conformance

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ruled is a schema with rules as kubebuilder's markers make them.
const ruled = `{type: object, properties: {
  spec: {type: object, required: [size], properties: {
    size: {type: integer}, least: {type: integer, default: 1}, color: {type: string, maxLength: 9, x-kubernetes-validations: [{rule: self == oldSelf, message: color is immutable}]},
    ports: {type: array, maxItems: 5, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string, maxLength: 9}, port: {type: integer}},
      x-kubernetes-validations: [{rule: self.port > 1023, message: a port of one's own, reason: FieldValueForbidden, fieldPath: .port}]}}},
    x-kubernetes-validations: [{rule: self.size >= self.least, messageExpression: "'of ' + (self.least == 1 ? 'one' : 'more') + ' at least'"}]},
  status: {type: object, properties: {phase: {type: string, maxLength: 9, x-kubernetes-validations: [{rule: "oldSelf != 'Sunk' || self == 'Sunk'", message: sunk is sunk}]}}}}}`

func (w *world) invalid(what string, err error, words ...string) {
	w.t.Helper()
	if !apierrors.IsInvalid(err) {
		w.t.Errorf("%s: %v", what, err)
		return
	}
	for _, s := range words {
		if !strings.Contains(err.Error(), s) {
			w.t.Errorf("%s: %v, which does not say %q", what, err, s)
		}
	}
}

func TestRulesOfCustomObjects(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(ruled, ", subresources: {status: {}}"))
	boats := w.at(w.boats(), w.ns)
	_, err := w.launch("a", "spec: {size: 0}")
	w.invalid("a rule of the object, about a default", err, "spec: Invalid value", "of one at least")
	_, err = w.launch("a", "spec: {size: 1, ports: [{name: a, port: 2000}, {name: b, port: 80}]}")
	w.invalid("a rule of an item", err, "spec.ports[1].port: Forbidden: a port of one's own")
	_, err = w.launch("a", "spec: {size: 1, ports: [{name: a, port: 2000}], color: red}")
	w.must(err)
	patch := func(body string, sub ...string) error {
		_, err := boats.Patch(w.ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	w.invalid("a transition", patch(`{"spec":{"color":"blue"}}`), "spec.color: Invalid value", "color is immutable")
	w.must(patch(`{"spec":{"size":2}}`))
	w.must(patch(`{"status":{"phase":"Sunk"}}`, "status"))
	w.invalid("a transition of the status", patch(`{"status":{"phase":"Afloat"}}`, "status"), "status.phase: Invalid value", "sunk is sunk")
	_, err = boats.Apply(w.ctx, "a", w.boat("a", "spec: {size: 2, least: 5}"), metav1.ApplyOptions{FieldManager: "me", Force: true})
	w.invalid("an apply", err, "of more at least")
	_, err = boats.Create(w.ctx, w.boat("b", "spec: {size: 0}"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	w.invalid("a dry run", err, "of one at least")
}

func TestRulesMustCompileAndBeCheap(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ schema, want string }{
		"a syntax error":    {`{type: object, x-kubernetes-validations: [{rule: "1 +"}]}`, "Syntax error"},
		"an unknown field":  {`{type: object, x-kubernetes-validations: [{rule: "self.spec.x > 1"}]}`, "undefined field 'spec'"},
		"too high a cost":   {`{type: object, properties: {l: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, a == b))"}]}}}`, "estimated rule cost exceeds budget"},
		"a default against": {`{type: object, properties: {a: {type: integer, default: 1, x-kubernetes-validations: [{rule: self > 1}]}}}`, "default"},
	} {
		_, err := w.dyn.Resource(definitions).Create(w.ctx, w.definition(c.schema, ""), metav1.CreateOptions{})
		w.invalid(name, err, c.want)
	}
}

func TestRulesLetStayWhatWasThere(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ""))
	_, err := w.launch("a", "spec: {size: 1, note: x}")
	w.must(err)
	w.patchDefinition(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/x-kubernetes-validations","value":[{"rule":"self > 9"}]},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/minLength","value":4}]`)
	w.eventually("the rule holds for what is new", func() bool {
		_, err := w.launch("b", "spec: {size: 1}")
		if err == nil {
			w.must(w.at(w.boats(), w.ns).Delete(w.ctx, "b", metav1.DeleteOptions{}))
		}
		return apierrors.IsInvalid(err)
	})
	patch := func(body string) error {
		_, err := w.at(w.boats(), w.ns).Patch(w.ctx, "a", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	w.must(patch(`{"spec":{"note":"y"}}`))
	w.invalid("another wrong value", patch(`{"spec":{"size":2}}`), "spec.size")
	w.must(patch(`{"spec":{"size":10}}`))
}
