package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// enums adds the values that a text may have to the models. The files that the models come from leave them out: they
// are made with the gate OpenAPIEnums off, which a server has on. What a server tells is in the Go code that
// upstream generates; it is read as text, because as a package it would bring seven modules with it.
func enums(models object) error {
	dir, err := module("k8s.io/kubernetes")
	if err != nil {
		return err
	}
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "pkg", "generated", "openapi", "zz_generated.openapi.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	byFunc := map[string]string{}
	for name := range models {
		byFunc[function(name)] = name
	}
	found := 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || byFunc[fn.Name.Name] == "" {
			continue
		}
		n, err := enumsOf(fn, models[byFunc[fn.Name.Name]].(object))
		if err != nil {
			return fmt.Errorf("read the values of %s: %w", byFunc[fn.Name.Name], err)
		}
		found += n
	}
	if found == 0 {
		return fmt.Errorf("no values in upstream's generated code: its form is another one than this reads")
	}
	return nil
}

// function is the one that makes a model, named by the last four parts of its type's path.
func function(model string) string {
	parts := strings.Split(strings.Replace(model, "io.k8s.", "k8sio.", 1), ".")
	return "schema_" + strings.Join(parts[max(0, len(parts)-5):], "_")
}

// enumsOf takes over what a function says of its model's properties and of their items.
func enumsOf(fn *ast.FuncDecl, model object) (found int, err error) {
	properties, _ := model["properties"].(object)
	ast.Inspect(fn, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok || err != nil || named(kv) != "Properties" {
			return err == nil
		}
		lit, ok := kv.Value.(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, e := range lit.Elts {
			p := e.(*ast.KeyValueExpr)
			var name string
			if name, err = text(p.Key); err != nil {
				return false
			}
			target, ok := properties[name].(object)
			if !ok {
				continue
			}
			var n int
			if n, err = enumsIn(p.Value, target); err != nil {
				return false
			}
			found += n
		}
		return false
	})
	return found, err
}

// enumsIn looks through one property.
func enumsIn(e ast.Expr, target object) (found int, err error) {
	lit, ok := unref(e).(*ast.CompositeLit)
	if !ok {
		return 0, nil
	}
	for _, elt := range lit.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		n, into := 0, target
		switch named(kv) {
		case "SchemaProps", "Schema":
			n, err = enumsIn(kv.Value, into)
		case "Items":
			if into, ok = target["items"].(object); ok {
				n, err = enumsIn(kv.Value, into)
			}
		case "AdditionalProperties":
			if into, ok = target["additionalProperties"].(object); ok {
				n, err = enumsIn(kv.Value, into)
			}
		case "Enum":
			var values []any
			for _, v := range kv.Value.(*ast.CompositeLit).Elts {
				var s string
				if s, err = text(v); err != nil {
					return found, err
				}
				values = append(values, s)
			}
			target["enum"], n = values, 1
		}
		if err != nil {
			return found, err
		}
		found += n
	}
	return found, nil
}

func named(kv *ast.KeyValueExpr) string {
	id, ok := kv.Key.(*ast.Ident)
	if !ok {
		return ""
	}
	return id.Name
}

func unref(e ast.Expr) ast.Expr {
	if u, ok := e.(*ast.UnaryExpr); ok {
		return u.X
	}
	return e
}

func text(e ast.Expr) (string, error) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", fmt.Errorf("%T is no text", e)
	}
	return strconv.Unquote(lit.Value)
}
