package conformance

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// say sends a body as it is, with fieldValidation as asked, and returns the warnings and the error.
func (w *world) say(q *rest.Request, path, validation, contentType, body string) (string, error) {
	w.t.Helper()
	res := q.AbsPath(path).Param("fieldValidation", validation).Param("fieldManager", "m").Param("dryRun", "All").SetHeader("Content-Type", contentType).Body([]byte(body)).Do(w.ctx)
	var warnings []string
	for _, x := range res.Warnings() {
		warnings = append(warnings, x.Text)
	}
	return strings.Join(warnings, "; "), res.Error()
}

const jsonType = "application/json"

func TestFieldsOfTypedObjectsAreValidated(t *testing.T) {
	w := newWorld(t)
	path := "/apis/apps/v1/namespaces/" + w.ns + "/deployments"
	w.applied(deployments, "one", applyDeployment)
	const body = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"n"},"spec":{"unknown":1,"replicas":0,"replicas":0,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"},"other":"x"},"spec":{"containers":[{"name":"c","image":"i","imagePullPolicy":"Always","imagePullPolicy":"Never"}]}}}}`
	found := []string{`unknown field "spec.unknown"`, `duplicate field "spec.replicas"`, `unknown field "spec.template.metadata.other"`, `duplicate field "spec.template.spec.containers[0].imagePullPolicy"`}
	_, err := w.say(w.rest.Post(), path, "Strict", jsonType, body)
	w.refused(err, apierrors.IsBadRequest, append(found, "strict decoding error")...)
	warnings, err := w.say(w.rest.Post(), path, "Warn", jsonType, body)
	w.must(err)
	for _, f := range found {
		if !strings.Contains(warnings, f) {
			t.Errorf("the warnings lack %s: %s", f, warnings)
		}
	}
	warnings, err = w.say(w.rest.Post(), path, "Ignore", jsonType, body)
	if err != nil || warnings != "" {
		t.Errorf("ignored: %v, %q", err, warnings)
	}
	for kind, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"spec":{"unknown":1,"replicas":0,"replicas":0}}`,
		types.StrategicMergePatchType: `{"spec":{"unknown":1,"replicas":0,"replicas":0}}`,
	} {
		_, err := w.say(w.rest.Patch(kind), path+"/d", "Strict", string(kind), patch)
		w.refused(err, apierrors.IsInvalid, found[:2]...)
	}
	_, err = w.say(w.rest.Patch(types.ApplyPatchType), path+"/d", "Strict", string(types.ApplyPatchType), strings.Replace(applyDeployment, "replicas: 0", "replicas: 0\n  replicas: 0", 1))
	w.refused(err, apierrors.IsBadRequest, `key "replicas" already set`)
	_, err = w.say(w.rest.Patch(types.ApplyPatchType), path+"/d", "Strict", string(types.ApplyPatchType), strings.Replace(applyDeployment, "replicas: 0", "unknown: 0", 1))
	if err == nil || !strings.Contains(err.Error(), ".spec.unknown: field not declared in schema") {
		t.Errorf("applied an unknown field: %v", err)
	}
	_, err = w.say(w.rest.Post(), path, "Sometimes", jsonType, body)
	w.refused(err, apierrors.IsInvalid, "fieldValidation: Unsupported value")
}

func TestFieldsOfCustomObjectsAreValidated(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition(structural, ""))
	path := "/apis/" + w.group() + "/v1/namespaces/" + w.ns + "/boats"
	head := `{"apiVersion":"` + w.group() + `/v1","kind":"Boat","metadata":{"name":"b"`
	const apply = string(types.ApplyPatchType)
	for _, body := range []string{head + `},"spec":{"size":1}}`} {
		warnings, err := w.say(w.rest.Post(), path, "Strict", jsonType, body)
		_, err2 := w.say(w.rest.Patch(types.ApplyPatchType), path+"/b", "Strict", apply, body)
		if err != nil || err2 != nil || warnings != "" {
			t.Errorf("a valid one: %v, %v, %q", err, err2, warnings)
		}
	}
	unknown := head + `,"madeUp":"x"},"spec":{"size":1,"extra":2,"size":1}}`
	_, err := w.say(w.rest.Post(), path, "Strict", jsonType, unknown)
	w.refused(err, apierrors.IsBadRequest, `unknown field "spec.extra"`, `duplicate field "spec.size"`, `unknown field "metadata.madeUp"`)
	warnings, err := w.say(w.rest.Post(), path, "Warn", jsonType, unknown)
	if err != nil || !strings.Contains(warnings, `unknown field "spec.extra"`) || !strings.Contains(warnings, `duplicate field "spec.size"`) {
		t.Errorf("warned: %v, %q", err, warnings)
	}
	_, err = w.say(w.rest.Patch(types.ApplyPatchType), path+"/b", "Strict", apply, head+`},"spec":{"size":1,"extra":2}}`)
	if err == nil || !strings.Contains(err.Error(), ".spec.extra: field not declared in schema") {
		t.Errorf("applied an unknown field: %v", err)
	}
}

func TestFieldsOfCustomObjectsWithoutSchema(t *testing.T) {
	w := newWorld(t)
	w.define(w.definition("{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}", ""))
	path := "/apis/" + w.group() + "/v1/namespaces/" + w.ns + "/boats"
	head := `{"apiVersion":"` + w.group() + `/v1","kind":"Boat","metadata":{"name":"b"},`
	warnings, err := w.say(w.rest.Post(), path, "Strict", jsonType, head+`"anything":{"goes":[1,"x"]}}`)
	if err != nil || warnings != "" {
		t.Errorf("unknown fields that are kept: %v, %q", err, warnings)
	}
	_, err = w.say(w.rest.Patch(types.ApplyPatchType), path+"/b", "Strict", string(types.ApplyPatchType), head+`"anything":{"goes":[1,"x"]}}`)
	w.must(err)
	_, err = w.say(w.rest.Post(), path, "Strict", jsonType, head+`"anything":1,"anything":2}`)
	w.refused(err, apierrors.IsBadRequest, `duplicate field "anything"`)
	_, err = w.say(w.rest.Post(), path, "Strict", jsonType, head+`"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","madeUp":"y"}}}`)
	w.refused(err, apierrors.IsBadRequest, `unknown field "template.metadata.madeUp"`)
}
