package server

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// codecs are the serializers of one scheme. They do not convert: an object is written in
// the version that its apiVersion says.
type codecs struct {
	scheme *runtime.Scheme
	json, jsonPretty,
	yaml, yamlStrict, proto runtime.Serializer
	cbor, cborStrict     cbor.Serializer
	bodies, bodiesStrict runtime.Decoder // of JSON: the library's, without the detour
	// coerce, if set, makes custom objects that are decoded fit their schema.
	coerce func(schema.GroupVersionKind, *unstructured.Unstructured) ([]string, error)
}

func newCodecs(s *runtime.Scheme) *codecs {
	j := func(o json.SerializerOptions) runtime.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, o)
	}
	quick := func(strict bool) runtime.Decoder {
		o := json.SerializerOptions{Strict: strict}
		return careful{json.NewSerializerWithOptions(quickMeta{}, s, s, o), j(o)}
	}
	return &codecs{
		bodies: quick(false), bodiesStrict: quick(true), cbor: cbor.NewSerializer(s, s), cborStrict: cbor.NewSerializer(s, s, cbor.Strict(true)),
		scheme: s, json: j(json.SerializerOptions{}), jsonPretty: j(json.SerializerOptions{Pretty: true}),
		yaml: j(json.SerializerOptions{Yaml: true}), yamlStrict: j(json.SerializerOptions{Yaml: true, Strict: true}), proto: protobuf.NewSerializer(s, s),
	}
}

// encode writes an object whose apiVersion and kind are set.
func (c *codecs) encode(m media, indent bool, o runtime.Object) ([]byte, error) {
	write := c.json.Encode
	switch {
	case m == mediaYAML:
		write = c.yaml.Encode
	case m == mediaProtobuf:
		write = c.proto.Encode
	case m == mediaCBOR: // clients are not to rely on an order that costs time
		write = c.cbor.EncodeNondeterministic
	case indent:
		write = c.jsonPretty.Encode
	}
	var b bytes.Buffer
	if err := write(o, &b); err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	return b.Bytes(), nil
}

// decoder returns the deserializer of a body.
func (c *codecs) decoder(m media, strict bool) runtime.Decoder {
	d := c.plainDecoder(m, strict)
	if c.coerce == nil || m == mediaProtobuf {
		return d
	}
	return coercing{Decoder: d, strict: strict && m != mediaCBOR, coerce: c.coerce}
}

func (c *codecs) plainDecoder(m media, strict bool) runtime.Decoder {
	switch {
	case m == mediaProtobuf:
		return c.proto
	case m == mediaCBOR && strict:
		return c.cborStrict
	case m == mediaCBOR:
		return c.cbor
	case m == mediaYAML && strict:
		return c.yamlStrict
	case m == mediaYAML:
		return c.yaml
	case strict:
		return c.bodiesStrict
	}
	return c.bodies
}

// marshaler is what every generated protobuf type has.
type marshaler interface{ Marshal() ([]byte, error) }

// encodeRaw writes the object's protobuf message without the envelope that names its kind.
func encodeRaw(o runtime.Object) ([]byte, error) {
	m, ok := o.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf form", o)
	}
	return m.Marshal()
}

// encodeJSON writes the object without the line end that the serializer adds.
func (c *codecs) encodeJSON(o runtime.Object) ([]byte, error) {
	b, err := c.encode(mediaJSON, false, o)
	return bytes.TrimSuffix(b, []byte("\n")), err
}

var protoPrefix = []byte("k8s\x00")

// appendEnvelope wraps a raw message as the protobuf serializer does:
//
//	"k8s\0" Unknown{ typeMeta{apiVersion, kind} = 1, raw = 2, contentEncoding "" = 3, contentType "" = 4 }
func appendEnvelope(b []byte, gvk schema.GroupVersionKind, raw []byte) []byte {
	begin, end := envelope(gvk, len(raw))
	return append(append(append(b, begin...), raw...), end...)
}

// envelope is what stands before and after a raw message of so many bytes.
func envelope(gvk schema.GroupVersionKind, size int) (begin, end []byte) {
	var tm []byte
	tm = protowire.AppendTag(tm, 1, protowire.BytesType)
	tm = protowire.AppendString(tm, gvk.GroupVersion().String())
	tm = protowire.AppendTag(tm, 2, protowire.BytesType)
	tm = protowire.AppendString(tm, gvk.Kind)
	begin = append(begin, protoPrefix...)
	begin = protowire.AppendTag(begin, 1, protowire.BytesType)
	begin = protowire.AppendBytes(begin, tm)
	begin = protowire.AppendTag(begin, 2, protowire.BytesType)
	begin = protowire.AppendVarint(begin, uint64(size))
	end = protowire.AppendTag(end, 3, protowire.BytesType)
	end = protowire.AppendString(end, "")
	end = protowire.AppendTag(end, 4, protowire.BytesType)
	return begin, protowire.AppendString(end, "")
}

// decodeBody reads an object of the expected kind into a new object. Warnings are the
// problems of a strict reading that did not prevent a lenient one.
func (c *codecs) decodeBody(body []byte, m media, validation string, into runtime.Object, want schema.GroupVersionKind) (o runtime.Object, warnings []error, err error) {
	strict := validation != "Ignore" && m != mediaProtobuf
	o, gvk, err := c.decoder(m, strict).Decode(body, &want, into)
	if err != nil {
		problems, isStrict := runtime.AsStrictDecodingError(err)
		if !isStrict || o == nil || validation == "Strict" {
			return nil, nil, decodeError(err, gvk, want, body)
		}
		warnings = problems.Errors()
	}
	if gvk == nil {
		return nil, nil, errors.New("decode: no kind")
	}
	if err := otherKind(o, *gvk, want); err != nil {
		return nil, nil, err
	}
	if gvk.GroupVersion() != want.GroupVersion() {
		return nil, nil, otherVersion(*gvk, want)
	}
	if gvk.Kind != want.Kind {
		return nil, nil, badRequest("%s in version %q cannot be handled as a %s", gvk.Kind, gvk.Version, want.Kind)
	}
	o.GetObjectKind().SetGroupVersionKind(want)
	return o, warnings, nil
}
