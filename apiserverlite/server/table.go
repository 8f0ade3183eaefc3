package server

import (
	"bytes"
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// table renders an object or a list with the kind's columns and fills in the rows' objects as asked.
func (x *exchange) table(ctx context.Context, o runtime.Object) (*metav1.Table, error) {
	opts, err := x.tableOptions()
	if err != nil {
		return nil, err
	}
	return x.tableOf(ctx, o, opts)
}

func (x *exchange) tableOf(ctx context.Context, o runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error) {
	t, err := x.res.Table(ctx, o, opts)
	if err != nil {
		return nil, err
	}
	t.APIVersion, t.Kind = x.out.asGV, "Table"
	if l, err := meta.ListAccessor(o); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = l.GetResourceVersion(), l.GetContinue(), l.GetRemainingItemCount()
	} else if m, err := meta.Accessor(o); err == nil {
		t.ResourceVersion = m.GetResourceVersion()
	}
	objs := []runtime.Object{o}
	if meta.IsListType(o) {
		if objs, err = meta.ExtractList(o); err != nil {
			return nil, err
		}
	}
	for i := range t.Rows {
		if i >= len(objs) {
			break
		}
		switch opts.IncludeObject {
		case metav1.IncludeNone:
			t.Rows[i].Object.Object = nil
		case metav1.IncludeObject:
			item := objs[i].DeepCopyObject()
			item.GetObjectKind().SetGroupVersionKind(x.res.GVK)
			t.Rows[i].Object.Object = item
		default:
			m, err := meta.Accessor(objs[i])
			if err != nil {
				return nil, err
			}
			t.Rows[i].Object.Object = partialFrom(m, x.out.asGV)
		}
	}
	if t.Rows == nil {
		t.Rows = []metav1.TableRow{}
	}
	return t, nil
}

// reformat turns compact JSON into what else was asked for.
func reformat(b []byte, out output) ([]byte, error) {
	if out.media == mediaYAML {
		return yaml.JSONToYAML(b)
	}
	var w bytes.Buffer
	if err := json.Indent(&w, b, "", "  "); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}
