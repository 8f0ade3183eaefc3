package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler makes objects of all shapes: some fields set, some empty, some missing, lists with doubles.
type filler struct{ *rand.Rand }

func (f filler) fill(v reflect.Value, depth int) {
	if f.IntN(3) == 0 || depth > 9 {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.Unix(int64(f.IntN(1e9)), 0)
		return
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.Unix(int64(f.IntN(1e9)), 0))
		return
	case *quantity.Quantity:
		*p = *quantity.NewQuantity(int64(f.IntN(100)), quantity.BinarySI)
		return
	case *intstr.IntOrString:
		*p = []intstr.IntOrString{intstr.FromInt32(int32(f.IntN(9))), intstr.FromString("50%")}[f.IntN(2)]
		return
	case *runtime.RawExtension:
		p.Raw = []byte(`{"a":{"b":[1,2]}}`)
		return
	case *metav1.FieldsV1, *metav1.TypeMeta, *[]metav1.ManagedFieldsEntry:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		n := f.IntN(3)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(3) {
			key, val := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth)
			f.fill(val, depth+1)
			v.SetMapIndex(key, val)
		}
	case reflect.String:
		v.SetString([]string{"", "a", "b", "c"}[f.IntN(4)])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.IntN(4)))
	case reflect.Uint8:
		v.SetUint(uint64(f.IntN(256)))
	case reflect.Float64:
		v.SetFloat(float64(f.IntN(4)))
	}
}

// TestTrackNew holds the short way to the library's, for objects of every kind.
func TestTrackNew(t *testing.T) {
	s := startReal(t, "").Server
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := filler{rand.New(rand.NewPCG(seed, 1))}
	kinds, some := 0, 0
	for _, res := range s.resources {
		if res.answer != nil || !res.Protobuf || !res.hasVerb("create") {
			continue
		}
		kinds++
		for range 20 {
			obj := res.New()
			f.fill(reflect.ValueOf(obj).Elem(), 0)
			obj.GetObjectKind().SetGroupVersionKind(res.GVK)
			w := &writing{s: s, res: res, strategy: res.Strategy, manager: "me"}
			want, err := w.track(res.New(), obj.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			got, err := w.trackNew(obj.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			a, b := managedOf(t, got), managedOf(t, want)
			if a != b {
				text, _ := json.Marshal(obj)
				t.Fatalf("%s: recorded\n%s\nnot the library's\n%s\nfor %s", res.GVR, a, b, text)
			}
			if a != "[]" {
				some++
			}
		}
	}
	if kinds < 30 || some < kinds*10 {
		t.Fatalf("looked at %d kinds, and at %d objects with fields", kinds, some)
	}
}

// managedOf is an object's record without times.
func managedOf(t *testing.T, o runtime.Object) string {
	t.Helper()
	m, err := metaOf(o)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range m.GetManagedFields() {
		if e.Time == nil || time.Since(e.Time.Time) > time.Minute {
			t.Fatalf("the time is %v", e.Time)
		}
		out = append(out, fmt.Sprint(e.Manager, e.Operation, e.APIVersion, e.FieldsType, e.Subresource, e.FieldsV1))
	}
	return fmt.Sprint(out)
}
