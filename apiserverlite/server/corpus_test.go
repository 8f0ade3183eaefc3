package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The request corpus: testdata/corpus/*.txt is one table of requests with the answers that a
// Kubernetes API server gives. How to write a row is said in testdata/corpus/README.md.

var corpusOnly = flag.String("corpus", "", "run only the scenarios whose title contains this")

// corpusLeast is what the issue asks for. Rows of a scenario with several "with" lines count once for each.
const corpusLeast = 400

// scenario is a conversation with a server of its own.
type scenario struct {
	title string
	file  string
	rows  []row
	with  []map[string]string // variables of each run; none is one run
}

// row is one request and what is expected of its answer.
type row struct {
	title    string
	line     int
	upstream string // where the answer is confirmed in upstream's code; empty if it is not
	method   string
	path     string
	headers  [][2]string
	proto    bool
	body     string
	code     int
	reason   string
	expect   []expectation
}

// expectation is one line below an answer's code.
type expectation struct {
	line int
	kind string // =, ~, absent, present, cause, only, warning, header, event, save
	path string
	want string
}

var patchMethods = map[string]string{"MERGE": mergeCT, "SMP": smpCT, "JSON": patchCT, "APPLY": applyCT}

// corpusParser reads one file.
type corpusParser struct {
	file string
	out  []scenario
	row  *row
	line int
	body bool // lines belong to the body of the row's request
}

func parseCorpus(file, text string) ([]scenario, error) {
	p := &corpusParser{file: filepath.Base(file)}
	for i, l := range strings.Split(text, "\n") {
		p.line = i + 1
		if err := p.take(l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, p.line, err)
		}
	}
	for _, s := range p.out {
		for _, r := range s.rows {
			if r.code == 0 {
				return nil, fmt.Errorf("%s:%d: %s: no answer is expected", file, r.line, r.title)
			}
		}
	}
	return p.out, nil
}

func (p *corpusParser) take(l string) error {
	switch first, rest, _ := strings.Cut(l, " "); {
	case strings.HasPrefix(l, "# ") || l == "#" || l == "" && !p.body:
		return nil
	case first == "==":
		p.out = append(p.out, scenario{title: strings.TrimSpace(rest), file: p.file})
		p.row, p.body = nil, false
		return nil
	case len(p.out) == 0:
		return fmt.Errorf("%q stands before the first scenario", l)
	case first == "with":
		vars := map[string]string{}
		for _, f := range strings.Split(rest, " ; ") {
			k, v, ok := strings.Cut(strings.TrimSpace(f), "=")
			if !ok {
				return fmt.Errorf("%q is not NAME=VALUE", f)
			}
			vars[k] = v
		}
		s := &p.out[len(p.out)-1]
		s.with = append(s.with, vars)
		return nil
	case first == "--":
		s := &p.out[len(p.out)-1]
		title, where, _ := strings.Cut(rest, " | ")
		s.rows = append(s.rows, row{title: strings.TrimSpace(title), upstream: strings.TrimSpace(where), line: p.line})
		p.row, p.body = &s.rows[len(s.rows)-1], false
		return nil
	case p.row == nil:
		return fmt.Errorf("%q stands before the first row", l)
	case p.row.method == "":
		return p.request(first, strings.TrimSpace(rest))
	case first == "->":
		p.body = false
		code, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.Atoi(code)
		p.row.code, p.row.reason = n, strings.TrimSpace(reason)
		return err
	case p.row.code != 0:
		return p.expectation(strings.TrimSpace(l))
	case strings.HasPrefix(l, "@proto"):
		p.row.proto = true
		return nil
	case strings.HasPrefix(l, "@"):
		k, v, ok := strings.Cut(l[1:], ": ")
		if !ok {
			return fmt.Errorf("%q is not @Header: value", l)
		}
		p.row.headers = append(p.row.headers, [2]string{k, v})
		return nil
	}
	p.body = true
	p.row.body += l + "\n"
	return nil
}

func (p *corpusParser) request(method, path string) error {
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "${") {
		return fmt.Errorf("%q is not METHOD /path", method+" "+path)
	}
	if ct, ok := patchMethods[method]; ok {
		method = "PATCH"
		p.row.headers = append(p.row.headers, [2]string{"Content-Type", ct})
	}
	p.row.method, p.row.path, p.body = method, path, true
	return nil
}

func (p *corpusParser) expectation(l string) error {
	first, rest, _ := strings.Cut(l, " ")
	rest = strings.TrimSpace(rest)
	e := expectation{line: p.line}
	switch first {
	case "absent", "present":
		e.kind, e.path = first, rest
	case "only":
		e.kind = first
	case "cause":
		e.kind = first
		e.path, e.want, _ = strings.Cut(rest, " ")
	case "warning", "event":
		e.kind, e.want = first, rest
	case "header", "save":
		e.kind = first
		e.path, e.want, _ = strings.Cut(rest, " ")
	default:
		op := ""
		op, e.want, _ = strings.Cut(rest, " ")
		if e.kind, e.path = op, first; op != "=" && op != "~" && op != "!=" {
			return fmt.Errorf("%q is no expectation", l)
		}
	}
	e.want = strings.TrimSpace(e.want)
	p.row.expect = append(p.row.expect, e)
	return nil
}

func loadCorpus(t *testing.T) []scenario {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	var out []scenario
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseCorpus(f, string(b))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s...)
	}
	return out
}

// TestCorpus sends every request of the corpus to a server in this process.
func TestCorpus(t *testing.T) {
	rows, confirmed := 0, 0
	for _, s := range loadCorpus(t) {
		if *corpusOnly != "" && !strings.Contains(s.title, *corpusOnly) {
			continue
		}
		runs := s.with
		if len(runs) == 0 {
			runs = []map[string]string{{}}
		}
		for _, vars := range runs {
			name := s.title
			if vars["NAME"] != "" {
				name += " " + vars["NAME"]
			}
			for _, r := range s.rows {
				if rows++; r.upstream != "" {
					confirmed++
				}
			}
			t.Run(name, func(t *testing.T) { converse(t, s, vars) })
		}
	}
	t.Logf("%d requests, %d of them confirmed against upstream's code", rows, confirmed)
	if *corpusOnly == "" && rows < corpusLeast {
		t.Errorf("the corpus has %d requests, it should have at least %d", rows, corpusLeast)
	}
}

// converse sends the rows of a scenario one after the other. It goes on after a wrong answer, so that one run shows all.
func converse(t *testing.T, s scenario, with map[string]string) {
	t.Parallel()
	f := startReal(t, "")
	vars := map[string]string{}
	for k, v := range with {
		vars[k] = v
	}
	for _, r := range s.rows {
		at := func(line int) string { return fmt.Sprintf("%s:%d: %s", s.file, line, r.title) }
		ans, err := f.exchange(r, vars)
		if err != nil {
			t.Fatalf("%s: %v", at(r.line), err)
		}
		if ans.code != r.code || r.reason != "" && ans.text("reason") != r.reason {
			t.Errorf("%s: %s %s: %d %s, want %d %s\n%s", at(r.line), r.method, r.path, ans.code, ans.text("reason"), r.code, r.reason, ans.raw)
			continue
		}
		for i, e := range r.expect {
			e.want, e.path = expand(e.want, vars), expand(e.path, vars)
			if err := ans.check(e, r.expect[:i], vars); err != nil {
				t.Errorf("%s: %v\n%s", at(e.line), err, ans.raw)
			}
		}
	}
}

// expand puts the values of variables in place of ${NAME}.
func expand(s string, vars map[string]string) string {
	for k, v := range vars {
		s = strings.ReplaceAll(s, "${"+k+"}", v)
	}
	return s
}

// lookup follows a path such as a.b[0]["x/y"].c.
func lookup(v any, path string) (any, bool) {
	for path != "" {
		var key string
		switch {
		case path[0] == '.':
			path = path[1:]
			continue
		case path[0] == '[':
			end := strings.Index(path, "]")
			if end < 0 {
				return nil, false
			}
			key, path = path[1:end], path[end+1:]
			if i, err := strconv.Atoi(key); err == nil {
				l, ok := v.([]any)
				if !ok || i >= len(l) {
					return nil, false
				}
				v = l[i]
				continue
			}
			key = strings.Trim(key, `"`)
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			key, path = path[:end], path[end:]
		}
		if l, ok := v.([]any); ok && key == "#" {
			v = float64(len(l))
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// same compares a value with its text in the table, which is JSON or a bare string.
func same(v any, want string) bool {
	var w any
	if err := json.Unmarshal([]byte(want), &w); err == nil {
		a, _ := json.Marshal(v)
		b, _ := json.Marshal(w)
		if string(a) == string(b) {
			return true
		}
	}
	s, ok := v.(string)
	return ok && s == want
}
