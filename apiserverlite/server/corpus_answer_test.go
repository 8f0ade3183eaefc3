package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// answer is what came back for a row.
type answer struct {
	code   int
	header http.Header
	raw    string
	object any   // the body, if it is JSON or protobuf
	events []any // of a watch
}

// exchange sends a row. A watch is ended once the expected events are there.
func (f *fixture) exchange(r row, vars map[string]string) (*answer, error) {
	body := strings.TrimSuffix(expand(r.body, vars), "\n")
	if r.proto && body != "" {
		b, err := toProtobuf(body)
		if err != nil {
			return nil, err
		}
		body = b
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, "http://127.0.0.1"+expand(r.path, vars), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("User-Agent", "corpus/1")
	if r.proto {
		req.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
		req.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	}
	for _, h := range r.headers {
		req.Header.Set(h[0], expand(h[1], vars))
	}
	want := 0
	for _, e := range r.expect {
		if e.kind == "event" {
			want++
		}
	}
	rec := &streamRecorder{ResponseRecorder: httptest.NewRecorder(), want: want, enough: cancel}
	if want == 0 {
		rec.want = -1
	}
	f.Handler().ServeHTTP(rec, req)
	if want > 0 && ctx.Err() == context.DeadlineExceeded {
		return nil, fmt.Errorf("%d events did not come, only\n%s", want, rec.Body)
	}
	return readAnswer(rec, want > 0)
}

// streamRecorder cancels a watch once enough lines were written.
type streamRecorder struct {
	*httptest.ResponseRecorder
	want   int
	lines  int
	enough func()
}

func (s *streamRecorder) Write(b []byte) (int, error) {
	n, err := s.ResponseRecorder.Write(b)
	s.lines += bytes.Count(b, []byte("\n"))
	if s.want > 0 && s.lines >= s.want {
		s.enough()
	}
	return n, err
}

func readAnswer(rec *streamRecorder, stream bool) (*answer, error) {
	a := &answer{code: rec.Code, header: rec.Result().Header, raw: rec.Body.String()}
	if stream {
		for _, l := range strings.Split(strings.TrimSpace(a.raw), "\n") {
			var v any
			if err := json.Unmarshal([]byte(l), &v); err != nil {
				return nil, fmt.Errorf("event %q: %w", l, err)
			}
			a.events = append(a.events, v)
		}
		return a, nil
	}
	if b := rec.Body.Bytes(); bytes.HasPrefix(b, protoPrefix) {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("answer in protobuf: %w", err)
		}
		j, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		a.raw = "(protobuf) " + string(j)
		return a, json.Unmarshal(j, &a.object)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &a.object); err != nil {
		a.object = nil // YAML, plain text: only "body" can be asked for
	}
	return a, nil
}

func toProtobuf(body string) (string, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		return "", fmt.Errorf("body for protobuf: %w", err)
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	if !ok {
		return "", fmt.Errorf("client-go knows no protobuf")
	}
	b, err := runtime.Encode(info.Serializer, o)
	return string(b), err
}

func (a *answer) text(path string) string {
	v, _ := lookup(a.object, path)
	s, _ := v.(string)
	return s
}

// check compares the answer with one expectation. Before are those above it: events are taken in order.
func (a *answer) check(e expectation, before []expectation, vars map[string]string) error {
	switch e.kind {
	case "event":
		return a.event(e, before)
	case "cause":
		return a.cause(e)
	case "only":
		return a.only(before)
	case "warning":
		for _, w := range a.header.Values("Warning") {
			if strings.Contains(w, e.want) {
				return nil
			}
		}
		return fmt.Errorf("no warning has %q: %q", e.want, a.header.Values("Warning"))
	case "header":
		op, want, _ := strings.Cut(e.want, " ")
		got := a.header.Get(e.path)
		if op == "=" && got == want || op == "~" && strings.Contains(got, want) || op == "absent" && got == "" {
			return nil
		}
		return fmt.Errorf("header %s is %q", e.path, got)
	case "save":
		v, ok := lookup(a.object, e.want)
		if !ok {
			return fmt.Errorf("there is no %s to save", e.want)
		}
		vars[e.path] = fmt.Sprint(v)
		return nil
	}
	return a.value(e)
}

func (a *answer) value(e expectation) error {
	v, ok := lookup(a.object, e.path)
	if e.path == "body" {
		v, ok = a.raw, true
	}
	switch {
	case e.kind == "absent":
		if ok {
			return fmt.Errorf("%s is there: %v", e.path, v)
		}
		return nil
	case !ok:
		return fmt.Errorf("%s is not there", e.path)
	case e.kind == "=" && !same(v, e.want), e.kind == "!=" && same(v, e.want), e.kind == "~" && !strings.Contains(shown(v), e.want):
		return fmt.Errorf("%s is %s, want %s %s", e.path, shown(v), e.kind, e.want)
	}
	return nil
}

func shown(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// cause looks for a field error: "cause FieldValueRequired spec.accessModes: words of its message".
func (a *answer) cause(e expectation) error {
	field, words, _ := strings.Cut(e.want, ": ")
	v, _ := lookup(a.object, "details.causes")
	list, _ := v.([]any)
	for _, c := range list {
		m, _ := c.(map[string]any)
		reason, _ := m["reason"].(string)
		f, _ := m["field"].(string)
		msg, _ := m["message"].(string)
		if reason == e.path && f == field && strings.Contains(msg, words) {
			return nil
		}
	}
	return fmt.Errorf("no cause %s %s", e.path, e.want)
}

// only says that there are no causes but those listed above.
func (a *answer) only(before []expectation) error {
	n := 0
	for _, e := range before {
		if e.kind == "cause" {
			n++
		}
	}
	v, _ := lookup(a.object, "details.causes")
	if list, _ := v.([]any); len(list) != n {
		return fmt.Errorf("%d causes, want %d", len(list), n)
	}
	return nil
}

// event compares the next event: "event ADDED object.metadata.name=a object.data.k=v".
func (a *answer) event(e expectation, before []expectation) error {
	i := 0
	for _, b := range before {
		if b.kind == "event" {
			i++
		}
	}
	if i >= len(a.events) {
		return fmt.Errorf("event %d did not come", i+1)
	}
	words := strings.Fields(e.want)
	if v, _ := lookup(a.events[i], "type"); v != words[0] {
		return fmt.Errorf("event %d is %v, want %s", i+1, v, words[0])
	}
	for _, w := range words[1:] {
		path, want, _ := strings.Cut(w, "=")
		if v, ok := lookup(a.events[i], "object."+path); !ok || !same(v, want) {
			return fmt.Errorf("event %d: %s is %v, want %s", i+1, path, v, want)
		}
	}
	return nil
}
