package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checks collects what a custom resource's definition has against an object: first its schema, then its
// rules. Rules are not asked when the schema is broken. A text field counts as present when it is not empty:
// the typed objects here cannot tell empty from absent.
type checks struct {
	errs  field.ErrorList // of metadata and schema
	ruled bool            // there are rules, be they broken or not
	rules field.ErrorList
}

// blocks tells whether an error keeps the rules from being asked.
func blocks(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// unruled says that the rules were not asked.
func unruled() *field.Error {
	return field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
}

func (c *checks) done() field.ErrorList {
	if c.ruled && slices.ContainsFunc(c.errs, blocks) {
		return append(c.errs, unruled())
	}
	return append(c.errs, c.rules...)
}

// present requires a text.
func (c *checks) present(at *field.Path, value string) {
	if value == "" {
		c.errs = append(c.errs, field.Required(at, ""))
	}
}

// oneOf requires one of the values of an enumeration.
func (c *checks) oneOf(at *field.Path, value string, values ...string) {
	if value == "" {
		c.present(at, value)
		return
	}
	if !slices.Contains(values, value) {
		c.errs = append(c.errs, field.NotSupported(at, value, values))
	}
}

// notNegative is a minimum of zero.
func (c *checks) notNegative(at *field.Path, value *int64) {
	if value != nil && *value < 0 {
		c.errs = append(c.errs, field.Invalid(at, *value, at.String()+" in body should be greater than or equal to 0"))
	}
}

// rule demands that something holds. Message is the definition's own.
func (c *checks) rule(at *field.Path, value any, holds bool, message string) {
	c.ruled = true
	if !holds {
		c.rules = append(c.rules, field.Invalid(at, value, message))
	}
}

// whole stands for the value of an object or a list in an error.
var whole = field.OmitValueType{}

// text is a text field that may be absent.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fixed demands that a field keeps its value as long as it is there.
func fixed[V any](c *checks, at *field.Path, value, old *V, message string) {
	if value == nil || old == nil {
		return
	}
	c.rule(at, shown(*value), equality.Semantic.DeepEqual(*value, *old), message)
}

// kept demands that a field which was there stays.
func kept[V any](c *checks, at *field.Path, value, old *V, message string) {
	c.rule(at, whole, old == nil || value != nil, message)
}

func shown(v any) any {
	switch v.(type) {
	case string, bool, int64:
		return v
	}
	return whole
}

// changed tells whether a part of an object is new or other than before: what has not changed may stay
// wrong, so that an object from before a rule can still be worked on.
func changed[V any](value V, old *V) bool {
	return old == nil || !equality.Semantic.DeepEqual(value, *old)
}
