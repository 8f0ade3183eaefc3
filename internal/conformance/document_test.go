package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentNamesTheTests keeps docs/api-conformance.md to the tests that there are, all of them.
func TestDocumentNamesTheTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api-conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, n := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(doc), -1) {
		named[n] = true
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	exist := map[string]bool{}
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				exist[fn.Name.Name] = true
			}
		}
	}
	delete(exist, t.Name())
	for n := range named {
		if !exist[n] {
			t.Errorf("the document names %s, which is not there", n)
		}
	}
	for n := range exist {
		if !named[n] {
			t.Errorf("the document does not name %s", n)
		}
	}
}
