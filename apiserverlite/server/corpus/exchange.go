package corpus

import (
	"bufio"
	"bytes"
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

// Server is where rows are sent.
type Server struct {
	URL    string
	Token  string // none if empty
	Client *http.Client
}

// Answer is what came back for a row.
type Answer struct {
	Code   int
	Header http.Header
	Raw    string
	Object any   // the body, if it is JSON, protobuf or CBOR
	Events []any // of a watch
}

// answerTime is more than any row takes; a watch whose events do not come ends by it.
const answerTime = 10 * time.Second

// Send sends a row. A watch is ended once the expected events are there.
func (s Server) Send(ctx context.Context, r Row, vars map[string]string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := s.request(ctx, r, vars)
	if err != nil {
		return nil, err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Answer{Code: resp.StatusCode, Header: resp.Header}
	body := resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			return nil, fmt.Errorf("read the compressed answer: %w", err)
		}
	}
	if want := r.events(); want > 0 && resp.StatusCode == http.StatusOK && strings.Contains(resp.Header.Get("Content-Type"), "cbor") {
		return a, a.readFrames(body, want)
	} else if want > 0 && resp.StatusCode == http.StatusOK {
		return a, a.readEvents(body, want)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return a, a.read(b)
}

// events is how many are expected.
func (r Row) events() (n int) {
	for _, e := range r.expect {
		if e.kind == "event" {
			n++
		}
	}
	return n
}

func (s Server) request(ctx context.Context, r Row, vars map[string]string) (*http.Request, error) {
	body := strings.TrimSuffix(expand(r.body, vars), "\n")
	body, err := r.encode(body)
	if err != nil {
		return nil, err
	}
	var content io.Reader = http.NoBody
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, s.URL+expand(r.Path, vars), content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "corpus/1")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	if t, ok := formTypes[r.form]; ok {
		req.Header.Set("Accept", t)
		if body != "" {
			req.Header.Set("Content-Type", t)
		}
	}
	for _, h := range r.headers {
		req.Header.Set(h[0], expand(h[1], vars))
	}
	if r.form == "cbor" && req.Header.Get("Content-Type") == patchMethods["APPLY"] {
		req.Header.Set("Content-Type", "application/apply-patch+cbor")
	}
	return req, nil
}

func (a *Answer) readEvents(body io.Reader, want int) error {
	lines := bufio.NewReader(body)
	for len(a.Events) < want {
		l, err := lines.ReadBytes('\n')
		a.Raw += string(l)
		if len(bytes.TrimSpace(l)) > 0 {
			var v any
			if err := json.Unmarshal(l, &v); err != nil {
				return fmt.Errorf("event %q: %w", l, err)
			}
			a.Events = append(a.Events, v)
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%d events did not come, only\n%s", want, a.Raw)
		case err != nil:
			return nil // the stream ended; what is missing the expectations tell
		}
	}
	return nil
}

func (a *Answer) read(b []byte) error {
	a.Raw = string(b)
	if bytes.HasPrefix(b, cborPrefix) {
		j, err := fromCBOR(b)
		if err != nil {
			return err
		}
		a.Raw = "(CBOR) " + string(j)
		return json.Unmarshal(j, &a.Object)
	}
	if bytes.HasPrefix(b, protoPrefix) {
		o, err := fromProtobuf(b)
		if err != nil {
			return fmt.Errorf("answer in protobuf: %w", err)
		}
		j, err := json.Marshal(o)
		if err != nil {
			return err
		}
		a.Raw = "(protobuf) " + string(j)
		return json.Unmarshal(j, &a.Object)
	}
	if err := json.Unmarshal(b, &a.Object); err != nil {
		a.Object = nil // YAML, plain text: only "body" can be asked for
	}
	return nil
}
