package corpus

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Check compares an answer with what its row expects, keeps the values that the row saves, and
// tells each difference with the file and line of the expectation.
func (r Row) Check(file string, a *Answer, vars map[string]string) (wrong []error) {
	if a.Code != r.Code || r.Reason != "" && a.text("reason") != r.Reason {
		return []error{fmt.Errorf("%s:%d: %s: %s %s: %d %s, want %d %s", file, r.Line, r.Title, r.Method, r.Path, a.Code, a.text("reason"), r.Code, r.Reason)}
	}
	for i, e := range r.expect {
		e.want, e.path = expand(e.want, vars), expand(e.path, vars)
		if err := a.check(e, r.expect[:i], vars); err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %s: %w", file, e.line, r.Title, err))
		}
	}
	return wrong
}

func (a *Answer) text(path string) string {
	v, _ := lookup(a.Object, path)
	s, _ := v.(string)
	return s
}

// check compares the answer with one expectation. Before are those above it: events are taken in order.
func (a *Answer) check(e expectation, before []expectation, vars map[string]string) error {
	switch e.kind {
	case "event":
		return a.event(e, before)
	case "cause":
		return a.cause(e)
	case "only":
		return a.only(before)
	case "warning":
		for _, w := range a.Header.Values("Warning") {
			if strings.Contains(w, e.want) {
				return nil
			}
		}
		return fmt.Errorf("no warning has %q: %q", e.want, a.Header.Values("Warning"))
	case "header":
		op, want, _ := strings.Cut(e.want, " ")
		got := a.Header.Get(e.path)
		if op == "=" && got == want || op == "~" && strings.Contains(got, want) || op == "absent" && got == "" {
			return nil
		}
		return fmt.Errorf("header %s is %q", e.path, got)
	case "save":
		v, ok := lookup(a.Object, e.want)
		if !ok {
			return fmt.Errorf("there is no %s to save", e.want)
		}
		vars[e.path] = fmt.Sprint(v)
		return nil
	}
	return a.value(e)
}

func (a *Answer) value(e expectation) error {
	v, ok := lookup(a.Object, e.path)
	if e.path == "body" {
		v, ok = a.Raw, true
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
func (a *Answer) cause(e expectation) error {
	field, words, _ := strings.Cut(e.want, ": ")
	v, _ := lookup(a.Object, "details.causes")
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
func (a *Answer) only(before []expectation) error {
	n := 0
	for _, e := range before {
		if e.kind == "cause" {
			n++
		}
	}
	v, _ := lookup(a.Object, "details.causes")
	if list, _ := v.([]any); len(list) != n {
		return fmt.Errorf("%d causes, want %d", len(list), n)
	}
	return nil
}

// event compares the next event: "event ADDED object.metadata.name=a object.data.k=v".
func (a *Answer) event(e expectation, before []expectation) error {
	i := 0
	for _, b := range before {
		if b.kind == "event" {
			i++
		}
	}
	if i >= len(a.Events) {
		return fmt.Errorf("event %d did not come", i+1)
	}
	words := strings.Fields(e.want)
	if v, _ := lookup(a.Events[i], "type"); v != words[0] {
		return fmt.Errorf("event %d is %v, want %s", i+1, v, words[0])
	}
	for _, w := range words[1:] {
		path, want, _ := strings.Cut(w, "=")
		if v, ok := lookup(a.Events[i], "object."+path); !ok || !same(v, want) {
			return fmt.Errorf("event %d: %s is %v, want %s", i+1, path, v, want)
		}
	}
	return nil
}
