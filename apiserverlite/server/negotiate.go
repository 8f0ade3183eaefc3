package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
)

// media is a format of bodies.
type media uint8

const (
	mediaJSON media = iota
	mediaYAML
	mediaProtobuf
	mediaCBOR
)

const (
	typeJSON     = "application/json"
	typeYAML     = "application/yaml"
	typeProtobuf = "application/vnd.kubernetes.protobuf"
	typeCBOR     = "application/cbor"
)

func (m media) contentType() string {
	switch m {
	case mediaYAML:
		return typeYAML
	case mediaProtobuf:
		return typeProtobuf
	case mediaCBOR:
		return typeCBOR
	}
	return typeJSON
}

// streamType is the type of a watch in the format.
func (m media) streamType() string {
	switch m {
	case mediaProtobuf:
		return typeProtobuf + ";stream=watch"
	case mediaCBOR: // exactly one document is what CBOR's own type says
		return typeCBOR + "-seq"
	}
	return typeJSON
}

// output is what the client wants its answer to be.
type output struct {
	media  media
	as     string // "", Table, PartialObjectMetadata or PartialObjectMetadataList
	asGV   string // meta.k8s.io/v1 or meta.k8s.io/v1beta1
	pretty bool
}

// offer is what an endpoint can give.
type offer struct {
	protobuf bool
	noCBOR   bool
	metadata bool // in protobuf, whatever the object
	table    bool
	partial  bool // PartialObjectMetadata
	partials bool // PartialObjectMetadataList
}

// negotiate picks the best of the Accept header that the endpoint offers.
func negotiate(r *http.Request, o offer) (output, bool) {
	accept := r.Header.Get("Accept")
	if more := r.Header["Accept"]; len(more) > 1 {
		accept = strings.Join(more, ",")
	}
	out := output{}
	if accept == "" || accept == "*/*" || accept == typeJSON {
		out.pretty = pretty(r)
		return out, true
	}
	if strings.HasPrefix(accept, typeProtobuf+",") && o.protobuf { // what typed clients send
		return output{media: mediaProtobuf}, true
	}
	for _, c := range goautoneg.ParseAccept(accept) {
		out, ok := o.match(c)
		if !ok {
			continue
		}
		out.pretty = out.media == mediaJSON && (out.pretty || pretty(r))
		return out, true
	}
	return output{}, false
}

func (o offer) match(c goautoneg.Accept) (output, bool) {
	var out output
	switch c.Type + "/" + c.SubType {
	case "*/*", "application/*", typeJSON:
	case typeYAML:
		out.media = mediaYAML
	case typeProtobuf:
		if !o.protobuf && (c.Params["as"] == "" || !o.metadata) {
			return out, false
		}
		out.media = mediaProtobuf
	case typeCBOR:
		if o.noCBOR {
			return out, false
		}
		out.media = mediaCBOR
	default:
		return out, false
	}
	if stream := c.Params["stream"]; stream != "" && (stream != "watch" || out.media == mediaYAML) {
		return out, false
	}
	if sv := c.Params["sv"]; sv != "" && sv != "v1" {
		return out, false
	}
	out.pretty = c.Params["pretty"] == "1"
	as, v, g := c.Params["as"], c.Params["v"], c.Params["g"]
	if as == "" && v == "" && g == "" {
		return out, true
	}
	if g != "meta.k8s.io" || v != "v1" && v != "v1beta1" {
		return out, false
	}
	out.as, out.asGV = as, "meta.k8s.io/"+v
	switch as {
	case "Table":
		return out, o.table && (out.media == mediaJSON || out.media == mediaYAML)
	case "PartialObjectMetadata":
		return out, o.partial
	case "PartialObjectMetadataList":
		return out, o.partials
	}
	return out, false
}

// pretty is asked for, or assumed for a person at a browser or curl.
func pretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if v := r.URL.Query().Get("pretty"); v != "" {
			b, _ := strconv.ParseBool(v) // what is neither true nor false is false
			return b
		}
	}
	ua := r.UserAgent()
	return strings.HasPrefix(ua, "curl") || strings.HasPrefix(ua, "Wget") || strings.HasPrefix(ua, "Mozilla/5.0")
}

// streams lists what a 406 to a watch names.
var streams = []string{typeJSON + ";stream=watch", typeProtobuf + ";stream=watch", typeCBOR + "-seq"}

// acceptable lists what a 406 names.
func acceptable(protobuf bool) []string {
	out := []string{typeJSON, typeYAML}
	if protobuf {
		out = append(out, typeProtobuf)
	}
	return append(out, typeCBOR)
}

// bodyMedia reads the Content-Type of a request that carries an object.
func bodyMedia(r *http.Request, protobuf bool) (media, error) {
	ct := r.Header.Get("Content-Type")
	if i := strings.IndexByte(ct, ';'); i >= 0 {
		ct = ct[:i]
	}
	switch strings.ToLower(strings.TrimSpace(ct)) {
	case "", typeJSON:
		return mediaJSON, nil
	case typeYAML:
		return mediaYAML, nil
	case typeProtobuf:
		if protobuf {
			return mediaProtobuf, nil
		}
	case typeCBOR:
		return mediaCBOR, nil
	}
	return 0, unsupportedMedia(acceptable(protobuf))
}
