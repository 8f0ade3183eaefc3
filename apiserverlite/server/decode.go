package server

import (
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What is said of bodies that are not the object that was expected.

// decode reads a body of the resource's kind. A custom resource's names its kind, a built-in one's need not.
func (x *exchange) decode(body []byte, m media, validation string) (runtime.Object, []error, error) {
	if !x.res.Protobuf {
		if got, err := nameless(body, m); err != nil {
			return nil, nil, decodeError(err, got, x.res.GVK, body)
		}
		if err := x.misnamed(body, m); err != nil {
			return nil, nil, err
		}
	}
	o, problems, err := x.s.codecs.decodeBody(body, m, validation, x.res.New(), x.res.GVK)
	if err == nil && x.res.Readable != nil {
		if err := x.res.Readable(o); err != nil {
			return nil, nil, decodeError(err, &x.res.GVK, x.res.GVK, body)
		}
	}
	return o, problems, err
}

// misnamed refuses a custom resource's version, and its kind in that version, that is not the one that is expected.
func (x *exchange) misnamed(body []byte, m media) error {
	text, err := m.text(body)
	if err != nil {
		return nil
	}
	var o metav1.PartialObjectMetadata
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &o) != nil {
		return nil
	}
	got, want := o.GroupVersionKind(), x.res.GVK
	if got.GroupVersion() != want.GroupVersion() {
		return otherVersion(got, want)
	}
	if got.Kind != want.Kind {
		return apierrors.NewInvalid(got.GroupKind(), o.Name, field.ErrorList{field.Invalid(field.NewPath("kind"), got.Kind, "must be "+want.Kind)})
	}
	return nil
}

// nameless tells what a body that can be read lacks of its kind. In CBOR it also tells what it does not lack.
func nameless(body []byte, m media) (*schema.GroupVersionKind, error) {
	text, err := m.text(body)
	if err != nil {
		return nil, nil
	}
	gvk, err := json.DefaultMetaFactory.Interpret(text)
	if err != nil {
		return nil, nil
	}
	shown, told := string(text), (*schema.GroupVersionKind)(nil)
	if m == mediaCBOR {
		if shown, err = direct.Diagnose(body); err != nil {
			return nil, nil
		}
		told = gvk
	}
	switch {
	case gvk.Kind == "":
		return told, runtime.NewMissingKindErr(shown)
	case gvk.Version == "" && m == mediaCBOR: // in JSON it is a version like others
		return told, runtime.NewMissingVersionErr(shown)
	}
	return nil, nil
}

// text is a body as JSON. Protobuf has none.
func (m media) text(body []byte) ([]byte, error) {
	switch m {
	case mediaYAML:
		return yaml.YAMLToJSON(body)
	case mediaCBOR:
		var v any
		if err := direct.Unmarshal(body, &v); err != nil {
			return nil, err
		}
		return stdjson.Marshal(v)
	}
	return body, nil
}

func otherVersion(got, want schema.GroupVersionKind) error {
	return badRequest("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion())
}

// internalPackage is the name of upstream's package with a group's internal types, which an error shows.
func internalPackage(group string) string {
	if group == "" || group == "events.k8s.io" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// otherKind refuses a built-in kind that is known, and not the one that is expected.
func otherKind(o runtime.Object, got, want schema.GroupVersionKind) error {
	if _, custom := o.(*unstructured.Unstructured); custom || got.GroupKind() == want.GroupKind() {
		return nil
	}
	return badRequest("%s in version %q cannot be handled as a %s: converting (%s) to (%s.%s): unknown conversion",
		got.Kind, got.Version, want.Kind, reflect.TypeOf(o).Elem(), internalPackage(want.Group), want.Kind)
}

func decodeError(err error, got *schema.GroupVersionKind, want schema.GroupVersionKind, body []byte) error {
	if got != nil && got.Kind != "" {
		return badRequest("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err)
	}
	return badRequest("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, summary(body))
}

// summary shows the start of a body: as hexadecimal when it is no JSON object.
func summary(body []byte) string {
	const most = 30
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{' && len(body) > most:
		return string(body[:most]) + " ..."
	case body[0] == '{':
		return string(body)
	case len(body) > most:
		return fmt.Sprintf("%x ...", body[:most])
	}
	return fmt.Sprintf("%x", body)
}
