package volumemanager

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

// TestConformanceTable holds docs/volume-manager.md to what there is: every row names a
// test, or says why there is none, and every test that it names exists.
func TestConformanceTable(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "volume-manager.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testFunctions(t, root)
	named := regexp.MustCompile("`((?:Test|story:)[A-Za-z0-9_-]+)`")
	rows := 0
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| shown by |") {
			continue
		}
		rows++
		names := named.FindAllStringSubmatch(line, -1)
		if len(names) == 0 && !strings.Contains(line, "*elsewhere*") {
			t.Errorf("line %d names no test and no reason: %s", i+1, line)
		}
		for _, n := range names {
			if story, is := strings.CutPrefix(n[1], "story:"); is {
				if _, err := os.Stat(filepath.Join(root, "internal", "scenario", "testdata", story+".txtar")); err != nil {
					t.Errorf("line %d: %v", i+1, err)
				}
			} else if !tests[n[1]] {
				t.Errorf("line %d: there is no test %s", i+1, n[1])
			}
		}
	}
	if rows < 80 {
		t.Errorf("only %d rows were found", rows)
	}
}

// testFunctions lists the test functions of the module.
func testFunctions(t *testing.T, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(d.Name(), "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil //nolint:nilerr // its own package's tests say so
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				out[fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
