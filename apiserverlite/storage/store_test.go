package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var configmaps = schema.GroupResource{Resource: "configmaps"}

func configMap(ns, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Data:       map[string]string{"v": value},
	}
}

func key(ns, name string) Key { return Key{configmaps, ns, name} }

func tempPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "cluster.db")
}

func mustOpen(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *Store, ns, name, value string, expect Revision) *Entry {
	t.Helper()
	es, err := s.Write(context.Background(), Op{Key: key(ns, name), Object: configMap(ns, name, value), Expect: expect})
	if err != nil {
		t.Fatal(err)
	}
	return es[0]
}

func TestWriteIsVisibleAndKept(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	a := put(t, s, "x", "a", "1", 0)
	b := put(t, s, "x", "a", "2", a.Revision)
	if b.Revision != a.Revision+1 {
		t.Fatalf("revision %d after %d", b.Revision, a.Revision)
	}
	if same := put(t, s, "x", "a", "2", b.Revision); same != b {
		t.Fatalf("a write that changes nothing made revision %d", same.Revision)
	}
	var conflict *ConflictError
	if _, err := s.Write(context.Background(), Op{Key: key("x", "a"), Object: configMap("x", "a", "3"), Expect: a.Revision}); !errors.As(err, &conflict) || conflict.Have != b.Revision {
		t.Fatalf("want a conflict that names %d, got %v", b.Revision, err)
	}
	if err := s.SetMeta(context.Background(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	last := s.Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Config{Path: path})
	if s.Revision() != last {
		t.Fatalf("revision %d after a clean end at %d", s.Revision(), last)
	}
	e, ok := s.Get(key("x", "a"))
	if !ok || e.Revision != b.Revision || e.Object.(*corev1.ConfigMap).Data["v"] != "2" || e.Object.(*corev1.ConfigMap).ResourceVersion != fmt.Sprint(b.Revision) {
		t.Fatalf("after reopening: %+v", e)
	}
	if v, _ := s.Meta("k"); string(v) != "v" {
		t.Fatalf("meta is %q", v)
	}
}

// TestFormsAreBounded: an object that outlives many states of its definition keeps the bytes of the latest.
func TestFormsAreBounded(t *testing.T) {
	s := mustOpen(t, Config{Durability: Memory})
	e := put(t, s, "x", "a", "1", 0)
	for i := range 100 {
		name := fmt.Sprint(i)
		b, err := e.Encoded(name, func(runtime.Object) ([]byte, error) { return []byte(name), nil })
		if err != nil || string(b) != name {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if n := len(e.forms.all); n > mostForms {
		t.Errorf("%d forms are kept", n)
	}
	if b := e.forms.known(formName{name: "99"}); string(b) != "99" {
		t.Errorf("the latest is not kept: %q", b)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			s := mustOpen(b, Config{Path: tempPath(b)})
			b.SetParallelism((clients + 1) / 2)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				e := put(b, s, "x", fmt.Sprintf("%p", pb), "0", 0)
				for i := 0; pb.Next(); i++ {
					e = put(b, s, "x", e.Key.Name, fmt.Sprint(i), e.Revision)
				}
			})
		})
	}
}
