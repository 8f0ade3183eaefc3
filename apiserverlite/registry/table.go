package registry

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
	"k8s.io/kubernetes/pkg/apis/storage"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
)

// printer holds upstream's columns of the built-in kinds.
var printer = sync.OnceValue(func() *printers.HumanReadableGenerator {
	return printers.NewTableGenerator().With(printersinternal.AddHandlers)
})

// table renders an object or a list with upstream's printer, wide columns included.
func table[T, L any, P pointer[T], Q pointer[L]](_ context.Context, obj runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error) {
	if plain[reflect.TypeFor[T]()] {
		return plainTable(obj, opts)
	}
	var in runtime.Object
	var err error
	if meta.IsListType(obj) {
		in, err = internal[L, Q](obj)
	} else {
		in, err = internal[T, P](obj)
	}
	if err != nil {
		return nil, err
	}
	t, err := printer().GenerateTable(in, printers.GenerateOptions{Wide: true, NoHeaders: opts != nil && opts.NoHeaders})
	if err != nil {
		return nil, fmt.Errorf("print %T: %w", obj, err)
	}
	for i := range t.Rows {
		t.Rows[i].Object = runtime.RawExtension{} // internal objects go no further
	}
	return t, nil
}

// accessor returns an object's metadata; every object that is served has some.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return m
}

// plain are the kinds for which upstream has no columns of their own.
var plain = map[reflect.Type]bool{reflect.TypeFor[rbac.Role](): true, reflect.TypeFor[rbac.ClusterRole](): true, reflect.TypeFor[core.LimitRange](): true,
	reflect.TypeFor[storage.CSIStorageCapacity](): true}

// plainTable is upstream's table for kinds without columns: the name and when it was made.
func plainTable(obj runtime.Object, opts *metav1.TableOptions) (*metav1.Table, error) {
	objs := []runtime.Object{obj}
	if meta.IsListType(obj) {
		var err error
		if objs, err = meta.ExtractList(obj); err != nil {
			return nil, err
		}
	}
	t := &metav1.Table{Rows: []metav1.TableRow{}}
	for _, o := range objs {
		m := accessor(o)
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{m.GetName(), m.GetCreationTimestamp().UTC().Format(time.RFC3339)}})
	}
	if opts == nil || !opts.NoHeaders {
		doc := metav1.ObjectMeta{}.SwaggerDoc()
		t.ColumnDefinitions = []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
			{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
		}
	}
	return t, nil
}
