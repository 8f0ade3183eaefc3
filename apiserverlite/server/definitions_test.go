package server

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const vaultDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: vaults.dock.example.com}
spec:
  group: dock.example.com
  scope: Namespaced
  names: {plural: vaults, kind: Vault, shortNames: [vt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size, description: How big}
    - {name: Mode, type: string, jsonPath: .spec.mode, priority: 1}
    selectableFields: [{jsonPath: .spec.mode}]
    schema:
      openAPIV3Schema:
        type: object
        description: A place for things.
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 100, description: Units of room.}
              mode: {type: string, enum: [open, shut], default: open}
              replicas: {type: integer, default: 1}
              port: {x-kubernetes-int-or-string: true}
              doors:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, lock: {type: boolean, default: true}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const vaultsPath = "/apis/dock.example.com/v1/namespaces/default/vaults"

func vaultGVR(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "dock.example.com", Version: version, Resource: "vaults"}
}

func toJSON(t *testing.T, text string) string {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (f *fixture) define(t *testing.T, definition string) map[string]any {
	t.Helper()
	code, _, body := f.call(t, call{method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: toJSON(t, definition)})
	if code != 201 {
		t.Fatalf("define: %d %s", code, body)
	}
	return decode(t, body)
}

func vault(name, spec string) string {
	return `{"apiVersion":"dock.example.com/v1","kind":"Vault","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

func TestDefinitionIsServedAtOnce(t *testing.T) {
	f := startReal(t, "")
	if code, _, _ := f.call(t, call{method: "GET", path: vaultsPath}); code != 404 {
		t.Fatalf("before: %d", code)
	}
	got := f.define(t, vaultDefinition)
	conditions, _, _ := unstructured.NestedSlice(got, "status", "conditions")
	if len(conditions) != 2 {
		t.Fatalf("conditions: %v", conditions)
	}
	for _, c := range conditions {
		if c.(map[string]any)["status"] != "True" {
			t.Errorf("condition %v", c)
		}
	}
	if names, _, _ := unstructured.NestedString(got, "status", "acceptedNames", "singular"); names != "vault" {
		t.Errorf("singular is %q", names)
	}
	for path, words := range map[string][]string{
		"/apis":                                 {"dock.example.com"},
		"/apis/dock.example.com":                {`"preferredVersion":{"groupVersion":"dock.example.com/v1"`},
		"/apis/dock.example.com/v1":             {"vaults/status", "vaults/scale", `"shortNames":["vt"]`},
		"/openapi/v3":                           {"apis/dock.example.com/v1", "apis/storage.k8s.io/v1"},
		"/openapi/v3/apis/dock.example.com/v1":  {"com.example.dock.v1.Vault", "Units of room.", "fieldValidation", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
		"/openapi/v2":                           {"com.example.dock.v1.Vault", "io.k8s.api.core.v1.Pod"},
		"/apis/dock.example.com/v1beta1/vaults": {`"items":[]`},
		"/":                                     {"/apis/dock.example.com/v1beta1"},
	} {
		code, _, body := f.call(t, call{method: "GET", path: path})
		for _, w := range words {
			if code != 200 || !strings.Contains(body, w) {
				t.Errorf("%s: %d, lacks %s", path, code, w)
			}
		}
	}
	_, _, body := f.call(t, call{method: "GET", path: "/apis", accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"})
	if !strings.Contains(body, `"responseKind":{"group":"dock.example.com","version":"v1","kind":"Vault"}`) {
		t.Errorf("aggregated discovery lacks Vault")
	}
}

func TestCustomObjects(t *testing.T) {
	f := startReal(t, "")
	f.define(t, vaultDefinition)

	code, _, body := f.call(t, call{method: "POST", path: vaultsPath, body: vault("a", `{"size":3,"bogus":1,"doors":[{"name":"n"}],"free":{"any":1}}`)})
	m := decode(t, body)
	spec, _, _ := unstructured.NestedMap(m, "spec")
	door := spec["doors"].([]any)[0].(map[string]any)
	if code != 201 || spec["mode"] != "open" || spec["bogus"] != nil || door["lock"] != true || spec["free"].(map[string]any)["any"] == nil {
		t.Fatalf("create: %d %s", code, body)
	}
	if g, _, _ := unstructured.NestedFieldNoCopy(m, "metadata", "generation"); g != float64(1) && g != int64(1) {
		t.Errorf("generation %v", g)
	}
	for name, c := range map[string]struct {
		path, spec string
		code       int
		words      []string
	}{
		"strict":        {vaultsPath + "?fieldValidation=Strict", `{"size":3,"bogus":1}`, 400, []string{`strict decoding error: unknown field \"spec.bogus\"`}},
		"required":      {vaultsPath, `{}`, 422, []string{"spec.size: Required value"}},
		"range":         {vaultsPath, `{"size":101}`, 422, []string{"spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100"}},
		"type":          {vaultsPath, `{"size":"big"}`, 422, []string{`spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"`}},
		"enum":          {vaultsPath, `{"size":1,"mode":"ajar"}`, 422, []string{`spec.mode: Unsupported value: \"ajar\": supported values: \"open\", \"shut\"`}},
		"map keys":      {vaultsPath, `{"size":1,"doors":[{"name":"x"},{"name":"x"}]}`, 422, []string{"spec.doors[1]: Duplicate value"}},
		"int or string": {vaultsPath + "?dryRun=All", `{"size":1,"port":"http"}`, 201, []string{`"port":"http"`}},
	} {
		code, _, body := f.call(t, call{method: "POST", path: c.path, body: vault("b", c.spec)})
		for _, w := range c.words {
			if code != c.code || !strings.Contains(body, w) {
				t.Errorf("%s: %d %s", name, code, body)
			}
		}
	}
	code, _, body = f.call(t, call{method: "PATCH", path: vaultsPath + "/a", ct: string(types.StrategicMergePatchType), body: `{}`})
	if code != 415 {
		t.Errorf("strategic patch: %d %s", code, body)
	}
	// The status is apart from the rest.
	code, _, body = f.call(t, call{method: "PATCH", path: vaultsPath + "/a/status", ct: string(types.MergePatchType), body: `{"status":{"replicas":2,"selector":"a=b","odd":1},"spec":{"size":9}}`})
	if code != 200 || !strings.Contains(body, `"size":3`) || strings.Contains(body, "odd") {
		t.Errorf("status: %d %s", code, body)
	}
	code, _, body = f.call(t, call{method: "PATCH", path: vaultsPath + "/a", ct: string(types.MergePatchType), body: `{"status":{"replicas":7},"spec":{"size":4}}`})
	if code != 200 || !strings.Contains(body, `"replicas":2`) || !strings.Contains(body, `"generation":2`) {
		t.Errorf("main: %d %s", code, body)
	}
	// Scale reads and writes at the definition's paths.
	code, _, body = f.call(t, call{method: "PATCH", path: vaultsPath + "/a/scale", ct: string(types.MergePatchType), body: `{"spec":{"replicas":5}}`})
	if code != 200 || !strings.Contains(body, `"spec":{"replicas":5}`) || !strings.Contains(body, `"status":{"replicas":2,"selector":"a=b"}`) {
		t.Errorf("scale: %d %s", code, body)
	}
	// Columns, fields, the other version.
	code, _, body = f.call(t, call{method: "GET", path: vaultsPath, accept: "application/json;as=Table;v=v1;g=meta.k8s.io"})
	if code != 200 || !strings.Contains(body, `"cells":["a",4,"open"]`) || !strings.Contains(body, `"description":"How big"`) {
		t.Errorf("table: %d %s", code, body)
	}
	for selector, want := range map[string]bool{"spec.mode=open": true, "spec.mode=shut": false} {
		code, _, body = f.call(t, call{method: "GET", path: vaultsPath + "?fieldSelector=" + selector})
		if code != 200 || strings.Contains(body, `"name":"a"`) != want {
			t.Errorf("%s: %d %s", selector, code, body)
		}
	}
	code, h, body := f.call(t, call{method: "GET", path: strings.Replace(vaultsPath, "v1", "v1beta1", 1) + "/a"})
	if code != 200 || !strings.Contains(body, `"apiVersion":"dock.example.com/v1beta1"`) || !strings.Contains(h.Get("Warning"), "dock.example.com/v1beta1 Vault is deprecated") {
		t.Errorf("other version: %d %v %s", code, h, body)
	}
	code, _, body = f.call(t, call{method: "GET", path: vaultsPath + "/a"})
	if code != 200 || !strings.Contains(body, `"apiVersion":"dock.example.com/v1"`) {
		t.Errorf("stored version: %d %s", code, body)
	}
}

func TestCustomApplyMergesAsTheSchemaSays(t *testing.T) {
	f := startReal(t, "")
	f.define(t, vaultDefinition)
	apply := func(manager, spec string) (int, string) {
		code, _, body := f.call(t, call{method: "PATCH", path: vaultsPath + "/a?fieldManager=" + manager, ct: string(types.ApplyPatchType), body: vault("a", spec)})
		return code, body
	}
	if code, body := apply("one", `{"size":1,"doors":[{"name":"n"}]}`); code != 201 {
		t.Fatalf("first apply: %d %s", code, body)
	}
	if code, body := apply("two", `{"size":1,"doors":[{"name":"s"}]}`); code != 200 || !strings.Contains(body, `"name":"n"`) || !strings.Contains(body, `"name":"s"`) {
		t.Errorf("second apply: %d %s", code, body)
	}
	if code, body := apply("three", `{"size":2}`); code != 409 || !strings.Contains(body, `conflicts with`) {
		t.Errorf("conflict: %d %s", code, body)
	}
	if code, body := apply("three", `{"bogus":2}`); code != 500 || !strings.Contains(body, ".spec.bogus: field not declared in schema") {
		t.Errorf("unknown field: %d %s", code, body)
	}
}

func TestDefinitionRefusals(t *testing.T) {
	f := startReal(t, "")
	for name, c := range map[string]struct{ from, to, want string }{
		"name":       {"name: vaults.dock", "name: vats.dock", `must be spec.names.plural+\".\"+spec.group`},
		"storage":    {"storage: true", "storage: false", "must have exactly one version marked as storage version"},
		"structural": {"size: {type: integer,", "size: {", "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[size].type: Required value"},
		"default":    {"default: open", "default: ajar", "Unsupported value"},
		"column":     {"type: integer, jsonPath", "type: int, jsonPath", "must be one of boolean,date,integer,number,string"},
		"scope":      {"scope: Namespaced", "scope: Galaxy", "Unsupported value"},
		"rule":       {"size: {type: integer,", "size: {type: integer, x-kubernetes-validations: [{rule: self > x}],", "undeclared reference to 'x'"},
		"approval":   {"dock.example.com", "dock.k8s.io", "protected groups must have approval annotation"},
	} {
		text := strings.ReplaceAll(vaultDefinition, c.from, c.to)
		code, _, body := f.call(t, call{method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: toJSON(t, text)})
		if code != 422 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func TestNamesOfDefinitionsAreFirstComeFirstServed(t *testing.T) {
	f := startReal(t, "")
	f.define(t, vaultDefinition)
	second := strings.NewReplacer("vaults.dock", "safes.dock", "plural: vaults", "plural: safes", "kind: Vault", "kind: Vault").Replace(vaultDefinition)
	got := f.define(t, second)
	if b, _ := json.Marshal(got); !strings.Contains(string(b), "KindConflict") || !strings.Contains(string(b), "NotAccepted") {
		t.Errorf("second definition: %s", b)
	}
	if code, _, _ := f.call(t, call{method: "GET", path: strings.Replace(vaultsPath, "vaults", "safes", 1)}); code != 404 {
		t.Errorf("a refused definition is served: %d", code)
	}
	f.call(t, call{method: "DELETE", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/vaults.dock.example.com"})
	if code, _, body := f.call(t, call{method: "GET", path: strings.Replace(vaultsPath, "vaults", "safes", 1)}); code != 200 {
		t.Errorf("free names were not given on: %d %s", code, body)
	}
}

// TestDefinitionGoesAfterItsInstances holds one instance by a finalizer and lets it go.
func TestDefinitionGoesAfterItsInstances(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	f := startReal(t, path)
	f.define(t, vaultDefinition)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	vaults := f.dynamic(t).Resource(vaultGVR("v1")).Namespace("default")
	for _, name := range []string{"free", "held"} {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(vault(name, `{"size":1}`)), &u.Object); err != nil {
			t.Fatal(err)
		}
		if name == "held" {
			u.SetFinalizers([]string{"example.com/hold"})
		}
		if _, err := vaults.Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := vaults.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	definitions := f.dynamic(t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := definitions.Delete(ctx, "vaults.dock.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err := definitions.Get(ctx, "vaults.dock.example.com", metav1.GetOptions{})
	if b, _ := json.Marshal(d); err != nil || !strings.Contains(string(b), "InstanceDeletionInProgress") || d.GetDeletionTimestamp() == nil {
		t.Fatalf("held definition: %v %s", err, b)
	}
	if _, err := vaults.Get(ctx, "free", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the free instance: %v", err)
	}
	if code, _, body := f.call(t, call{method: "POST", path: vaultsPath, body: vault("late", `{"size":1}`)}); code != 403 || !strings.Contains(body, "terminating") {
		t.Errorf("create while terminating: %d %s", code, body)
	}
	if _, err := vaults.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Get(ctx, "vaults.dock.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the definition outlives its instances: %v", err)
	}
	for range w.ResultChan() { // ends, because what it watched is no more
	}
	if code, _, _ := f.call(t, call{method: "GET", path: vaultsPath}); code != 404 {
		t.Errorf("after: %d", code)
	}
}
