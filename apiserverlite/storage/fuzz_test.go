package storage

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

var epoch = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

func schemeForTests() *runtime.Scheme { return scheme.Scheme }

// waitFor gives other goroutines a turn until a condition holds.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition did not come to hold")
		}
	}
}

// FuzzDecodeRow feeds the row decoder: it must answer with a named object or an error.
func FuzzDecodeRow(f *testing.F) {
	c := newCodec(scheme.Scheme)
	r, err := c.encode(configMap("x", "a", "1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(int64(r.enc), r.data)
	f.Add(int64(encJSON), []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`))
	f.Add(int64(encJSON), []byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`))
	f.Add(int64(encJSON), []byte(`{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`))
	f.Add(int64(9), []byte(nil))
	f.Fuzz(func(t *testing.T, enc int64, data []byte) {
		o, err := c.decode(row{encoding(enc), data})
		if err == nil && (o == nil || o.GetObjectKind().GroupVersionKind().Kind == "") {
			t.Fatalf("decoded to %T without a kind", o)
		}
	})
}
