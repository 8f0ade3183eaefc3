package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxPatchOps bounds a JSON patch.
const maxPatchOps = 10000

// boundCopies bounds what the copies of one JSON patch may add to an object, once for the process: the library's
// limit is a variable, and without it a few dozen operations that double an object fill the memory.
var boundCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = maxBody })

// patching is one PATCH.
type patching struct {
	x    *exchange
	w    *writing
	opts writeOptions
	kind types.PatchType
	body []byte
}

// readPatch returns the parts of a PATCH, in the order in which upstream refuses them.
func (x *exchange) readPatch() (types.PatchType, []byte, writeOptions, error) {
	ct, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";")
	kind := types.PatchType(strings.TrimSpace(ct))
	if known := x.patchTypes(); !slices.Contains(known, string(kind)) {
		return "", nil, writeOptions{}, x.noType(known)
	}
	body, err := x.body()
	if err != nil {
		return "", nil, writeOptions{}, err
	}
	o, err := x.patchOptions(kind)
	if err != nil {
		return "", nil, writeOptions{}, err
	}
	return kind, body, o, validPatch(kind, body)
}

// validPatch refuses what no object can be patched with, whether the object exists or not.
func validPatch(kind types.PatchType, body []byte) error {
	switch {
	case kind == types.ApplyCBORPatchType:
		var v any
		if err := direct.Unmarshal(body, &v); err != nil {
			return badRequest("error decoding patch: %v", err)
		}
		if _, err := json.Marshal(v); err != nil {
			return badRequest("error encoding patch: %v", err)
		}
		return nil
	case json.Valid(body):
		return nil
	case kind != types.ApplyYAMLPatchType:
		return badRequest("invalid JSON patch")
	}
	if _, err := yaml.YAMLToJSON(body); err != nil {
		return badRequest("error encoding patch: %v", err)
	}
	return nil
}

func (x *exchange) patch(ctx context.Context) (reply, error) {
	kind, body, o, err := x.readPatch()
	if err != nil {
		return reply{}, err
	}
	p := &patching{x: x, w: x.writing(o), opts: o, kind: kind, body: body}
	c := change{make: p.make}
	if applies(kind) {
		p.w.manager, p.w.untracked = o.fieldManager, false
		c = change{make: p.apply, createMissing: x.in.subresource == "", tracked: true}
	}
	r, err := p.w.change(ctx, c)
	if err != nil {
		return reply{}, err
	}
	return r.reply(), nil
}

func (x *exchange) patchTypes() []string {
	out := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if x.res.Protobuf {
		out = append(out, string(types.StrategicMergePatchType))
	}
	return append(out, string(types.ApplyYAMLPatchType), string(types.ApplyCBORPatchType))
}

// make patches the current object in its versioned form.
func (p *patching) make(old runtime.Object) (runtime.Object, error) {
	var obj runtime.Object
	var err error
	if p.kind == types.StrategicMergePatchType {
		obj, err = p.strategic(old)
	} else {
		obj, err = p.textual(old)
	}
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(p.x.res.GVK)
	p.x.res.Strategy.Default(obj)
	return obj, p.w.matchName(obj)
}

// textual applies a JSON patch or a JSON merge patch.
func (p *patching) textual(old runtime.Object) (runtime.Object, error) {
	current, err := p.x.s.codecs.encodeJSON(old)
	if err != nil {
		return nil, err
	}
	patched, problems, err := p.patchJSON(current)
	if err != nil {
		return nil, err
	}
	res := p.x.res
	obj, gvk, err := p.x.s.codecs.decoder(mediaJSON, p.strict()).Decode(patched, &res.GVK, res.New())
	if err != nil {
		bad, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict {
			return nil, invalidPatch(string(patched), err)
		}
		problems = append(problems, bad.Errors()...)
	}
	if gvk != nil && *gvk != res.GVK {
		return nil, badRequest("the patch changes the object to %s, expected %s", gvk, res.GVK)
	}
	return obj, p.complain(problems, string(patched))
}

func (p *patching) patchJSON(current []byte) ([]byte, []error, error) {
	if p.kind == types.JSONPatchType {
		return p.jsonPatch(current)
	}
	return p.mergePatch(current)
}

// patchText is patchJSON for a kind that only has its own problems to report. A strategic merge of an
// object without lists is a JSON merge.
func (p *patching) patchText(current []byte) ([]byte, error) {
	b, problems, err := p.patchJSON(current)
	if err != nil {
		return nil, err
	}
	return b, p.complain(problems, string(b))
}

func (p *patching) strict() bool { return p.opts.validation != metav1.FieldValidationIgnore }

// complain answers or warns of fields that are unknown or occur twice.
func (p *patching) complain(problems []error, patched string) error {
	if len(problems) == 0 || !p.strict() {
		return nil
	}
	if p.opts.validation == metav1.FieldValidationStrict {
		return invalidPatch(patched, runtime.NewStrictDecodingError(problems))
	}
	p.x.problems(problems)
	return nil
}

func invalidPatch(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, err.Error())})
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func (p *patching) jsonPatch(current []byte) ([]byte, []error, error) {
	var problems []error
	if p.strict() {
		var ops []patchOp
		strict, err := kjson.UnmarshalStrict(p.body, &ops)
		if err != nil {
			// Clients are told the names that upstream's types have.
			return nil, nil, badRequest("error decoding patch: %s", strings.ReplaceAll(err.Error(), "server.patchOp", "handlers.jsonPatchOp"))
		}
		for _, e := range strict {
			problems = append(problems, fmt.Errorf("json patch %w", e))
		}
	}
	patch, err := jsonpatch.DecodePatch(p.body)
	if err != nil {
		return nil, nil, badRequest("%s", err.Error())
	}
	if len(patch) > maxPatchOps {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOps, len(patch)))
	}
	patched, err := applyOps(patch, current)
	if err != nil {
		return nil, nil, unprocessable(err)
	}
	return patched, problems, nil
}

// applyOps applies a patch. The library panics over some operations that lack a member, a "test" of the whole document without a value for one.
func applyOps(patch jsonpatch.Patch, current []byte) (patched []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("an operation of the patch is incomplete: %v", v)
		}
	}()
	return patch.Apply(current)
}

func (p *patching) mergePatch(current []byte) ([]byte, []error, error) {
	var problems []error
	if p.strict() {
		var err error
		if problems, err = kjson.UnmarshalStrict(p.body, &map[string]any{}); err != nil {
			return nil, nil, badRequest("error decoding patch: %v", err)
		}
	}
	patched, err := jsonpatch.MergePatch(current, p.body)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		return nil, nil, badRequest("%s", err.Error())
	}
	return patched, problems, err
}

// strategic applies a patch that merges lists by the keys their Go types name.
func (p *patching) strategic(old runtime.Object) (runtime.Object, error) {
	current, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	var problems []error
	if p.strict() {
		problems, err = kjson.UnmarshalStrict(p.body, &patch)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(p.body, &patch)
	}
	if err != nil {
		return nil, badRequest("%s", err.Error())
	}
	obj := p.x.res.New()
	merged, err := strategicpatch.StrategicMergeMapPatch(current, patch, obj)
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys), errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList), errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, badRequest("%s", err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), mergepatch.IsPreconditionFailed(err):
		return nil, unprocessable(err)
	case err != nil:
		return nil, err
	}
	shown := fmt.Sprintf("%+v", patch)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, obj, p.strict()); err != nil {
		bad, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict {
			return nil, invalidPatch(shown, err)
		}
		problems = append(problems, bad.Errors()...)
	}
	return obj, p.complain(problems, shown)
}
