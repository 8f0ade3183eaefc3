package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"drydock.dev/drydock/apiserverlite/storage"
)

// page is what a list returns.
type page struct {
	meta    metav1.ListMeta
	entries []*storage.Entry
}

func (x *exchange) list(ctx context.Context) (reply, error) {
	o, err := x.listOptions()
	if err != nil {
		return reply{}, err
	}
	p, err := x.page(ctx, o)
	if err != nil {
		return reply{}, err
	}
	parts, err := x.renderList(ctx, p)
	if err != nil {
		return reply{}, err
	}
	return reply{stream: func(w http.ResponseWriter) { x.s.send(w, x.r, http.StatusOK, x.out.media.contentType(), parts...) }}, nil
}

// page selects the snapshot that the options ask for, and the objects from it.
func (x *exchange) page(ctx context.Context, o *internalversion.ListOptions) (page, error) {
	m, err := x.matcher(o)
	if err != nil {
		return page{}, err
	}
	snap, start, err := x.snapshot(ctx, o)
	if err != nil {
		return page{}, err
	}
	limit := int(o.Limit)
	if o.ResourceVersion == "0" && o.Continue == "" {
		limit = 0 // upstream serves this from its cache, whole
	}
	p := page{meta: metav1.ListMeta{ResourceVersion: snap.Revision.String()}}
	last, rest := "", int64(0)
	snap.Ascend(x.in.namespace, start, func(e *storage.Entry) bool {
		if limit > 0 && len(p.entries) == limit {
			if !m.all() {
				if m.matches(e) {
					rest = 1
					return false
				}
				return true
			}
			rest++
			return true
		}
		if m.matches(e) {
			p.entries = append(p.entries, e)
			last = e.Path()
		}
		return true
	})
	if rest > 0 {
		p.meta.Continue = x.token(int64(snap.Revision), last)
		if m.all() {
			p.meta.RemainingItemCount = &rest
		}
	}
	return p, nil
}

// snapshot follows the table of resourceVersion, resourceVersionMatch, limit and continue.
func (x *exchange) snapshot(ctx context.Context, o *internalversion.ListOptions) (storage.Snapshot, string, error) {
	current := func() (storage.Snapshot, string, error) { return x.s.store.Snapshot(x.res.Storage), "", nil }
	if o.Continue != "" {
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return storage.Snapshot{}, "", badRequest("specifying resource version is not allowed when using continue")
		}
		return x.continued(o.Continue)
	}
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		return current()
	}
	want, err := parseRevision(o.ResourceVersion)
	if err != nil {
		return storage.Snapshot{}, "", badRequest("invalid resource version: %v", err)
	}
	if err := x.reach(ctx, want); err != nil {
		return storage.Snapshot{}, "", err
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0
	if !exact {
		return current()
	}
	snap, err := x.s.store.SnapshotAt(x.res.Storage, want)
	if err != nil {
		return storage.Snapshot{}, "", expired("The resourceVersion for the provided list is too old.")
	}
	return snap, "", nil
}

// continueToken has upstream's form. Start is relative to what is listed.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

// token continues after a path. Revision -1 continues in the latest state.
func (x *exchange) token(revision int64, after string) string {
	if ns := x.in.namespace; ns != "" {
		after = strings.TrimPrefix(after, ns+"/")
	}
	b, err := json.Marshal(continueToken{metaV1, revision, after + "\x00"})
	if err != nil {
		return "" // cannot be: strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func (x *exchange) continued(token string) (storage.Snapshot, string, error) {
	bad := func(why string) (storage.Snapshot, string, error) {
		return storage.Snapshot{}, "", badRequest("invalid continue token: continue key is not valid: %s", why)
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return bad(err.Error())
	}
	var t continueToken
	if err := json.Unmarshal(b, &t); err != nil {
		return bad(err.Error())
	}
	switch {
	case t.APIVersion != metaV1:
		return bad("server does not recognize this encoded version " + t.APIVersion)
	case t.ResourceVersion == 0:
		return bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return bad("encoded start key empty (version meta.k8s.io/v1)")
	case strings.HasPrefix(t.StartKey, "/") || strings.Contains("/"+t.StartKey, "/../"):
		return bad(t.StartKey)
	}
	start := t.StartKey
	if ns := x.in.namespace; ns != "" {
		start = ns + "/" + start
	}
	if t.ResourceVersion < 0 {
		return x.s.store.Snapshot(x.res.Storage), start, nil
	}
	snap, err := x.s.store.SnapshotAt(x.res.Storage, storage.Revision(t.ResourceVersion))
	if err == nil {
		return snap, start, nil
	}
	gone := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	gone.ErrStatus.ListMeta.Continue = x.token(-1, strings.TrimSuffix(start, "\x00"))
	return storage.Snapshot{}, "", gone
}

// mostKept bounds the lists whose objects' bytes are kept for the next one: those of more objects would take as much
// memory as the objects, for as long as they live.
const mostKept = 10_000

// renderList encodes a page. Lists of objects are put together from the entries' own bytes, which are not copied.
func (x *exchange) renderList(ctx context.Context, p page) ([][]byte, error) {
	by := encoding((*storage.Entry).Encoded)
	if len(p.entries) > mostKept {
		by = (*storage.Entry).EncodedOnce
	}
	switch {
	case x.out.as == "Table":
		l, err := x.typedList(p)
		if err != nil {
			return nil, err
		}
		t, err := x.table(ctx, l)
		if err != nil {
			return nil, err
		}
		b, err := x.s.codecs.encode(x.out.media, x.out.pretty, t)
		return [][]byte{b}, err
	case x.out.media == mediaProtobuf && x.out.as == "":
		return x.joinRaw(p, x.res.listGVK.GroupVersion().String(), x.res.listGVK.Kind, func(r *resource, e *storage.Entry) ([]byte, error) { return x.s.rawBy(by, r, e) })
	case x.out.media == mediaProtobuf:
		return x.joinRaw(p, x.out.asGV, "PartialObjectMetadataList", x.s.partialRawOf)
	case x.out.media == mediaCBOR && x.out.as == "":
		return x.joinCBOR(p, x.res.listGVK.GroupVersion().String(), x.res.listGVK.Kind, func(r *resource, e *storage.Entry) ([]byte, error) { return x.s.cborBy(by, r, e) })
	case x.out.media == mediaCBOR:
		return x.joinCBOR(p, x.out.asGV, "PartialObjectMetadataList", x.partialCBOR)
	case x.out.as == "":
		var cut []byte
		if x.res.Protobuf { // items of custom resources' lists keep their kind
			cut = typeMetaJSON(x.res.GVK.GroupVersion().String(), x.res.GVK.Kind)
		}
		return x.joinJSON(p, x.res.listGVK.GroupVersion().String(), x.res.listGVK.Kind, func(r *resource, e *storage.Entry) ([]byte, error) { return x.s.jsonBy(by, r, e) }, cut)
	}
	return x.joinJSON(p, x.out.asGV, "PartialObjectMetadataList", x.partialJSON, nil)
}

// typeMetaJSON is how the JSON of a typed object begins.
func typeMetaJSON(apiVersion, kind string) []byte {
	return []byte(`{"kind":"` + kind + `","apiVersion":"` + apiVersion + `",`)
}

// joinJSON puts a list together. Items of typed lists have no apiVersion and kind: cut is what they begin with otherwise.
func (x *exchange) joinJSON(p page, apiVersion, kind string, item func(*resource, *storage.Entry) ([]byte, error), cut []byte) ([][]byte, error) {
	head, err := json.Marshal(p.meta)
	if err != nil {
		return nil, err
	}
	if !x.res.Protobuf && x.out.as == "" && p.meta.Continue == "" { // custom resources' lists say so
		head = append([]byte(`{"continue":"",`), head[1:]...)
	}
	begin := append(typeMetaJSON(apiVersion, kind), `"metadata":`...)
	begin = append(append(begin, head...), `,"items":[`...)
	parts := make([][]byte, 0, 2*len(p.entries)+2)
	parts = append(parts, begin)
	comma, open, commaOpen := []byte(","), []byte("{"), []byte(",{")
	for i, e := range p.entries {
		j, err := item(x.res, e)
		if err != nil {
			return nil, err
		}
		rest, isCut := bytes.CutPrefix(j, cut)
		switch isCut = isCut && cut != nil; {
		case isCut && i > 0:
			parts = append(parts, commaOpen, rest)
		case isCut:
			parts = append(parts, open, rest)
		case i > 0:
			parts = append(parts, comma, j)
		default:
			parts = append(parts, j)
		}
	}
	parts = append(parts, []byte("]}\n"))
	if x.out.media == mediaJSON && !x.out.pretty {
		return parts, nil
	}
	b, err := reformat(bytes.Join(parts, nil), x.out)
	return [][]byte{b}, err
}

// joinRaw puts a list together. Every list type has its metadata in field 1 and its items in field 2.
func (x *exchange) joinRaw(p page, apiVersion, kind string, item func(*resource, *storage.Entry) ([]byte, error)) ([][]byte, error) {
	head, err := p.meta.Marshal()
	if err != nil {
		return nil, err
	}
	size := protowire.SizeTag(1) + protowire.SizeBytes(len(head))
	items := make([][]byte, len(p.entries))
	for i, e := range p.entries {
		if items[i], err = item(x.res, e); err != nil {
			return nil, err
		}
		size += protowire.SizeTag(2) + protowire.SizeBytes(len(items[i]))
	}
	begin, end := envelope(gvkOf(apiVersion, kind), size)
	begin = appendField(begin, 1, head)
	parts := make([][]byte, 0, 2*len(items)+2)
	parts = append(parts, begin)
	lengths := make([]byte, 0, 4*len(items)) // one allocation, as a rule
	for _, b := range items {
		at := len(lengths)
		lengths = protowire.AppendVarint(protowire.AppendTag(lengths, 2, protowire.BytesType), uint64(len(b)))
		parts = append(parts, lengths[at:len(lengths):len(lengths)], b)
	}
	return append(parts, end), nil
}

// typedList is the page as an object of the resource's list type.
func (x *exchange) typedList(p page) (runtime.Object, error) {
	objs := make([]runtime.Object, len(p.entries))
	for i, e := range p.entries {
		o, err := x.res.view(e)
		if err != nil {
			return nil, err
		}
		objs[i] = o
	}
	l, err := x.res.list(objs)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(l)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(p.meta.ResourceVersion)
	m.SetContinue(p.meta.Continue)
	m.SetRemainingItemCount(p.meta.RemainingItemCount)
	return l, nil
}
