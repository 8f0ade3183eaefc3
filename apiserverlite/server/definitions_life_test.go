package server

import (
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

const definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/vaults.dock.example.com"

func (f *fixture) expect(t *testing.T, code int, c call) string {
	t.Helper()
	got, _, body := f.call(t, c)
	if got != code {
		t.Fatalf("%s %s: %d, want %d: %s", c.method, c.path, got, code, body)
	}
	return body
}

// TestCleanUpGoesOnAfterARestart: a server that ends with a definition marked as deleted, its instances still there, has
// them deleted by its next life; one that is held keeps the definition over another restart.
func TestCleanUpGoesOnAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	f := startReal(t, path)
	f.define(t, vaultDefinition)
	f.expect(t, 201, call{method: "POST", path: vaultsPath, body: vault("free", `{"size":1}`)})
	f.expect(t, 201, call{method: "POST", path: vaultsPath, body: strings.Replace(vault("held", `{"size":1}`), `"metadata":{`, `"metadata":{"finalizers":["example.com/hold"],`, 1)})
	// What a delete writes first; the server dies before the rest.
	e, ok := f.store.Get(storage.Key{Resource: definitionResource, Name: "vaults.dock.example.com"})
	if !ok {
		t.Fatal("no definition")
	}
	d := e.Object.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
	now := metav1.Now()
	d.DeletionTimestamp, d.Finalizers = &now, []string{registry.DefinitionFinalizer}
	if _, err := f.store.Write(ctx, storage.Op{Key: e.Key, Object: d, Expect: e.Revision}); err != nil {
		t.Fatal(err)
	}
	f.stop()

	f = startReal(t, path)
	f.expect(t, 404, call{method: "GET", path: vaultsPath + "/free"})
	if body := f.expect(t, 200, call{method: "GET", path: vaultsPath + "/held"}); !strings.Contains(body, "deletionTimestamp") {
		t.Errorf("the held instance is not being deleted: %s", body)
	}
	f.stop()

	f = startReal(t, path)
	if body := f.expect(t, 200, call{method: "GET", path: definitionPath}); !strings.Contains(body, "InstanceDeletionInProgress") {
		t.Errorf("the definition does not tell what it waits for: %s", body)
	}
	f.expect(t, 200, call{method: "PATCH", path: vaultsPath + "/held", ct: mergeCT, body: `{"metadata":{"finalizers":null}}`})
	f.expect(t, 404, call{method: "GET", path: definitionPath})
	f.expect(t, 404, call{method: "GET", path: vaultsPath})
}

// TestObjectsLoseWhatTheirSchemaLoses: a field that is no longer defined is not shown, in a list and a watch either, and
// the next write of the object stores it without.
func TestObjectsLoseWhatTheirSchemaLoses(t *testing.T) {
	f := startReal(t, "")
	f.define(t, vaultDefinition)
	f.expect(t, 201, call{method: "POST", path: vaultsPath, body: vault("a", `{"size":1,"port":8,"free":{"x":{"y":1}},"doors":[{"name":"n","lock":false}]}`)})
	smaller := strings.NewReplacer("              port: {x-kubernetes-int-or-string: true}\n", "", ", lock: {type: boolean, default: true}", "").Replace(vaultDefinition)
	if smaller == vaultDefinition {
		t.Fatal("the definition has no port")
	}
	f.expect(t, 200, call{method: "PATCH", path: definitionPath, ct: mergeCT, body: toJSON(t, smaller)})
	for _, path := range []string{vaultsPath + "/a", vaultsPath} {
		body := f.expect(t, 200, call{method: "GET", path: path})
		if strings.Contains(body, `"port":8`) || strings.Contains(body, `"lock"`) || !strings.Contains(body, `"free":{"x":{"y":1}}`) || !strings.Contains(body, `"name":"n"`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	f.expect(t, 200, call{method: "PATCH", path: vaultsPath + "/a", ct: mergeCT, body: `{"spec":{"size":2}}`})
	f.expect(t, 200, call{method: "PATCH", path: definitionPath, ct: mergeCT, body: toJSON(t, vaultDefinition)})
	if body := f.expect(t, 200, call{method: "GET", path: vaultsPath + "/a"}); strings.Contains(body, `"port":8`) {
		t.Errorf("the field was stored: %s", body)
	}
}
