package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestDocumentNamesTheTests keeps docs/api-conformance.md to the tests that there are: all of this package, and
// of others those that it names. Every row of what the API promises names what shows it.
func TestDocumentNamesTheTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "api-conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	named := map[string]bool{}
	for _, n := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(doc, -1) {
		named[n] = true
	}
	exist := functions(t)
	for n := range named {
		if len(exist[n]) == 0 {
			t.Errorf("the document names %s, which is not there", n)
		}
	}
	for n, dirs := range exist {
		if dirs[filepath.Join("internal", "conformance")] && !named[n] && n != t.Name() && n != "TestMain" {
			t.Errorf("the document does not name %s", n)
		}
	}
	_, promises, _ := strings.Cut(doc, "\n## What the API promises")
	promises, _, _ = strings.Cut(promises, "\n## ")
	proof := regexp.MustCompile("`((?:Test|Fuzz)\\w+|(?:corpus|kubectl|script):[^`]+)`")
	places := map[string]string{"kubectl": "internal/interop/testdata/kubectl", "script": "cmd/drydock/testdata/script"}
	scenarios := scenarios(t)
	rows := 0
	for line := range strings.SplitSeq(promises, "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| shown by |") {
			continue
		}
		rows++
		found := proof.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("nothing shows: %s", line)
		}
		for _, m := range found {
			switch kind, name, _ := strings.Cut(m[1], ":"); {
			case kind == "corpus" && !scenarios[name]:
				t.Errorf("the corpus has no scenario %q", name)
			case places[kind] != "":
				if _, err := os.Stat(filepath.Join(root, places[kind], name+".txtar")); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d promises were found", rows)
	}
}

// functions lists the tests of the repository, each with the folders that have one of its name.
func functions(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(d.Name(), "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			if out[fn.Name.Name] == nil {
				out[fn.Name.Name] = map[string]bool{}
			}
			out[fn.Name.Name][dir] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// scenarios are the titles in the request corpus.
func scenarios(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "apiserverlite", "server", "testdata", "corpus", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(b), "\n") {
			if title, ok := strings.CutPrefix(line, "== "); ok {
				out[strings.TrimSpace(title)] = true
			}
		}
	}
	return out
}
