package conformance

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
)

var definitions = in("apiextensions.k8s.io", "v1", "customresourcedefinitions")

// structural is the schema that most of the tests use.
const structural = `{type: object, properties: {spec: {type: object, required: [size], properties: {
  size: {type: integer, minimum: 1}, color: {type: string, enum: [red, blue]}, note: {type: string},
  ports: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}}}},
  status: {type: object, properties: {phase: {type: string}}}}}`

// definition is a CustomResourceDefinition of a group that is the test's own: boats.<namespace>.test.
func (w *world) definition(schema, more string) *unstructured.Unstructured {
	w.t.Helper()
	return w.object(strings.NewReplacer("GROUP", w.group(), "SCHEMA", schema, "MORE", more, "OWNER", w.ns).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.GROUP, labels: {owner: OWNER}}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList, shortNames: [bt], categories: [fleet]}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: SCHEMA} MORE}
`))
}

func (w *world) group() string { return w.ns + ".test" }

func (w *world) boats() schema.GroupVersionResource { return in(w.group(), "v1", "boats") }

// define makes the definition and waits until it is served.
func (w *world) define(o *unstructured.Unstructured) {
	w.t.Helper()
	_, err := w.dyn.Resource(definitions).Create(w.ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	w.must(err)
	await(w, definitions, "", o.GetName(), "to be established", established)
}

func established(o *unstructured.Unstructured) bool {
	if o == nil {
		return false
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if m := c.(map[string]any); m["type"] == "Established" {
			return m["status"] == "True"
		}
	}
	return false
}

// boat is a custom object with the fields given in YAML's short form.
func (w *world) boat(name, fields string) *unstructured.Unstructured {
	w.t.Helper()
	return w.object("{apiVersion: " + w.group() + "/v1, kind: Boat, metadata: {name: " + name + "}, " + fields + "}")
}

func (w *world) launch(name, fields string) (*unstructured.Unstructured, error) {
	w.t.Helper()
	return w.at(w.boats(), w.ns).Create(w.ctx, w.boat(name, fields), metav1.CreateOptions{})
}

func (w *world) patchDefinition(patch string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.dyn.Resource(definitions).Patch(w.ctx, "boats."+w.group(), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
	return o
}

func TestDefinitionLife(t *testing.T) {
	w := newWorld(t)
	d := w.definition(structural, "")
	stream, err := w.dyn.Resource(definitions).Watch(w.ctx, metav1.ListOptions{LabelSelector: "owner=" + w.ns})
	w.must(err)
	defer stream.Stop()
	w.define(d)
	_, err = w.launch("a", "spec: {size: 1}")
	w.must(err)

	client := w.dyn.Resource(definitions)
	o, err := client.Get(w.ctx, d.GetName(), metav1.GetOptions{}, "status")
	w.must(err)
	if field(o, "status", "acceptedNames", "kind") != "Boat" || !same(field(o, "status", "storedVersions"), []string{"v1"}) {
		t.Errorf("status: %v", o.Object["status"])
	}
	_, err = client.Patch(w.ctx, d.GetName(), types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Tested","status":"True","reason":"Test","message":"m","lastTransitionTime":"2026-11-29T12:00:00Z"}]}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	o, err = client.Patch(w.ctx, d.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}},"status":{"storedVersions":["v9"]}}`), metav1.PatchOptions{})
	w.must(err)
	if o.GetAnnotations()["a"] != "b" || !same(field(o, "status", "storedVersions"), []string{"v1"}) {
		t.Errorf("after a patch: %v", o)
	}

	w.must(client.DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "owner=" + w.ns}))
	w.gone(definitions, "", d.GetName())
	_, err = w.at(w.boats(), w.ns).List(w.ctx, metav1.ListOptions{})
	w.refused(err, apierrors.IsNotFound, "the server could not find the requested resource")
	var seen []watch.EventType
	for e := range stream.ResultChan() {
		if seen = append(seen, e.Type); e.Type == watch.Deleted {
			break
		}
	}
	if len(seen) < 3 || seen[0] != watch.Added || seen[1] != watch.Modified {
		t.Errorf("the watch of definitions saw %v", seen)
	}
}

func TestCustomObjectsAreWatched(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ""))
	boats := w.at(w.boats(), w.ns)
	stream, err := boats.Watch(w.ctx, metav1.ListOptions{})
	w.must(err)
	defer stream.Stop()
	for _, n := range []string{"a", "b"} {
		_, err := w.launch(n, "spec: {size: 1}")
		w.must(err)
	}
	_, err = boats.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	w.must(err)
	w.must(boats.Delete(w.ctx, "a", metav1.DeleteOptions{}))
	var seen string
	for range 4 {
		e := <-stream.ResultChan()
		o := e.Object.(*unstructured.Unstructured)
		seen += string(e.Type) + " " + o.GetName() + ";"
	}
	if seen != "ADDED a;ADDED b;MODIFIED a;DELETED a;" {
		t.Errorf("seen: %s", seen)
	}
}

func TestCustomObjectsAreValidatedAndPruned(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ""))
	boats := w.at(w.boats(), w.ns)
	o, err := w.launch("a", "spec: {size: 1, color: red, unknown: x}, other: y")
	w.must(err)
	if field(o, "spec", "unknown") != nil || field(o, "other") != nil || field(o, "spec", "color") != "red" {
		t.Errorf("not pruned: %v", o.Object)
	}
	for fields, words := range map[string]string{
		"spec: {size: 0}":                                          "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
		"spec: {size: '1'}":                                        `spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`,
		"spec: {size: 1, color: green}":                            `spec.color: Unsupported value: "green": supported values: "red", "blue"`,
		"spec: {color: red}":                                       "spec.size: Required value",
		"spec: {size: 1, ports: [{port: 1}]}":                      "spec.ports[0].name: Required value",
		"spec: {size: 1, ports: [{name: a}, {name: a}]}":           "spec.ports[1]: Duplicate value",
		"metadata: {name: 'Not a name'}, spec: {size: 1}":          "metadata.name: Invalid value",
		"metadata: {name: x, labels: {'a b': c}}, spec: {size: 1}": "metadata.labels: Invalid value",
	} {
		_, err := w.launch("bad", fields)
		if err == nil || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v; want %s", fields, err, words)
		}
	}
	_, err = boats.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":0}}`), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid, "should be greater than or equal to 1")
}

// TestCustomObjectsAreDefaulted sets a default for objects that are there already: reads show it; and takes it away again.
func TestCustomObjectsAreDefaulted(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition("{type: object, properties: {a: {type: string}, b: {type: string}}}", ""))
	boats := w.at(w.boats(), w.ns)
	o, err := w.launch("old", "c: dropped")
	w.must(err)
	if field(o, "a") != nil || field(o, "c") != nil {
		t.Errorf("without defaults: %v", o.Object)
	}
	const at = "/spec/versions/0/schema/openAPIV3Schema/properties/"
	w.patchDefinition(`[{"op":"add","path":"` + at + `a/default","value":"A"}]`)
	w.eventually("the default is shown", func() bool {
		o, err := boats.Get(w.ctx, "old", metav1.GetOptions{})
		w.must(err)
		return field(o, "a") == "A"
	})
	o, err = w.launch("new", "b: x")
	w.must(err)
	if field(o, "a") != "A" || field(o, "b") != "x" {
		t.Errorf("created with a default: %v", o.Object)
	}
	w.patchDefinition(`[{"op":"remove","path":"` + at + `a/default"},{"op":"add","path":"` + at + `b/default","value":"B"}]`)
	w.eventually("the other default is shown, what was stored stays", func() bool {
		old, err := boats.Get(w.ctx, "old", metav1.GetOptions{})
		w.must(err)
		o, err := boats.Get(w.ctx, "new", metav1.GetOptions{})
		w.must(err)
		return field(old, "b") == "B" && field(old, "a") == nil && field(o, "a") == "A" && field(o, "b") == "x"
	})
}

func TestCustomSubresources(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ", subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}"))
	boats := w.at(w.boats(), w.ns)
	o, err := w.launch("a", "spec: {size: 3}, status: {phase: Sunk}")
	w.must(err)
	if field(o, "status") != nil || o.GetGeneration() != 1 {
		t.Errorf("created: %v", o.Object)
	}
	o, err = boats.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":4},"status":{"phase":"Afloat"}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	if field(o, "spec", "size") != int64(3) || field(o, "status", "phase") != "Afloat" || o.GetGeneration() != 1 {
		t.Errorf("status patched: %v", o.Object)
	}
	sc, err := boats.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}, "scale")
	w.must(err)
	o, err = boats.Get(w.ctx, "a", metav1.GetOptions{})
	w.must(err)
	if field(sc, "spec", "replicas") != int64(5) || field(o, "spec", "size") != int64(5) || o.GetGeneration() != 2 {
		t.Errorf("scaled to %v: %v", sc.Object["spec"], o.Object)
	}
}

func TestCustomResourcesInDiscovery(t *testing.T) {
	w := newWorld(t)
	d := discovery.NewDiscoveryClientForConfigOrDie(config)
	w.define(w.definition(structural, ", additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]"))
	w.eventually("discovery has the group", func() bool {
		list, err := d.ServerResourcesForGroupVersion(w.group() + "/v1")
		if err != nil {
			return false
		}
		r := list.APIResources[0]
		if r.Name != "boats" || r.SingularName != "boat" || r.Kind != "Boat" || !r.Namespaced || r.ShortNames[0] != "bt" || r.Categories[0] != "fleet" || r.StorageVersionHash == "" {
			t.Errorf("discovery: %+v", r)
		}
		return true
	})
	groups, _, _, err := d.GroupsAndMaybeResources() // the aggregated document
	w.must(err)
	found := false
	for _, g := range groups.Groups {
		found = found || g.Name == w.group() && g.PreferredVersion.Version == "v1"
	}
	if !found {
		t.Errorf("aggregated discovery lacks %s", w.group())
	}
	if body := w.get("/openapi/v3/apis/"+w.group()+"/v1", ""); !strings.Contains(body, `"x-kubernetes-group-version-kind":[{"group":"`+w.group()+`","kind":"Boat","version":"v1"}]`) || !strings.Contains(body, `"color"`) {
		t.Errorf("OpenAPI v3: %.300s", body)
	}
	if body := w.get("/openapi/v2", ""); !strings.Contains(body, w.group()) {
		t.Error("OpenAPI v2 lacks the group")
	}
	w.must(w.dyn.Resource(definitions).Delete(w.ctx, "boats."+w.group(), metav1.DeleteOptions{}))
	w.eventually("discovery has the group no more", func() bool {
		_, err := d.ServerResourcesForGroupVersion(w.group() + "/v1")
		return apierrors.IsNotFound(err)
	})
}

func TestCustomVersions(t *testing.T) {
	w := newWorld(t)
	d := w.definition(structural, "")
	versions := field(d, "spec", "versions").([]any)
	v2 := w.object("{name: v2, served: true, storage: false, schema: {openAPIV3Schema: " + structural + "}}").Object
	w.must(unstructured.SetNestedSlice(d.Object, append(versions, v2), "spec", "versions"))
	w.define(d)
	_, err := w.launch("a", "spec: {size: 1}")
	w.must(err)
	second := w.boats()
	second.Version = "v2"
	o, err := w.at(second, w.ns).Get(w.ctx, "a", metav1.GetOptions{})
	w.must(err)
	if o.GetAPIVersion() != w.group()+"/v2" {
		t.Errorf("read in v2: %v", o.Object)
	}
	w.patchDefinition(`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
	w.eventually("v2 is served no more", func() bool {
		_, err := w.at(second, w.ns).Get(w.ctx, "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && !strings.Contains(w.get("/openapi/v2", ""), w.group()+"/v2")
	})
}

func TestCustomSelectableFields(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ", selectableFields: [{jsonPath: .spec.color}]"))
	boats := w.at(w.boats(), w.ns)
	stream, err := boats.Watch(w.ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
	w.must(err)
	defer stream.Stop()
	for n, c := range map[string]string{"a": "red", "b": "blue"} {
		_, err := w.launch(n, "spec: {size: 1, color: "+c+"}")
		w.must(err)
	}
	list, err := boats.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
	w.must(err)
	if len(list.Items) != 1 || list.Items[0].GetName() != "a" {
		t.Errorf("red ones: %v", list.Items)
	}
	_, err = boats.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{})
	w.must(err)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if e := <-stream.ResultChan(); e.Type != want || e.Object.(*unstructured.Unstructured).GetName() != "a" {
			t.Errorf("seen: %+v", e)
		}
	}
	_, err = boats.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.size=1"})
	w.refused(err, apierrors.IsBadRequest, "field label not supported: spec.size")
}

func TestApplyToCustomObjects(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ""))
	manifest := func(ports string) string {
		return "{apiVersion: " + w.group() + "/v1, kind: Boat, metadata: {name: a}, spec: {size: 1, ports: " + ports + "}}"
	}
	w.applied(w.boats(), "one", manifest("[{name: x, port: 1}]"))
	o := w.applied(w.boats(), "two", manifest("[{name: z, port: 2}]"))
	if n := len(field(o, "spec", "ports").([]any)); n != 2 {
		t.Errorf("lists merge by key: %v", o.Object)
	}
	_, err := w.apply(w.boats(), "two", manifest("[{name: x, port: 9}]"))
	w.refused(err, apierrors.IsConflict, `conflict with "one"`, `.spec.ports[name="x"].port`)
}
