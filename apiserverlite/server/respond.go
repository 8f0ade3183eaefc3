package server

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// warnings collects what the answer's Warning headers say, each text once.
type warnings struct {
	texts []string
	runes int // of all texts
	least int // of all texts, as long as they are once they are cut
}

// Bounds of all warnings together, and of each when that is exceeded.
const (
	warningsRunes = 4 << 10
	warningRunes  = 256
)

func (ws *warnings) add(texts ...string) {
	for _, t := range texts {
		if ws.runes > warningsRunes && ws.least >= warningsRunes {
			return // there is no room even for what is there
		}
		if slices.Contains(ws.texts, t) {
			continue
		}
		n := utf8.RuneCountInString(t)
		ws.texts, ws.runes, ws.least = append(ws.texts, t), ws.runes+n, ws.least+min(n, warningRunes)
	}
}

func (ws *warnings) write(h http.Header) {
	for _, t := range ws.texts {
		if ws.runes > warningsRunes && utf8.RuneCountInString(t) > warningRunes {
			t = string([]rune(t)[:warningRunes])
		}
		if v, err := utilnet.NewWarningHeader(299, "-", t); err == nil {
			h.Add("Warning", v)
		}
	}
}

// fail writes a Status.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, out output, err error) {
	if errors.Is(err, errNoPage) {
		http.NotFound(w, r)
		return
	}
	st := status(err)
	if out.media == mediaCBOR && (unroutable(st) || st.Reason == metav1.StatusReasonNotAcceptable) {
		out = output{pretty: true} // the router speaks no CBOR, and not everything else does
	}
	if st.Code >= 500 && st.Reason != metav1.StatusReasonTimeout {
		s.log.Debug().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("request failed")
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	b, encErr := s.codecs.encode(out.media, out.pretty, st)
	if encErr != nil {
		http.Error(w, st.Message, int(st.Code))
		return
	}
	s.send(w, r, int(st.Code), out.media.contentType(), b)
}

// outputFor is the plain form for answers of requests whose endpoint is not known yet.
func outputFor(r *http.Request) output {
	out, ok := negotiate(r, offer{protobuf: true})
	if !ok {
		return output{pretty: true}
	}
	return out
}
