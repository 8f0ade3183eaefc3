package server

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/storage"
)

// frames writes the events of one watch.
//
//	JSON:     {"type":"ADDED","object":{...}}\n
//	protobuf: length (4 bytes, big endian), WatchEvent{type = 1, object{raw = 2.1}}; raw is the object with its envelope
type frames struct {
	x       *exchange
	w       http.ResponseWriter
	ctl     *http.ResponseController
	buf     bytes.Buffer
	err     error
	columns bool // the table's column definitions were sent
}

func newFrames(x *exchange, w http.ResponseWriter) *frames {
	return &frames{x: x, w: w, ctl: http.NewResponseController(w)}
}

// open sends the headers at once: clients wait for them.
func (f *frames) open() {
	ct := typeJSON
	if f.x.out.media == mediaProtobuf {
		ct = typeProtobuf + ";stream=watch"
	}
	f.w.Header().Set("Content-Type", ct)
	f.w.WriteHeader(http.StatusOK)
	f.err = f.ctl.Flush()
}

// report logs what ended the stream, unless the client has gone.
func (f *frames) report() {
	if f.err != nil && f.x.r.Context().Err() == nil {
		f.x.s.log.Warn().Err(f.err).Str("resource", f.x.res.GR().String()).Str("agent", f.x.r.UserAgent()).Msg("watch ended")
	}
}

// flushFrom flushes when so much has gathered. It is false once the client is gone.
func (f *frames) flushFrom(n int) bool {
	if f.buf.Len() < n {
		return f.err == nil
	}
	return f.flush()
}

func (f *frames) flush() bool {
	if f.buf.Len() == 0 || f.err != nil {
		return f.err == nil
	}
	// A client that does not read must not hold the stream for ever. Writers without deadlines have no such client.
	_ = f.ctl.SetWriteDeadline(time.Now().Add(watchStall))
	_, f.err = f.w.Write(f.buf.Bytes())
	if f.err == nil {
		f.err = f.ctl.Flush()
	}
	_ = f.ctl.SetWriteDeadline(time.Time{})
	f.buf.Reset()
	if f.buf.Cap() > 1<<20 {
		f.buf = bytes.Buffer{}
	}
	return f.err == nil
}

// event writes an entry's state.
func (f *frames) event(t storage.EventType, e *storage.Entry) {
	if f.err != nil {
		return
	}
	s, r := f.x.s, f.x.res
	switch f.x.out.as {
	case "Table":
		o, err := r.view(e)
		if err == nil {
			err = f.table(t, o)
		}
		f.err = err
		return
	case "PartialObjectMetadata":
		if f.x.out.media == mediaProtobuf {
			b, err := s.partialRawOf(r, e)
			f.protobuf(string(t), appendEnvelope(nil, gvkOf(f.x.out.asGV, "PartialObjectMetadata"), b), err)
			return
		}
		b, err := s.partialJSONOf(r, e)
		f.json(string(t), b, err)
		return
	}
	if f.x.out.media == mediaProtobuf {
		b, err := s.rawOf(r, e)
		f.protobuf(string(t), appendEnvelope(make([]byte, 0, len(b)+64), r.GVK, b), err)
		return
	}
	b, err := s.jsonOf(r, e)
	f.json(string(t), b, err)
}

// bookmark writes a revision. The one that ends the initial events says so.
func (f *frames) bookmark(rev storage.Revision, initialEnd bool) {
	o := f.x.res.New()
	o.GetObjectKind().SetGroupVersionKind(f.x.res.GVK)
	m, err := meta.Accessor(o)
	if err != nil {
		f.err = err
		return
	}
	m.SetResourceVersion(rev.String())
	if initialEnd {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	switch f.x.out.as {
	case "Table":
		f.err = f.table("BOOKMARK", o)
		return
	case "PartialObjectMetadata":
		o = partialFrom(m, f.x.out.asGV)
	}
	f.object("BOOKMARK", o)
}

func (f *frames) error(st *metav1.Status) { f.object("ERROR", st) }

// object writes something that is not cached.
func (f *frames) object(t string, o runtime.Object) {
	if f.x.out.media == mediaProtobuf {
		b, err := f.x.s.codecs.encode(mediaProtobuf, false, o)
		f.protobuf(t, b, err)
		return
	}
	b, err := f.x.s.codecs.encodeJSON(o)
	f.json(t, b, err)
}

// table writes a table of one row. Only the first one of a watch names its columns.
func (f *frames) table(t storage.EventType, o runtime.Object) error {
	opts, err := f.x.tableOptions()
	if err != nil {
		return err
	}
	opts.NoHeaders = f.columns
	tab, err := f.x.tableOf(f.x.r.Context(), o, opts)
	if err != nil {
		return err
	}
	if f.columns {
		tab.ColumnDefinitions = nil
	}
	f.columns = true
	b, err := f.x.s.codecs.encodeJSON(tab)
	f.json(string(t), b, err)
	return nil
}

func (f *frames) json(t string, object []byte, err error) {
	if err != nil {
		f.err = err
		return
	}
	f.buf.WriteString(`{"type":"`)
	f.buf.WriteString(t)
	f.buf.WriteString(`","object":`)
	f.buf.Write(object)
	f.buf.WriteString("}\n")
}

func (f *frames) protobuf(t string, object []byte, err error) {
	if err != nil {
		f.err = err
		return
	}
	ext := appendField(make([]byte, 0, len(object)+8), 1, object)
	ev := appendField(make([]byte, 0, len(ext)+16), 1, []byte(t))
	ev = appendField(ev, 2, ext)
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(ev)))
	f.buf.Write(size[:])
	f.buf.Write(ev)
}
