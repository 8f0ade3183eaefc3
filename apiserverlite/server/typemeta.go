package server

import (
	"bytes"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// quickMeta finds apiVersion and kind in a body without reading all else in it, as the library's way does: that
// is as much work as decoding the object. It looks at what stands plainly at the top of well-formed JSON and leaves the
// rest to the library. Whether the body is well-formed it does not know: see careful.
type quickMeta struct{}

// Interpret is json.MetaFactory's.
func (quickMeta) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	apiVersion, kind, ok := typeMetaOf(data)
	if ok {
		if gv, err := schema.ParseGroupVersion(apiVersion); err == nil {
			k := gv.WithKind(kind)
			return &k, nil
		}
	}
	return json.DefaultMetaFactory.Interpret(data)
}

// careful decodes again what a quick decoder refuses: the library's words about it are wanted.
type careful struct{ quick, library runtime.Decoder }

// Decode is runtime.Decoder's.
func (d careful) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := d.quick.Decode(data, defaults, into)
	if err == nil || o != nil && runtime.IsStrictDecodingError(err) {
		return o, gvk, err
	}
	if into != nil {
		reflect.ValueOf(into).Elem().SetZero() // what the first attempt has left there
	}
	return d.library.Decode(data, defaults, into)
}

// typeMetaOf reads the two fields, each at most once and as a plain string. It is false when anything is not as clients write it.
func typeMetaOf(b []byte) (apiVersion, kind string, ok bool) {
	i := space(b, 0)
	if i == len(b) || b[i] != '{' {
		return "", "", false
	}
	for i++; ; i++ {
		i = space(b, i)
		key, after, plain := plainString(b, i)
		if !plain {
			return "", "", false
		}
		if i = space(b, after); i == len(b) || b[i] != ':' {
			return "", "", false
		}
		i = space(b, i+1)
		field := (*string)(nil)
		switch {
		case key == "kind":
			field = &kind
		case key == "apiVersion":
			field = &apiVersion
		case strings.EqualFold(key, "kind"), strings.EqualFold(key, "apiVersion"):
			return "", "", false // the library takes it, too
		}
		if field == nil {
			i = skipValue(b, i)
		} else {
			v, after, plain := plainString(b, i)
			if !plain || *field != "" {
				return "", "", false
			}
			*field, i = v, after
		}
		if i = space(b, i); i == len(b) {
			return "", "", false
		}
		switch b[i] {
		case ',':
		case '}':
			return apiVersion, kind, space(b, i+1) == len(b)
		default:
			return "", "", false
		}
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// plainString reads a string of printable ASCII without escapes.
func plainString(b []byte, i int) (s string, after int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return "", i, false
	}
	for j := i + 1; j < len(b); j++ {
		switch c := b[j]; {
		case c == '"':
			return string(b[i+1 : j]), j + 1, true
		case c == '\\' || c < ' ' || c >= 0x80:
			return "", i, false
		}
	}
	return "", i, false
}

// skipValue returns where a value ends, if it is a value.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',':
			if depth == 0 {
				return i
			}
			i++
		default:
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		escapes := 0
		for end-escapes > i && b[end-escapes-1] == '\\' {
			escapes++
		}
		if i = end + 1; escapes%2 == 0 {
			return i
		}
	}
	return i
}
