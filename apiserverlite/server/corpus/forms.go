package corpus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// The table's bodies are JSON. Rows can ask to have theirs sent, and answered, in another form.
var formTypes = map[string]string{"proto": "application/vnd.kubernetes.protobuf", "cbor": "application/cbor"}

// What objects in protobuf and in CBOR begin with.
var (
	protoPrefix = []byte{'k', '8', 's', 0}
	cborPrefix  = []byte{0xd9, 0xd9, 0xf7}
)

// encode returns a body in the row's form.
func (r Row) encode(body string) (string, error) {
	switch {
	case body == "" || r.form == "":
		return body, nil
	case r.form == "proto":
		return toProtobuf(body)
	}
	var v any
	if err := utiljson.Unmarshal([]byte(body), &v); err != nil {
		return "", fmt.Errorf("body for CBOR: %w", err)
	}
	b, err := direct.Marshal(v)
	return string(cborPrefix) + string(b), err
}

func fromCBOR(b []byte) ([]byte, error) {
	var v any
	if err := direct.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("answer in CBOR: %w", err)
	}
	return json.Marshal(v)
}

// readFrames is readEvents of a sequence of documents in CBOR.
func (a *Answer) readFrames(body io.ReadCloser, want int) error {
	frames := cbor.NewFramer().NewFrameReader(body)
	for b := make([]byte, 1<<20); len(a.Events) < want; {
		n, err := frames.Read(b)
		switch {
		case errors.Is(err, io.EOF):
			return nil // the stream ended; what is missing the expectations tell
		case err != nil:
			return fmt.Errorf("of %d events came only\n%s\n%w", want, a.Raw, err)
		}
		j, err := fromCBOR(b[:n])
		if err != nil {
			return err
		}
		var v any
		if err := json.Unmarshal(j, &v); err != nil {
			return err
		}
		a.Raw += string(j) + "\n"
		a.Events = append(a.Events, v)
	}
	return nil
}

// fromProtobuf reads also what does not say its version, as upstream's discovery of the core group, and metadata alone.
func fromProtobuf(b []byte) (runtime.Object, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if err == nil {
		return o, nil
	}
	var u runtime.Unknown
	if u.Unmarshal(bytes.TrimPrefix(b, protoPrefix)) != nil {
		return nil, err
	}
	t := metav1.TypeMeta{Kind: u.Kind, APIVersion: u.APIVersion}
	switch u.Kind {
	case "APIResourceList":
		l := &metav1.APIResourceList{TypeMeta: t}
		return l, l.Unmarshal(u.Raw)
	case "PartialObjectMetadata":
		m := &metav1.PartialObjectMetadata{TypeMeta: t}
		return m, m.Unmarshal(u.Raw)
	case "PartialObjectMetadataList":
		l := &metav1.PartialObjectMetadataList{TypeMeta: t}
		return l, l.Unmarshal(u.Raw)
	}
	return nil, err
}

func toProtobuf(body string) (string, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		return "", fmt.Errorf("body for protobuf: %w", err)
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	if !ok {
		return "", fmt.Errorf("client-go knows no protobuf")
	}
	b, err := runtime.Encode(info.Serializer, o)
	return string(b), err
}
