package server

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// mostPlain is the size up to which nothing is compressed.
const mostPlain = 128 << 10

// gathered is how much of a long answer goes to the connection at once: with HTTP/2, each write costs a frame and a
// change of goroutines.
const gathered = 64 << 10

// send writes a complete answer.
func (s *Server) send(w http.ResponseWriter, r *http.Request, code int, contentType string, parts ...[]byte) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var to io.Writer = w
	if size > gathered {
		long := patient{w, newStall(s.wall, w)}
		defer long.stall.stop()
		to = long
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	if size > mostPlain && zipped(r) {
		zip(h)
		w.WriteHeader(code)
		_ = s.zippers.write(to, parts...) // a client that is gone needs no answer
		return
	}
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return
	}
	if len(parts) == 1 {
		_, _ = to.Write(parts[0]) // a client that is gone needs no answer
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

// zipped tells whether a client wants its answer compressed: one that names gzip, without a weight. Go's transport,
// and so client-go, does so by itself, unless its kubeconfig says disable-compression.
func zipped(r *http.Request) bool {
	for name := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(name) == "gzip" {
			return true
		}
	}
	return false
}

// zip announces a compressed answer.
func zip(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
}

// zippers keeps what compresses: each holds about a megabyte. Its zero value is ready.
type zippers struct{ sync.Pool }

// write compresses something whole.
func (p *zippers) write(w io.Writer, parts ...[]byte) error {
	return p.with(w, func(z *gzip.Writer) error {
		for _, b := range parts {
			if _, err := z.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// piece compresses a part of a stream that its reader shall have at once. Go's reader gives the last bytes before an end
// only when it has seen the next beginning, so they are flushed before the end.
func (p *zippers) piece(w io.Writer, b []byte) error {
	return p.with(w, func(z *gzip.Writer) error {
		if _, err := z.Write(b); err != nil {
			return err
		}
		return z.Flush()
	})
}

func (p *zippers) with(w io.Writer, f func(*gzip.Writer) error) error {
	z, ok := p.Get().(*gzip.Writer)
	if !ok {
		z, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	}
	z.Reset(w)
	defer func() {
		z.Reset(nil)
		p.Put(z)
	}()
	if err := f(z); err != nil {
		return err
	}
	return z.Close()
}
