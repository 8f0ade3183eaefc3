package server

import (
	"bytes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

func (x *exchange) parameters(into runtime.Object) error {
	if len(x.query) == 0 {
		return nil
	}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(x.query, metav1.SchemeGroupVersion, into); err != nil {
		return badRequest("%s", err.Error())
	}
	return nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// writeOptions are what create, update and patch have in common.
type writeOptions struct {
	dryRun       bool
	validation   string // Ignore, Warn or Strict
	fieldManager string
	force        bool
}

func fieldValidation(s string) string {
	if s == "" {
		return metav1.FieldValidationWarn
	}
	return s
}

func (x *exchange) createOptions() (writeOptions, error) {
	var o metav1.CreateOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	if err := invalidOptions("CreateOptions", validation.ValidateCreateOptions(&o)); err != nil {
		return writeOptions{}, err
	}
	return writeOptions{dryRun: len(o.DryRun) > 0, validation: fieldValidation(o.FieldValidation), fieldManager: o.FieldManager}, nil
}

func (x *exchange) updateOptions() (writeOptions, error) {
	var o metav1.UpdateOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	if err := invalidOptions("UpdateOptions", validation.ValidateUpdateOptions(&o)); err != nil {
		return writeOptions{}, err
	}
	return writeOptions{dryRun: len(o.DryRun) > 0, validation: fieldValidation(o.FieldValidation), fieldManager: o.FieldManager}, nil
}

func (x *exchange) patchOptions(t types.PatchType) (writeOptions, error) {
	var o metav1.PatchOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	if err := invalidOptions("PatchOptions", validation.ValidatePatchOptions(&o, t)); err != nil {
		return writeOptions{}, err
	}
	return writeOptions{dryRun: len(o.DryRun) > 0, validation: fieldValidation(o.FieldValidation), fieldManager: o.FieldManager,
		force: o.Force != nil && *o.Force}, nil
}

// deleteOptions come in the body, or in the query when there is none.
func (x *exchange) deleteOptions() (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	body, err := x.body()
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		m, err := bodyMedia(x.r, true)
		if err != nil {
			return nil, err
		}
		if err := decodeDeleteOptions(body, m, o); err != nil {
			return nil, err
		}
	} else if err := x.parameters(o); err != nil {
		return nil, err
	}
	if err := invalidOptions("DeleteOptions", validation.ValidateDeleteOptions(o)); err != nil {
		return nil, err
	}
	return o, nil
}

// decodeDeleteOptions takes the kind in any group: clients send that of the object, v1 or meta.k8s.io/v1,
// and no scheme knows them all.
func decodeDeleteOptions(body []byte, m media, o *metav1.DeleteOptions) error {
	kind := ""
	switch m {
	case mediaProtobuf:
		var u runtime.Unknown
		raw, ok := bytes.CutPrefix(body, protoPrefix)
		if !ok {
			return badRequest("provided data does not appear to be a protobuf message, expected prefix %v", protoPrefix)
		}
		if err := u.Unmarshal(raw); err != nil {
			return badRequest("decode DeleteOptions: %v", err)
		}
		if err := o.Unmarshal(u.Raw); err != nil {
			return badRequest("decode DeleteOptions: %v", err)
		}
		kind = u.Kind
	default:
		text, err := m.text(body)
		if err != nil {
			return badRequest("decode DeleteOptions: %v", err)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, o); err != nil {
			if m == mediaCBOR {
				return badRequest("%v", direct.Unmarshal(body, &metav1.DeleteOptions{}))
			}
			return badRequest("couldn't get version/kind; json parse error: %v", err)
		}
		kind = o.Kind
	}
	if kind != "" && kind != "DeleteOptions" {
		return badRequest("no kind %q is registered for version %q in scheme \"pkg/runtime/scheme.go:111\"", kind, o.APIVersion) // upstream's text, with the place in its source
	}
	return nil
}

// listOptions are decoded, defaulted and validated, with the field selector in the kind's own labels.
func (x *exchange) listOptions() (*internalversion.ListOptions, error) {
	o := &internalversion.ListOptions{}
	if err := x.parameters(o); err != nil {
		return nil, err
	}
	if x.in.verb == "watch" {
		o.Watch = true // by path, or by a parameter that DecodeParameters reads alike
	}
	internalversion.SetListOptionsDefaults(o, true)
	if err := invalidOptions("ListOptions", internalvalidation.ValidateListOptions(o, true)); err != nil {
		return nil, err
	}
	return o, nil
}

func (x *exchange) tableOptions() (*metav1.TableOptions, error) {
	o := &metav1.TableOptions{}
	if err := metav1.Convert_url_Values_To_v1_TableOptions(&x.query, o, nil); err != nil {
		return nil, badRequest("%s", err.Error())
	}
	if o.IncludeObject == "" {
		o.IncludeObject = metav1.IncludeMetadata
	}
	if errs := validation.ValidateTableOptions(o); len(errs) > 0 {
		return nil, badRequest("Unable to convert to Table as requested: %v", errs.ToAggregate())
	}
	return o, nil
}
