package server

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// applies tells whether a patch is an applied configuration.
func applies(t types.PatchType) bool {
	return t == types.ApplyYAMLPatchType || t == types.ApplyCBORPatchType
}

// configuration reads what is applied. Whole numbers stay whole: custom objects are kept as they are decoded.
func (p *patching) configuration() (*unstructured.Unstructured, error) {
	patch := &unstructured.Unstructured{Object: map[string]any{}}
	var err error
	if p.kind == types.ApplyCBORPatchType {
		err = direct.Unmarshal(p.body, &patch.Object)
	} else {
		var text []byte
		if text, err = yaml.YAMLToJSON(p.body); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(text, &patch.Object)
		}
	}
	if err != nil {
		return nil, badRequest("error decoding patch: %v", err)
	}
	return patch, nil
}

// apply merges an applied configuration into the current object, or into an empty one. The
// field manager answers conflicts with other managers, and fields that the schema does not
// know, with upstream's own errors.
func (p *patching) apply(old runtime.Object) (runtime.Object, error) {
	patch, err := p.configuration()
	if err != nil {
		return nil, err
	}
	m, err := p.x.s.tracker.manager(p.w)
	if err != nil {
		return nil, err
	}
	live := old
	if live == nil {
		live = p.x.res.New()
		live.GetObjectKind().SetGroupVersionKind(p.x.res.GVK)
	}
	obj, err := m.Apply(live, patch, p.opts.fieldManager, p.opts.force)
	if c := p.x.res.Converter; err == nil && c != nil { // it comes in the version that all others are converted to
		obj, err = c.ConvertToVersion(obj, p.x.res.GVK.GroupVersion())
	}
	if err != nil {
		return nil, err
	}
	if p.strict() && p.kind == types.ApplyYAMLPatchType { // CBOR with a field twice is none
		if err := yaml.UnmarshalStrict(p.body, &map[string]any{}); err != nil {
			if p.opts.validation == metav1.FieldValidationStrict {
				return nil, badRequest("error strict decoding patch: %v", err)
			}
			p.x.problems([]error{err})
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(p.x.res.GVK)
	p.x.res.Strategy.Default(obj)
	return obj, p.w.matchName(obj)
}
