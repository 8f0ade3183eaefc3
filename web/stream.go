package web

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	keepalive  = 15 * time.Second
	writeLimit = 20 * time.Second // a client that takes nothing for so long is gone
	lastLimit  = time.Second      // the same, once the server stops
	syncLimit  = 10 * time.Second // how long a snapshot waits for a cluster that starts
)

// snapshot answers with the whole state and its revision.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeoutCause(r.Context(), syncLimit, errors.New("the Kubernetes API does not answer yet"))
	defer cancel()
	select {
	case <-s.synced:
	case <-s.hub.ctx.Done():
	case <-ctx.Done():
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("no snapshot: %s", context.Cause(ctx)), http.StatusServiceUnavailable)
		return
	}
	s.look(ctx)
	if s.hub.ctx.Err() != nil { // what was published last may be long out of date
		http.Error(w, "the dashboard has stopped", http.StatusServiceUnavailable)
		return
	}
	// A client that does not read would hold the answer for ever. A writer that knows no deadlines does without.
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(writeLimit))
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", "application/json")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		out = z
	}
	snap := struct {
		snapshot
		Now time.Time `json:"now"`
	}{s.hub.snapshot(), s.cfg.Lab.Clock.Now()}
	if err := json.NewEncoder(out).Encode(snap); err != nil {
		s.cfg.Log.Debug().Err(err).Msg("write the snapshot")
	}
}

// look has everything published that is known, and waits for that, or until ctx or the server ends.
func (s *Server) look(ctx context.Context) {
	told := make(chan struct{})
	select {
	case s.looks <- told:
	case <-s.hub.ctx.Done():
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-told:
	case <-s.hub.ctx.Done():
	case <-ctx.Done():
	}
}

// events streams what changes after a position: that of Last-Event-ID, which a
// browser sends when it reconnects, or that of the query.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	at := r.Header.Get("Last-Event-ID")
	if at == "" {
		at = r.URL.Query().Get("epoch") + "." + r.URL.Query().Get("rev")
	}
	rev, known := s.hub.parse(at)

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	out := &eventWriter{w: w, rc: http.NewResponseController(w), stop: s.hub.ctx}
	// A server that stops must not wait for a client that takes nothing.
	unblocked := make(chan struct{})
	unblock := context.AfterFunc(s.hub.ctx, func() {
		defer close(unblocked)
		out.rc.SetWriteDeadline(time.Now().Add(lastLimit))
	})
	defer func() {
		if !unblock() {
			<-unblocked // there is no connection any more once this handler has returned
		}
	}()

	out.raw("retry: 1000\n\n")
	if !known {
		out.event("", "reset", reason{resetEpoch})
		out.flush()
		return
	}
	st := s.hub.join()
	defer s.hub.leave(st)
	s.look(r.Context()) // what is not published yet waits for as long as nobody looks
	tick := s.cfg.Lab.Clock.NewTicker(keepalive)
	defer tick.Stop()
	first := true
	for out.flush() == nil {
		select {
		case <-r.Context().Done():
			return
		case <-s.hub.ctx.Done():
			out.event("", "bye", reason{"shutdown"})
			out.flush()
			return
		case <-tick.C():
			out.raw(": keepalive\n\n")
		case <-st.wake:
			read := s.hub.next
			if first { // a client that comes back may be further behind than one that stayed
				read, first = s.hub.read, false
			}
			b, lost := read(rev)
			if lost != "" {
				out.event("", "reset", reason{lost})
				out.flush()
				return
			}
			if b.Rev > rev {
				rev = b.Rev
				out.event(s.hub.position(rev), "batch", struct {
					batch
					Now time.Time `json:"now"`
				}{b, s.cfg.Lab.Clock.Now()})
			}
		}
	}
}

type reason struct {
	Reason string `json:"reason"`
}

// eventWriter writes events and keeps the first error.
type eventWriter struct {
	w    io.Writer
	rc   *http.ResponseController
	stop context.Context
	err  error
}

func (e *eventWriter) raw(text string) {
	if e.err != nil {
		return
	}
	// The deadline moves with every write: the stream has no end, each write has. A
	// writer that knows no deadlines, such as a test's, does without.
	limit := writeLimit
	if e.stop.Err() != nil {
		limit = lastLimit
	}
	if err := e.rc.SetWriteDeadline(time.Now().Add(limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		e.err = err
		return
	}
	_, e.err = io.WriteString(e.w, text)
}

func (e *eventWriter) event(id, name string, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		e.err = errors.Join(e.err, err)
		return
	}
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("event: " + name + "\ndata: ")
	b.Write(body)
	b.WriteString("\n\n")
	e.raw(b.String())
}

func (e *eventWriter) flush() error {
	if e.err == nil {
		e.err = e.rc.Flush()
	}
	return e.err
}
