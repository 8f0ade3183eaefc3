package registry

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"drydock.dev/drydock/apiserverlite/registry/openapi"
)

// column is a printer column of a definition.
type column struct {
	name, kind, path string // kind is string, boolean, integer, number or date
	description      string // the path if empty
	format           string
	priority         int32
}

// told gives columns of a snapshot kind the descriptions of the fields that they show.
func told(kind string, columns ...column) []column {
	for i, c := range columns {
		columns[i].description = openapi.SnapshotText(kind, strings.TrimPrefix(c.path, "."))
	}
	return columns
}

// customTable renders objects with a definition's columns.
func customTable(columns ...column) func(context.Context, runtime.Object, *metav1.TableOptions) (*metav1.Table, error) {
	return func(_ context.Context, obj runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error) {
		t := &metav1.Table{Rows: []metav1.TableRow{}}
		if opts == nil || !opts.NoHeaders {
			t.ColumnDefinitions = []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}}
			for _, c := range columns {
				if c.description == "" {
					c.description = "Custom resource definition column (in JSONPath format): " + c.path
				}
				t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.name, Type: c.kind, Format: c.format, Priority: c.priority, Description: c.description})
			}
		}
		objs := []runtime.Object{obj}
		if meta.IsListType(obj) {
			var err error
			if objs, err = meta.ExtractList(obj); err != nil {
				return nil, err
			}
		}
		paths, err := parse(columns)
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				return nil, fmt.Errorf("print %T: %w", o, err)
			}
			cells := []any{accessor(o).GetName()}
			for i, c := range columns {
				cells = append(cells, cell(c, paths[i], content))
			}
			t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
		}
		return t, nil
	}
}

// parse prepares the paths. They keep state while in use, so each table has its own.
func parse(columns []column) ([]*jsonpath.JSONPath, error) {
	var out []*jsonpath.JSONPath
	for _, c := range columns {
		p := jsonpath.New(c.name).AllowMissingKeys(true)
		if err := p.Parse("{" + c.path + "}"); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// cell is nil for what is not there.
func cell(c column, p *jsonpath.JSONPath, content map[string]any) any {
	found, err := p.FindResults(content)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	switch c.kind {
	case "string":
		var b bytes.Buffer
		if p.PrintResults(&b, []reflect.Value{reflect.ValueOf(value)}) != nil {
			return nil
		}
		return b.String()
	case "date":
		s, ok := value.(string)
		if !ok {
			return nil
		}
		var t metav1.Time
		if t.UnmarshalQueryParameter(s) != nil {
			return "<invalid>"
		}
		return metatable.ConvertToHumanReadableDateType(t)
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "integer":
		if n, ok := value.(int64); ok {
			return n
		}
	case "number":
		switch n := value.(type) {
		case int64, float64:
			return n
		}
	}
	return nil
}
