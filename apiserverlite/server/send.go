package server

import (
	"bufio"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/utils/clock"
)

// gzipFrom is the size from which compressing costs less than sending.
const gzipFrom = 128 << 10

// gathered is how much of a long answer goes to the connection at once: with HTTP/2, each write costs a frame and a
// change of goroutines.
const gathered = 64 << 10

// send writes a complete answer.
func send(w http.ResponseWriter, r *http.Request, code int, contentType string, parts ...[]byte) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var to io.Writer = w
	if size > gathered {
		long := patient{w, newStall(clock.RealClock{}, w)}
		defer long.stall.stop()
		to = long
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	if size >= gzipFrom && compressed(r) {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		w.WriteHeader(code)
		z, _ := gzip.NewWriterLevel(to, gzip.BestSpeed) // the level is valid
		for _, p := range parts {
			_, _ = z.Write(p) // a client that is gone needs no answer
		}
		_ = z.Close()
		return
	}
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return
	}
	if len(parts) == 1 {
		_, _ = to.Write(parts[0]) // as above
		return
	}
	out := bufio.NewWriterSize(to, min(size, gathered))
	for _, p := range parts {
		_, _ = out.Write(p) // as above
	}
	_ = out.Flush()
}

// patient writes a long answer for as long as its client takes some of it now and then: one that does not would hold
// all of it for ever.
type patient struct {
	w     http.ResponseWriter
	stall *stall
}

func (p patient) Write(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		piece := b[n:min(len(b), n+gathered)]
		err = p.stall.during(func() error {
			wrote, err := p.w.Write(piece)
			n += wrote
			return err
		})
	}
	return n, err
}

// compressed tells whether a long answer is worth compressing for a client. Go's transport, and so client-go,
// says by itself that it could read gzip: "gzip" and nothing else. To one on this machine that means more work on either
// side and nothing gained. Who names it among others, or with a weight, or is somewhere else, gets it.
func compressed(r *http.Request) bool {
	accept := r.Header.Get("Accept-Encoding")
	return strings.Contains(accept, "gzip") && (accept != "gzip" || !near(r))
}

// near tells whether a client is on this machine.
func near(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // it is in this process
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
