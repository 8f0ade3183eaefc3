package server

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

var bodiesForMeta = map[string]bool{ // whether the quick way takes them
	`{"kind":"Pod","apiVersion":"v1","spec":{"a":["x","}\"]"],"kind":"No"}}`:               true,
	" {\n \"apiVersion\" : \"apps/v1\" , \"a\" : -1.5e3 , \"b\" : null, \"kind\":\"X\"}\n": true,
	`{"spec":{}}`:                        true,
	`{"a":"\\","b":"\\\"","kind":"Pod"}`: true,
	`{}`:                                 false,
	`{"kind":"Pod","Kind":"Other"}`:      false,
	`{"kind":"Pod","kind":"Other"}`:      false,
	`{"k\u0069nd":"Pod"}`:                false,
	"{\"\u212Aind\":\"Pod\"}":            false,
	`{"kind":"P\u006fd"}`:                false,
	`{"kind":null}`:                      false,
	`{"kind":7}`:                         false,
	`[{"kind":"Pod"}]`:                   false,
	`"kind"`:                             false,
	`{"kind":"Pod"} x`:                   false,
	`{"kind":"Pod"`:                      false,
	`{"kind":"Pod","a":"`:                false,
	`{"kind":"Pod",}`:                    false,
	``:                                   false,
	`{"apiVersion":"a/b/c","kind":"Pod","items":[]}`: true,
}

func TestTypeMeta(t *testing.T) {
	for body, want := range bodiesForMeta {
		if _, _, ok := typeMetaOf([]byte(body)); ok != want {
			t.Errorf("%s: %v", body, ok)
		}
		sameMeta(t, []byte(body))
	}
}

// sameMeta says the same as the library, for what the library can read.
func sameMeta(t *testing.T, body []byte) {
	t.Helper()
	want, wantErr := json.DefaultMetaFactory.Interpret(body)
	got, err := quickMeta{}.Interpret(body)
	if wantErr == nil && (err != nil || *got != *want) {
		t.Errorf("%q: %v, %v, not %v", body, got, err, want)
	}
}

func FuzzTypeMeta(f *testing.F) {
	for body := range bodiesForMeta {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) { sameMeta(t, body) })
}
