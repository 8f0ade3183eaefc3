package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Scenario is a conversation with a server of its own.
type Scenario struct {
	Title string
	File  string
	Rows  []Row
	with  []map[string]string // variables of each run; none is one run
}

// Run is a Scenario with values for its variables.
type Run struct {
	Scenario
	Name string
	Vars map[string]string
}

// Runs are at least one.
func (s Scenario) Runs() (out []Run) {
	with := s.with
	if len(with) == 0 {
		with = []map[string]string{{}}
	}
	for _, vars := range with {
		r := Run{Scenario: s, Name: s.Title, Vars: vars}
		r.Rows = slices.DeleteFunc(slices.Clone(s.Rows), func(row Row) bool { return slices.Contains(row.except, vars["NAME"]) })
		if vars["NAME"] != "" {
			r.Name += " " + vars["NAME"]
		}
		out = append(out, r)
	}
	return out
}

// Row is one request and what is expected of its answer.
type Row struct {
	Title    string
	Line     int
	Upstream string // where the answer stands in upstream's code; empty if nobody looked
	Method   string
	Path     string
	headers  [][2]string
	form     string // proto or cbor; else the body is sent as it is
	body     string
	Code     int
	Reason   string
	expect   []expectation
	alone    []alone
	except   []string // runs without this row
}

// alone is why upstream's server answers a row otherwise.
type alone struct {
	why string
	in  []string // the runs of these names; all if there are none
}

// Alone tells why upstream's server answers the row otherwise in a run; it is empty if it answers the same.
func (r Row) Alone(run Run) string {
	for _, a := range r.alone {
		if len(a.in) == 0 || slices.Contains(a.in, run.Vars["NAME"]) {
			return a.why
		}
	}
	return ""
}

// expectation is one line below an answer's code.
type expectation struct {
	line int
	kind string // =, ~, absent, present, cause, only, warning, header, event, save
	path string
	want string
}

// Body is the request's, before its variables are filled in.
func (r Row) Body() string { return r.body }

// Fill is the row's path with its variables filled in.
func (r Row) Fill(vars map[string]string) string { return expand(r.Path, vars) }

var patchMethods = map[string]string{
	"MERGE": "application/merge-patch+json",
	"SMP":   "application/strategic-merge-patch+json",
	"JSON":  "application/json-patch+json",
	"APPLY": "application/apply-patch+yaml",
}

// parser reads one file.
type parser struct {
	file string
	out  []Scenario
	row  *Row
	line int
	body bool // lines belong to the body of the row's request
}

func parse(file, text string) ([]Scenario, error) {
	p := &parser{file: filepath.Base(file)}
	for i, l := range strings.Split(text, "\n") {
		p.line = i + 1
		if err := p.take(l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, p.line, err)
		}
	}
	for _, s := range p.out {
		for _, r := range s.Rows {
			if r.Code == 0 {
				return nil, fmt.Errorf("%s:%d: %s: no answer is expected", file, r.Line, r.Title)
			}
		}
	}
	return p.out, nil
}

func (p *parser) take(l string) error {
	switch first, rest, _ := strings.Cut(l, " "); {
	case strings.HasPrefix(l, "# ") || l == "#" || l == "" && !p.body:
		return nil
	case first == "==":
		p.out = append(p.out, Scenario{Title: strings.TrimSpace(rest), File: p.file})
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
		s.Rows = append(s.Rows, Row{Title: strings.TrimSpace(title), Upstream: strings.TrimSpace(where), Line: p.line})
		p.row, p.body = &s.Rows[len(s.Rows)-1], false
		return nil
	case p.row == nil:
		return fmt.Errorf("%q stands before the first row", l)
	case p.row.Method == "":
		return p.request(first, strings.TrimSpace(rest))
	case first == "->" && p.row.Code == 0:
		p.body = false
		code, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.Atoi(code)
		p.row.Code, p.row.Reason = n, strings.TrimSpace(reason)
		return err
	case p.row.Code != 0:
		return p.expectation(strings.TrimSpace(l))
	case l == "@proto" || l == "@cbor":
		p.row.form = l[1:]
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

func (p *parser) request(method, path string) error {
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "${") {
		return fmt.Errorf("%q is not METHOD /path", method+" "+path)
	}
	if ct, ok := patchMethods[method]; ok {
		method = "PATCH"
		p.row.headers = append(p.row.headers, [2]string{"Content-Type", ct})
	}
	p.row.Method, p.row.Path, p.body = method, path, true
	return nil
}

func (p *parser) expectation(l string) error {
	first, rest, _ := strings.Cut(l, " ")
	rest = strings.TrimSpace(rest)
	e := expectation{line: p.line}
	switch first {
	case "except":
		p.row.except = strings.Split(rest, ",")
		return nil
	case "alone", "alone:":
		names, why, ok := strings.Cut(strings.TrimPrefix(l, "alone"), ": ")
		if !ok {
			return fmt.Errorf("%q gives no reason", l)
		}
		in := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
		p.row.alone = append(p.row.alone, alone{why, in})
		return nil
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

// Load reads the table's files in a directory.
func Load(dir string) ([]Scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var out []Scenario
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		s, err := parse(f, string(b))
		if err != nil {
			return nil, err
		}
		out = append(out, s...)
	}
	return out, nil
}
