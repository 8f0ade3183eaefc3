package registry

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
)

// judge holds the objects of one version against its schema, its lists' keys, its scale and its CEL rules
// (x-kubernetes-validations), each by upstream's code, in upstream's order. What was wrong before an update in a part of the
// object that the update leaves alone is let pass, so that an object from before a rule can still be worked on; of a rule it is told
// as a warning, see WithWarnings. Rules are asked only of objects that fit the schema as far as the rules can rely on.
type judge struct {
	schema *structural.Structural
	values schemavalidation.SchemaValidator
	status schemavalidation.SchemaValidator // of the status alone; nil if there is no such subresource or no schema of it
	scale  *apiextensionsv1.CustomResourceSubresourceScale
	// rules are compiled when the first object comes; nil if there are none.
	rules func() *cel.Validator
}

func newJudge(props *apiextensions.JSONSchemaProps, s *structural.Structural, sub *apiextensionsv1.CustomResourceSubresources) (*judge, error) {
	j := &judge{schema: s, rules: sync.OnceValue(func() *cel.Validator { return cel.NewValidator(s, true, celconfig.PerCallLimit) })}
	var err error
	if j.values, _, err = schemavalidation.NewSchemaValidator(props); err != nil {
		return nil, err
	}
	if sub == nil {
		return j, nil
	}
	j.scale = sub.Scale
	if status, known := props.Properties["status"]; known && sub.Status != nil {
		j.status, _, err = schemavalidation.NewSchemaValidator(&status)
	}
	return j, err
}

// created judges a new object. Errs are those of its metadata.
func (j *judge) created(ctx context.Context, errs field.ErrorList, o map[string]any) field.ErrorList {
	errs = append(errs, schemavalidation.ValidateCustomResource(nil, o, j.values)...)
	errs = append(errs, j.specReplicas(o)...)
	errs = append(errs, j.statusReplicas(o)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, o, j.schema, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.schema, o)...)
	return j.ruled(ctx, errs, o, nil)
}

func (j *judge) updated(ctx context.Context, errs field.ErrorList, o, old map[string]any) field.ErrorList {
	both := common.NewCorrelatedObject(o, old, &model.Structural{Structural: j.schema})
	errs = append(errs, schemavalidation.ValidateCustomResourceUpdate(nil, o, old, j.values, schemavalidation.WithRatcheting(both))...)
	errs = append(errs, j.specReplicas(o)...)
	errs = append(errs, j.statusReplicas(o)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, o, j.schema, false)...)
	errs = append(errs, j.lists(o, old)...)
	return j.ruled(ctx, errs, o, old, cel.WithRatcheting(both))
}

// statusUpdated judges a write of the status alone. The rules are asked of the whole object.
func (j *judge) statusUpdated(ctx context.Context, errs field.ErrorList, o, old map[string]any) field.ErrorList {
	both := common.NewCorrelatedObject(o, old, &model.Structural{Structural: j.schema})
	if status, has := o["status"]; has {
		errs = append(errs, schemavalidation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], j.status, schemavalidation.WithRatcheting(both.Key("status")))...)
	}
	errs = append(errs, j.statusReplicas(o)...)
	errs = append(errs, j.lists(o, old)...)
	return j.ruled(ctx, errs, o, old, cel.WithRatcheting(both))
}

// lists demands that sets have nothing twice and maps no key, unless that was so before.
func (j *judge) lists(o, old map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, j.schema, o)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, j.schema, old)) > 0 {
		return nil
	}
	return errs
}

// ruled asks the rules. Old is nil for a new object.
func (j *judge) ruled(ctx context.Context, errs field.ErrorList, o, old map[string]any, how ...cel.Option) field.ErrorList {
	rules := j.rules()
	if rules == nil {
		return errs
	}
	if slices.ContainsFunc(errs, blocks) {
		return append(errs, unruled())
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := rules.Validate(ctx, nil, j.schema, o, before, celconfig.RuntimeCELCostBudget, how...)
	return append(errs, broken...)
}

func (j *judge) specReplicas(o map[string]any) field.ErrorList {
	if j.scale == nil {
		return nil
	}
	return replicas(o, j.scale.SpecReplicasPath)
}

func (j *judge) statusReplicas(o map[string]any) field.ErrorList {
	if j.scale == nil {
		return nil
	}
	errs := replicas(o, j.scale.StatusReplicasPath)
	if p := j.scale.LabelSelectorPath; p != nil {
		if s, _, err := unstructured.NestedString(o, steps(*p)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*p), s, err.Error()))
		}
	}
	return errs
}

// replicas demands that a number of a scale fits one.
func replicas(o map[string]any, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(o, steps(path)...)
	switch at := field.NewPath(path); {
	case err != nil:
		return field.ErrorList{field.Invalid(at, n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(at, n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(at, n, "should be less than or equal to "+strconv.Itoa(math.MaxInt32))}
	}
	return nil
}

func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// WithWarnings gives a context with which a strategy's Validate and ValidateUpdate tell say what they let pass.
func WithWarnings(ctx context.Context, say func(text string)) context.Context {
	return warning.WithWarningRecorder(ctx, sayer(say))
}

type sayer func(text string)

func (s sayer) AddWarning(_, text string) { s(text) }
