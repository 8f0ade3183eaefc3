package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// encoding of a row's data.
type encoding int64

const (
	encProtobuf encoding = 1
	encJSON     encoding = 2
)

// codec turns objects into rows and back. A row does not hold the resourceVersion: that
// is the column rv, so that callers encode in parallel and the writer only counts.
type codec struct {
	proto runtime.Serializer
	json  runtime.Serializer
	seed  maphash.Seed
}

func newCodec(s *runtime.Scheme) codec {
	return codec{
		proto: protobuf.NewSerializer(s, s),
		json:  json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{}),
		seed:  maphash.MakeSeed(),
	}
}

type row struct {
	enc  encoding
	data []byte
}

// encode clears the object's resourceVersion.
func (c codec) encode(o runtime.Object) (row, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return row{}, err
	}
	if o.GetObjectKind().GroupVersionKind().Empty() {
		return row{}, fmt.Errorf("%T has no apiVersion and kind", o)
	}
	m.SetResourceVersion("")
	var buf bytes.Buffer
	if _, ok := o.(runtime.ProtobufMarshaller); ok {
		if err := c.proto.Encode(o, &buf); err != nil {
			return row{}, err
		}
		return row{encProtobuf, buf.Bytes()}, nil
	}
	if err := c.json.Encode(o, &buf); err != nil {
		return row{}, err
	}
	return row{encJSON, buf.Bytes()}, nil
}

// decode never returns an object without metadata. A JSON object of a kind that
// the scheme does not know comes back as Unstructured.
func (c codec) decode(r row) (o runtime.Object, err error) {
	switch r.enc {
	case encProtobuf:
		o, _, err = c.proto.Decode(r.data, nil, nil)
	case encJSON:
		o, _, err = c.json.Decode(r.data, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			u := &unstructured.Unstructured{}
			o, err = u, u.UnmarshalJSON(r.data)
		}
	default:
		return nil, fmt.Errorf("unknown encoding %d", r.enc)
	}
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	if m.GetName() == "" {
		return nil, errors.New("object has no name")
	}
	return o, nil
}

func (c codec) sum(b []byte) uint64 { return maphash.Bytes(c.seed, b) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers a whole row, so that damage which still decodes is found.
func checksum(res int64, namespace, name string, rev Revision, r row) int64 {
	var head [24]byte
	binary.BigEndian.PutUint64(head[:], uint64(res))
	binary.BigEndian.PutUint64(head[8:], uint64(rev))
	binary.BigEndian.PutUint64(head[16:], uint64(r.enc))
	h := crc32.Update(0, castagnoli, head[:])
	h = crc32.Update(h, castagnoli, []byte(namespace+"/"+name))
	return int64(crc32.Update(h, castagnoli, r.data))
}
