package registry

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// valueErrors translates what the schema has against a value into field errors, with upstream's reasons.
func valueErrors(at *field.Path, r *validate.Result) field.ErrorList {
	var errs field.ErrorList
	for _, err := range r.Errors {
		v, ok := err.(*openapierrors.Validation)
		if !ok {
			errs = append(errs, field.Invalid(at, "", err.Error()))
			continue
		}
		p := at
		if name := strings.TrimPrefix(v.Name, "."); name != "" {
			p = p.Child(name)
		}
		value := v.Value
		if value == nil {
			value = ""
		}
		switch v.Code() {
		case openapierrors.RequiredFailCode:
			errs = append(errs, field.Required(p, ""))
		case openapierrors.EnumFailCode:
			errs = append(errs, field.NotSupported(p, v.Value, texts(v.Values)))
		case openapierrors.TooLongFailCode:
			errs = append(errs, field.TooLong(p, "", number(v.Valid)))
		case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
			errs = append(errs, field.TooMany(p, number(v.Value), number(v.Valid)))
		case openapierrors.InvalidTypeCode:
			errs = append(errs, field.TypeInvalid(p, value, v.Error()))
		default:
			errs = append(errs, field.Invalid(p, value, v.Error()))
		}
	}
	return errs
}

func texts(values []any) []string {
	out := []string{}
	for _, v := range values {
		if s, ok := v.(string); ok {
			out = append(out, s)
			continue
		}
		b, _ := json.Marshal(v) // of a value that came as JSON
		out = append(out, string(b))
	}
	return out
}

func number(v any) int {
	if n, ok := v.(int64); ok {
		return int(n)
	}
	return -1
}
