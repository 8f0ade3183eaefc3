package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	typeJSON     = "application/json"
	typeProtobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	typeOldProto = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// versions serves the v3 documents. kube-openapi's own service hashes each finished document, so that the
// first client, which asks for the index only to find one of them, would wait for all. Here a hash is that of
// what the document is made from.
type versions struct {
	started time.Time
	byName  map[string]*versionDoc
	list    []byte // the index
}

type versionDoc struct {
	hash     string
	json     func() ([]byte, error)
	protobuf func() ([]byte, error)
}

// newVersions takes over the documents of base, which may be nil, where no kind of a definition is concerned.
func newVersions(c Config, models func() (map[string]*spec.Schema, error), base *versions) *versions {
	v := &versions{started: time.Now(), byName: map[string]*versionDoc{}}
	type place struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]place `json:"paths"`
	}{map[string]place{}}
	for gv, kinds := range byVersion(c.Kinds) {
		name := GroupVersion(gv)
		if base != nil && !slices.ContainsFunc(kinds, func(k Kind) bool { return k.Models != nil }) {
			d := base.byName[name]
			v.byName[name] = d
			index.Paths[name] = place{location(name, d.hash)}
			continue
		}
		d := &versionDoc{hash: hash(c, kinds)}
		d.json = sync.OnceValues(func() ([]byte, error) {
			m, err := models()
			if err != nil {
				return nil, err
			}
			return json.Marshal(document(kinds, m, c.Title, c.Version))
		})
		d.protobuf = sync.OnceValues(func() ([]byte, error) {
			b, err := d.json()
			if err != nil {
				return nil, err
			}
			return handler3.ToV3ProtoBinary(b)
		})
		v.byName[name] = d
		index.Paths[name] = place{location(name, d.hash)}
	}
	v.list, _ = json.Marshal(index) // of texts only: it cannot fail
	return v
}

// hash is of all that makes a document: the models, the kinds and this server's version.
func hash(c Config, kinds []Kind) string {
	h := sha256.New()
	h.Write(packed)
	fmt.Fprintln(h, c.Title, c.Version)
	for _, k := range kinds {
		fmt.Fprintln(h, k.GVR, k.GVK, k.Namespaced, k.Verbs, k.BuiltIn)
		slices.SortFunc(k.Subresources, func(a, b Subresource) int { return strings.Compare(a.Name, b.Name) })
		fmt.Fprintln(h, k.Subresources)
		if k.Models != nil {
			b, _ := json.Marshal(k.Models()) // schemas that came as JSON
			h.Write(b)
		}
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

func location(name, hash string) string { return "/openapi/v3/" + name + "?hash=" + hash }

func (v *versions) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Etag", fmt.Sprintf(`"%X"`, sha256.Sum256(v.list)))
	http.ServeContent(w, r, "", v.started, bytes.NewReader(v.list))
}

func (v *versions) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	d, ok := v.byName[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Vary", "Accept")
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = typeJSON
	}
	media := goautoneg.Negotiate(accept, []string{typeJSON, typeProtobuf, typeOldProto})
	if media == "" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if asked := r.URL.Query().Get("hash"); asked != "" {
		if asked != d.hash {
			http.Redirect(w, r, location(name, d.hash), http.StatusMovedPermanently)
			return
		}
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	content := d.json
	if media != typeJSON {
		media, content = typeProtobuf, d.protobuf
	}
	b, err := content()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", media)
	h.Set("Etag", `"`+d.hash+`"`)
	http.ServeContent(w, r, "", v.started, bytes.NewReader(b))
}

func byVersion(kinds []Kind) map[schema.GroupVersion][]Kind {
	out := map[schema.GroupVersion][]Kind{}
	for _, k := range kinds {
		gv := k.GVR.GroupVersion()
		out[gv] = append(out[gv], k)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b Kind) int { return strings.Compare(a.GVR.Resource, b.GVR.Resource) })
	}
	return out
}
