package server

import (
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/storage"
)

// encoding is a way to get at an entry's bytes in a form.
type encoding func(*storage.Entry, string, func(runtime.Object) ([]byte, error)) ([]byte, error)

// jsonOf returns the cached JSON of an entry in the resource's version, without a line end.
func (s *Server) jsonOf(r *resource, e *storage.Entry) ([]byte, error) {
	return s.jsonBy((*storage.Entry).Encoded, r, e)
}

func (s *Server) jsonBy(by encoding, r *resource, e *storage.Entry) ([]byte, error) {
	return by(e, r.formJSON, func(runtime.Object) ([]byte, error) {
		o, err := r.view(e)
		if err != nil {
			return nil, err
		}
		return s.codecs.encodeJSON(o)
	})
}

// rawOf returns the cached protobuf message of an entry in the resource's version.
func (s *Server) rawOf(r *resource, e *storage.Entry) ([]byte, error) {
	return s.rawBy((*storage.Entry).Encoded, r, e)
}

func (s *Server) rawBy(by encoding, r *resource, e *storage.Entry) ([]byte, error) {
	return by(e, r.formRaw, func(runtime.Object) ([]byte, error) {
		o, err := r.view(e)
		if err != nil {
			return nil, err
		}
		return encodeRaw(o)
	})
}

// partialOf is an entry's metadata alone.
func partialOf(e *storage.Entry, apiVersion string) (*metav1.PartialObjectMetadata, error) {
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return nil, err
	}
	return partialFrom(m, apiVersion), nil
}

func partialFrom(m metav1.Object, apiVersion string) *metav1.PartialObjectMetadata {
	p := meta.AsPartialObjectMetadata(m)
	p.APIVersion, p.Kind = apiVersion, "PartialObjectMetadata"
	return p
}

const metaV1 = "meta.k8s.io/v1"

// partialJSON is an entry's metadata in the version that the client asks for. Only the newer one is kept.
func (x *exchange) partialJSON(r *resource, e *storage.Entry) ([]byte, error) {
	if x.out.asGV == metaV1 {
		return x.s.partialJSONOf(r, e)
	}
	p, err := partialOf(e, x.out.asGV)
	if err != nil {
		return nil, err
	}
	return x.s.codecs.encodeJSON(p)
}

func (s *Server) partialJSONOf(r *resource, e *storage.Entry) ([]byte, error) {
	return e.Encoded(r.formPartialJSON, func(runtime.Object) ([]byte, error) {
		p, err := partialOf(e, metaV1)
		if err != nil {
			return nil, err
		}
		return s.codecs.encodeJSON(p)
	})
}

func (s *Server) partialRawOf(r *resource, e *storage.Entry) ([]byte, error) {
	return e.Encoded(r.formPartialRaw, func(runtime.Object) ([]byte, error) {
		p, err := partialOf(e, metaV1)
		if err != nil {
			return nil, err
		}
		return encodeRaw(p)
	})
}

func gvkOf(apiVersion, kind string) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// write sends a reply in the negotiated form.
func (x *exchange) write(w http.ResponseWriter, rep reply) {
	if rep.code == 0 {
		rep.code = http.StatusOK
	}
	b, err := x.render(rep)
	if err != nil {
		x.s.fail(w, x.r, x.out, err)
		return
	}
	x.s.send(w, x.r, rep.code, x.out.media.contentType(), b)
}

// render encodes a single object. Status answers are never transformed.
func (x *exchange) render(rep reply) ([]byte, error) {
	_, isStatus := rep.object.(*metav1.Status)
	as := x.out.as
	if isStatus {
		as = ""
	}
	switch as {
	case "Table":
		t, err := x.table(x.r.Context(), rep.object)
		if err != nil {
			return nil, err
		}
		return x.s.codecs.encode(x.out.media, x.out.pretty, t)
	case "PartialObjectMetadata":
		m, err := meta.Accessor(rep.object)
		if err != nil {
			return nil, notAcceptable(acceptable(false))
		}
		return x.s.codecs.encode(x.out.media, x.out.pretty, partialFrom(m, x.out.asGV))
	}
	if rep.entry != nil && !x.out.pretty {
		switch {
		case x.out.media == mediaJSON:
			b, err := x.s.jsonOf(x.res, rep.entry)
			return append(append(make([]byte, 0, len(b)+1), b...), '\n'), err
		case x.out.media == mediaProtobuf && x.res.Protobuf:
			b, err := x.s.rawOf(x.res, rep.entry)
			return appendEnvelope(make([]byte, 0, len(b)+64), x.res.GVK, b), err
		case x.out.media == mediaCBOR:
			b, err := x.s.cborOf(x.res, rep.entry)
			if err != nil {
				return nil, err
			}
			return cborDocument(b, x.res)
		}
	}
	return x.s.codecs.encode(x.out.media, x.out.pretty, rep.object)
}

// appendField appends a length-delimited protobuf field.
func appendField(b []byte, n protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}
