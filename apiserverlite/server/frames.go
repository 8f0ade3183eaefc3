package server

import (
	"bytes"
	"encoding/binary"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/storage"
)

// frames writes the events of one watch.
//
//	JSON:     {"type":"ADDED","object":{...}}\n
//	protobuf: length (4 bytes, big endian), WatchEvent{type = 1, object{raw = 2.1}}; raw is the object with its envelope
//	CBOR:     one document after the other: see cborTag
type frames struct {
	x       *exchange
	w       http.ResponseWriter
	ctl     *http.ResponseController
	stall   *stall
	buf     bytes.Buffer
	one     []byte // all that waits to be written, if it is a single event which other watches write as well
	err     error
	columns bool // the table's column definitions were sent
	zipped  bool // each flush is a compressed piece of its own
}

func newFrames(x *exchange, w http.ResponseWriter) *frames {
	return &frames{x: x, w: w, ctl: http.NewResponseController(w), stall: newStall(x.s.wall, w)}
}

// close ends what watches over the writes.
func (f *frames) close() { f.stall.stop() }

// open sends the headers at once: clients wait for them.
func (f *frames) open() {
	f.w.Header().Set("Content-Type", f.x.out.media.streamType())
	if f.zipped {
		zip(f.w.Header())
	}
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
	if len(f.one)+f.buf.Len() < n {
		return f.err == nil
	}
	return f.flush()
}

func (f *frames) flush() bool {
	if f.err != nil {
		return false
	}
	out := f.one
	if out == nil {
		out = f.buf.Bytes()
	}
	if len(out) == 0 {
		return true
	}
	f.err = f.stall.during(func() error {
		if err := f.write(out); err != nil {
			return err
		}
		return f.ctl.Flush()
	})
	f.one = nil
	f.buf.Reset()
	if f.buf.Cap() > 1<<20 {
		f.buf = bytes.Buffer{}
	}
	return f.err == nil
}

func (f *frames) write(b []byte) error {
	if f.zipped {
		return f.x.s.zippers.piece(f.w, b)
	}
	_, err := f.w.Write(b)
	return err
}

// mostShared bounds the bytes of an event that are kept for other watches.
const mostShared = 64 << 10

// shared writes an entry's state as an event of this type. Watches that show the same share its bytes.
func (f *frames) shared(ev *storage.Event, t storage.EventType, e *storage.Entry) {
	form := f.x.res.formJSON
	switch f.x.out.media {
	case mediaProtobuf:
		form = f.x.res.formRaw
	case mediaCBOR:
		form = f.x.res.formCBOR
	}
	if f.err != nil || f.x.out.as != "" || e.Size() > mostShared {
		f.event(t, e)
		return
	}
	b, err := ev.Frame(t, form, func() ([]byte, error) {
		own := frames{x: f.x}
		own.event(t, e)
		return own.buf.Bytes(), own.err
	})
	switch {
	case err != nil:
		f.err = err
	case f.one == nil && f.buf.Len() == 0:
		f.one = b
	default:
		f.spill()
		f.buf.Write(b)
	}
}

// spill makes room for a second event.
func (f *frames) spill() {
	f.buf.Write(f.one)
	f.one = nil
}

// event writes an entry's state.
func (f *frames) event(t storage.EventType, e *storage.Entry) {
	if f.err != nil {
		return
	}
	if f.x.out.as == "Table" {
		o, err := f.x.res.view(e)
		if err == nil {
			err = f.table(t, o)
		}
		f.err = err
		return
	}
	b, err := f.document(e)
	f.put(string(t), b, err)
}

// document encodes an entry as an event holds it.
func (f *frames) document(e *storage.Entry) ([]byte, error) {
	s, r := f.x.s, f.x.res
	partial := f.x.out.as != ""
	switch f.x.out.media {
	case mediaProtobuf:
		raw, kind := s.rawOf, r.GVK
		if partial {
			raw, kind = s.partialRawOf, gvkOf(f.x.out.asGV, "PartialObjectMetadata")
		}
		b, err := raw(r, e)
		return appendEnvelope(make([]byte, 0, len(b)+64), kind, b), err
	case mediaCBOR:
		if partial {
			b, err := f.x.partialCBOR(r, e)
			return append(cborTag[:len(cborTag):len(cborTag)], b...), err
		}
		b, err := s.cborOf(r, e)
		if err != nil {
			return nil, err
		}
		return cborDocument(b, r)
	}
	if partial {
		return f.x.partialJSON(r, e)
	}
	return s.jsonOf(r, e)
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
	if m := f.x.out.media; m != mediaJSON {
		b, err := f.x.s.codecs.encode(m, false, o)
		f.put(t, b, err)
		return
	}
	b, err := f.x.s.codecs.encodeJSON(o)
	f.put(t, b, err)
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
	f.object(string(t), tab)
	return nil
}

// put writes an event with a document of the watch's format.
func (f *frames) put(t string, document []byte, err error) {
	if err != nil {
		f.err = err
		return
	}
	f.spill()
	switch f.x.out.media {
	case mediaProtobuf:
		f.protobuf(t, document)
	case mediaCBOR:
		f.buf.Write(cborEvent(t, document))
	default:
		f.json(t, document)
	}
}

func (f *frames) json(t string, object []byte) {
	f.buf.WriteString(`{"type":"`)
	f.buf.WriteString(t)
	f.buf.WriteString(`","object":`)
	f.buf.Write(object)
	f.buf.WriteString("}\n")
}

func (f *frames) protobuf(t string, object []byte) {
	name := protowire.SizeTag(1) + protowire.SizeBytes(len(t))
	raw := protowire.SizeTag(1) + protowire.SizeBytes(len(object))
	all := name + protowire.SizeTag(2) + protowire.SizeBytes(raw)
	f.buf.Grow(4 + all)
	b := binary.BigEndian.AppendUint32(f.buf.AvailableBuffer(), uint32(all))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, t)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(raw))
	f.buf.Write(appendField(b, 1, object))
}
