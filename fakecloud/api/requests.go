package api

import (
	"context"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"drydock.dev/drydock/fakecloud"
)

// MarshalJSON writes an entry of the request log for programs.
func (r Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(requestObject{
		ID: r.ID, Seq: r.Seq, Time: r.Time.UTC().Format(time.RFC3339Nano), Method: r.Method, Path: r.Path, Route: r.Route, Status: r.Status,
		Caller: r.Caller, Volume: r.Volume, Fault: r.Fault, Milliseconds: float64(r.Duration.Microseconds()) / 1000})
}

type requestObject struct {
	Seq          int64   `json:"seq"`
	ID           string  `json:"id"`
	Time         string  `json:"time"`
	Method       string  `json:"method"`
	Path         string  `json:"path"`
	Route        string  `json:"route"`
	Status       int     `json:"status"` // 0 if the connection was dropped
	Caller       string  `json:"caller"`
	Volume       string  `json:"volume,omitempty"`
	Fault        string  `json:"fault,omitempty"`
	Milliseconds float64 `json:"duration_ms"`
}

// Log keeps the newest requests. It may outlive the handlers that write it: a cloud
// that is killed and started again goes on in the same log. The zero value is ready.
type Log struct {
	mu   sync.Mutex
	ring []Request     // guarded by mu: the entry seq lies at seq % keptRequests
	next int64         // guarded by mu: sequence number of the next entry
	from int64         // guarded by mu: what is older was cleared
	grew chan struct{} // guarded by mu: closed when an entry is added; nil while nobody waits
}

// keptRequests bounds the log.
const keptRequests = 20000

func (l *Log) add(r Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Seq = l.next
	if i := int(l.next % keptRequests); i == len(l.ring) {
		l.ring = append(l.ring, r)
	} else {
		l.ring[i] = r
	}
	l.next++
	if l.grew != nil {
		close(l.grew)
		l.grew = nil
	}
}

// Clear forgets all entries; the sequence goes on.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = l.next
}

// since lists the entries from a sequence number on, and a channel that closes with the next one.
func (l *Log) since(seq int64) (out []Request, next int64, grew <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := max(seq, l.from, l.next-keptRequests); i < l.next; i++ {
		out = append(out, l.ring[i%keptRequests])
	}
	if l.grew == nil {
		l.grew = make(chan struct{})
	}
	return out, l.next, l.grew
}

// RequestFilter selects entries of the log; empty fields select all. Path is a glob
// without the query, as in path.Match, and Route the pattern: /v2/volumes/{id}.
type RequestFilter struct {
	Method, Path, Route, Caller, Volume string
	Status                              int
}

func (f RequestFilter) fits(r Request) bool {
	plain, _, _ := strings.Cut(r.Path, "?")
	globbed, _ := path.Match(f.Path, plain)
	return (f.Method == "" || strings.EqualFold(f.Method, r.Method)) && (f.Path == "" || globbed) && (f.Route == "" || f.Route == r.Route) &&
		(f.Caller == "" || f.Caller == r.Caller) && (f.Volume == "" || f.Volume == r.Volume) && (f.Status == 0 || f.Status == r.Status)
}

// Wait returns the entries from a sequence number on that fit, once there are at
// least n of them, or those there are when ctx ends. Next is where to go on.
func (l *Log) Wait(ctx context.Context, since int64, f RequestFilter, n int) (out []Request, next int64) {
	for {
		all, next, grew := l.since(since)
		out = out[:0]
		for _, r := range all {
			if f.fits(r) {
				out = append(out, r)
			}
		}
		if len(out) >= n {
			return out, next
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return out, next
		}
	}
}

// listRequests answers the log. With "Prefer: wait=SECONDS" and at_least=N it answers when N entries fit.
func (s *server) listRequests(c *call) (int, any, error) {
	q := c.r.URL.Query()
	f := RequestFilter{Method: q.Get("method"), Path: q.Get("path"), Route: q.Get("route"), Caller: q.Get("caller"), Volume: q.Get("volume")}
	var numbers [3]int64
	for i, key := range []string{"status", "since", "at_least"} {
		if text := q.Get(key); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return 0, nil, &fakecloud.Error{Kind: fakecloud.Invalid, Text: key + " must be a number, not " + strconv.Quote(text)}
			}
			numbers[i] = n
		}
	}
	if _, err := path.Match(f.Path, ""); err != nil {
		return 0, nil, &fakecloud.Error{Kind: fakecloud.Invalid, Text: "path " + strconv.Quote(f.Path) + " is no pattern"}
	}
	f.Status = int(numbers[0])
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	if d := preferredWait(c.r.Header); d > 0 {
		defer time.AfterFunc(d, cancel).Stop() // the patience of a real client, not the lab's time
	} else {
		cancel()
	}
	list, next := s.cfg.Requests.Wait(ctx, numbers[1], f, int(numbers[2]))
	return 0, map[string]any{"requests": notNil(list), "next": next}, nil
}

func (s *server) clearRequests(*call) (int, any, error) {
	s.cfg.Requests.Clear()
	return http.StatusNoContent, nil, nil
}
