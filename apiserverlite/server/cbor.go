package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"drydock.dev/drydock/apiserverlite/registry"
	"drydock.dev/drydock/apiserverlite/storage"
)

// CBOR (RFC 8949), as apimachinery writes it: strings and names are byte strings, and a document begins with the
// tag 55799, which only says that this is CBOR. An entry's bytes are kept as an item, which is what lists hold:
//
//	item:     map{"metadata": ..., "spec": ...}                     without kind and apiVersion, unless it is a custom object
//	document: tag, map{"kind": ..., "apiVersion": ..., what the item has}
//	list:     tag, map{"kind", "apiVersion", "metadata", "items": array of items}
//	event:    tag, map{"type": ..., "object": document}
var cborTag = []byte{0xd9, 0xd9, 0xf7}

// The kinds of data that are written here; the first three bits of their heads.
const (
	cborBytes = 0x40
	cborArray = 0x80
	cborMap   = 0xa0
)

// appendHead appends what stands before so many bytes, elements or pairs.
func appendHead(b []byte, kind byte, n int) []byte {
	switch {
	case n < 24:
		return append(b, kind|byte(n))
	case n < 1<<8:
		return append(b, kind|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, kind|25), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, kind|26), uint32(n))
}

func appendCBOR(b []byte, texts ...string) []byte {
	for _, t := range texts {
		b = append(appendHead(b, cborBytes, len(t)), t...)
	}
	return b
}

// pairs splits the map of an item into its number of pairs and what follows.
func pairs(item []byte) (n int, rest []byte, err error) {
	switch {
	case len(item) > 0 && item[0]&^0x1f == cborMap && item[0]&0x1f < 24:
		return int(item[0] & 0x1f), item[1:], nil
	case len(item) > 1 && item[0] == cborMap|24:
		return int(item[1]), item[2:], nil
	}
	return 0, nil, fmt.Errorf("an object in CBOR begins with % x", item[:min(4, len(item))])
}

// cborItem encodes an object of the resource as lists hold it.
func (c *codecs) cborItem(r *resource, o runtime.Object) ([]byte, error) {
	if r.Protobuf {
		bare := reflect.New(reflect.TypeOf(o).Elem())
		bare.Elem().Set(reflect.ValueOf(o).Elem())
		o = bare.Interface().(runtime.Object)
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	b, err := c.encode(mediaCBOR, false, o)
	return bytes.TrimPrefix(b, cborTag), err
}

// cborDocument makes an item a document of its own.
func cborDocument(item []byte, r *resource) ([]byte, error) {
	b := append(make([]byte, 0, len(item)+64), cborTag...)
	if !r.Protobuf { // a custom object's kind is in the item
		return append(b, item...), nil
	}
	n, rest, err := pairs(item)
	if err != nil {
		return nil, err
	}
	b = appendCBOR(appendHead(b, cborMap, n+2), "kind", r.GVK.Kind, "apiVersion", r.GVK.GroupVersion().String())
	return append(b, rest...), nil
}

func cborEvent(t string, document []byte) []byte {
	b := append(make([]byte, 0, len(document)+32), cborTag...)
	b = appendCBOR(appendHead(b, cborMap, 2), "type", t, "object")
	return append(b, document...)
}

// cborOf returns the cached item of an entry in the resource's version.
func (s *Server) cborOf(r *resource, e *storage.Entry) ([]byte, error) {
	return s.cborBy((*storage.Entry).Encoded, r, e)
}

func (s *Server) cborBy(by encoding, r *resource, e *storage.Entry) ([]byte, error) {
	return by(e, r.formCBOR, func(runtime.Object) ([]byte, error) {
		o, err := r.view(e)
		if err != nil {
			return nil, err
		}
		return s.codecs.cborItem(r, o)
	})
}

// partialCBOR is an entry's metadata with its kind.
func (x *exchange) partialCBOR(_ *resource, e *storage.Entry) ([]byte, error) {
	p, err := partialOf(e, x.out.asGV)
	if err != nil {
		return nil, err
	}
	return direct.Marshal(p)
}

// joinCBOR puts a list together from its items.
func (x *exchange) joinCBOR(p page, apiVersion, kind string, item func(*resource, *storage.Entry) ([]byte, error)) ([][]byte, error) {
	var about any = p.meta
	if !x.res.Protobuf && x.out.as == "" && p.meta.Continue == "" { // custom resources' lists say so
		about = struct {
			metav1.ListMeta
			Continue string `json:"continue"`
		}{ListMeta: p.meta}
	}
	head, err := direct.Marshal(about)
	if err != nil {
		return nil, err
	}
	b := appendHead(append([]byte{}, cborTag...), cborMap, 4)
	b = append(appendCBOR(b, "kind", kind, "apiVersion", apiVersion, "metadata"), head...)
	b = appendHead(appendCBOR(b, "items"), cborArray, len(p.entries))
	parts := make([][]byte, 1, len(p.entries)+1)
	parts[0] = b
	for _, e := range p.entries {
		i, err := item(x.res, e)
		if err != nil {
			return nil, err
		}
		parts = append(parts, i)
	}
	return parts, nil
}

// outsizedCBOR is registry.Outsized for a body whose texts have their lengths before them, which may look like letters.
func outsizedCBOR(body []byte) (string, bool) {
	var v any
	if direct.Unmarshal(body, &v) != nil {
		return "", false // it will be refused
	}
	return outsizedIn(v)
}

func outsizedIn(v any) (number string, found bool) {
	switch t := v.(type) {
	case string:
		return registry.Outsized([]byte(t))
	case []any:
		for _, e := range t {
			if number, found = outsizedIn(e); found {
				return number, true
			}
		}
	case map[string]any:
		for k, e := range t {
			if number, found = registry.Outsized([]byte(k)); found {
				return number, true
			}
			if number, found = outsizedIn(e); found {
				return number, true
			}
		}
	}
	return "", false
}
